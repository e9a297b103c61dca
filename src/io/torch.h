/* A file of torch.save: its pickle, and where its storages lie. */
#ifndef HEED_TORCH_H
#define HEED_TORCH_H

#include "pickle.h"

/* The bytes of a storage in the file. */
typedef struct heed__torch_storage {
  size_t at, bytes;
} heed__torch_storage;

typedef struct heed__torch_file {
  const heed__where *where;
  heed__file_map *map;
  heed__pickle pickle;
  bool big_endian;
  int64_t count;     /* of the storages, */
  heed__name *names; /* whose keys are sorted; `index` counts from 0 in */
  heed__torch_storage *storages;
  char *text; /* holds the keys */
} heed__torch_file;

/** Returns FILE. */
heed_status heed__fail_torch(const heed__torch_file *f, const char *problem);
/** The storage with a key, or NULL. */
heed__torch_storage *heed__torch_find_storage(const heed__torch_file *f, const heed__pickle_value *key);
/** Reads ('storage', class, key, location, number of elements). *stored is NULL for bytes without a dtype. */
HEED_MUST_USE
heed_status heed__torch_read_storage(const heed__torch_file *f, const heed__pickle_value *value,
                                     const heed__stored **stored, const heed__pickle_value **key,
                                     int64_t *count);
/** The archive of all tensors; a tensor that is the whole value is loaded alone. Errors: FILE, MEMORY, LIMIT,
 * CANCELLED. */
HEED_MUST_USE
heed_status heed__torch_load_values(const heed__torch_file *f, heed__loaded *out);

#endif
