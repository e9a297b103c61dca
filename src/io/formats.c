/* The table of file formats, and what is the same for all: finding the format of a path, loading, saving.
 *
 * A new format is a file here that describes it in a heed__format at its end, and its name in this list. */
#include "files.h"

#include <stdio.h>
#include <string.h>

#if HEED_MINIMAL
#define FORMAT_LIST(X) X(safetensors) X(npz) X(npy)
#else
#define FORMAT_LIST(X) X(safetensors) X(safetensors_index) X(npz) X(npy) X(torch) X(gguf)
#endif

#define X(name) extern const heed__format heed__format_##name;
FORMAT_LIST(X)
#undef X
#define X(name) &heed__format_##name,
static const heed__format *const formats[] = {FORMAT_LIST(X)};
#undef X
#define FORMATS ((int)(sizeof formats / sizeof *formats))

/* ---- Endings in messages ---- */

#define ENDINGS 160
typedef bool format_filter(const heed__format *f);

static bool is_any(const heed__format *f) {
  (void)f;
  return true;
}
static bool saves_names(const heed__format *f) {
  return f->save != NULL && !f->alone;
}
static bool saves_alone(const heed__format *f) {
  return f->save != NULL && f->alone;
}
static bool saves_metadata(const heed__format *f) {
  return saves_names(f) && f->metadata;
}

/* ".safetensors, .npz or .npy": the endings of the formats that pass the filter. */
static const char *endings(char text[ENDINGS], format_filter *passes) {
  int used = 0, left = 0;
  text[0] = '\0';
  for (int i = 0; i < FORMATS; i++) left += passes(formats[i]);
  for (int i = 0; i < FORMATS && used < ENDINGS; i++) {
    if (!passes(formats[i])) continue;
    left--;
    used += snprintf(text + used, (size_t)(ENDINGS - used), "%s%s", formats[i]->ending,
                     left > 1    ? ", "
                     : left == 1 ? " or "
                                 : "");
  }
  return text;
}

/* ---- The format of a file ---- */

static bool is_same_letter(char a, char b) {
  return a == b || (a >= 'A' && a <= 'Z' && a - 'A' + 'a' == b);
}

/* Endings count in any case. */
static const heed__format *format_of_path(const char *path) {
  const size_t length = strlen(path);
  for (int i = 0; i < FORMATS; i++) {
    const size_t ending = strlen(formats[i]->ending);
    size_t same = 0;
    while (length > ending && same < ending &&
           is_same_letter(path[length - ending + same], formats[i]->ending[same]))
      same++;
    if (same == ending) return formats[i];
  }
  return NULL;
}

static const heed__format *format_of_bytes(const char start[HEED__MAGIC]) {
  for (int i = 0; i < FORMATS; i++) {
    for (int k = 0; k < 2; k++) {
      const size_t length = formats[i]->magic[k].length;
      if (length > 0 && memcmp(start + formats[i]->magic[k].offset, formats[i]->magic[k].bytes, length) == 0)
        return formats[i];
    }
  }
  return NULL;
}

/* Files that users have, in formats that heed does not read; NULL: none of these. */
static const char *foreign_format(const char start[HEED__MAGIC]) {
  static const struct {
    const char *bytes, *format;
  } foreign[] = {{"\x89HDF", "HDF5"}, {"\x80", "a pickle of Python"}};
  for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
    if (memcmp(start, foreign[i].bytes, strlen(foreign[i].bytes)) == 0) return foreign[i].format;
  }
  return NULL;
}

/* The first bytes of a file, zeros where it is shorter. */
static heed_status read_start(const heed__where *where, const char *path, char start[HEED__MAGIC]) {
  heed__file file;
  int64_t size;
  memset(start, 0, HEED__MAGIC);
  heed_status status = heed__file_open(where, path, &file, &size);
  if (status != HEED_OK) return status;
  status = heed__file_read(where, file, 0, start, size < HEED__MAGIC ? (size_t)size : HEED__MAGIC);
  heed__system_close(file);
  return status;
}

/* By the ending, or, if that is unknown, by the first bytes. */
static heed_status find_format(const heed__where *where, const char *path, const heed__format **out) {
  char start[HEED__MAGIC], known[ENDINGS];
  *out = format_of_path(path);
  if (*out != NULL) return HEED_OK;
  const heed_status status = read_start(where, path, start);
  if (status != HEED_OK) return status;
  *out = format_of_bytes(start);
  if (*out != NULL) return HEED_OK;
  const char *foreign = foreign_format(start);
  if (foreign != NULL)
    return heed__fail_file(where,
                           "its format is %s; it must be %s: save the tensors with safetensors in Python",
                           foreign, endings(known, is_any));
  return heed__fail_file(where, "its format is unknown; it must be %s, by the ending or the first bytes",
                         endings(known, is_any));
}

const char *heed__path_ending(const char *path) {
  const heed__format *format = format_of_path(path);
  return format != NULL ? format->ending : NULL;
}

const char *heed__path_format(heed_context *ctx, const char *path) {
  heed__where where;
  char start[HEED__MAGIC];
  const heed__format *format = format_of_path(path);
  heed__where_init(&where, ctx, "load", path);
  if (format == NULL && heed__check_files(ctx, "load") == HEED_OK &&
      read_start(&where, path, start) == HEED_OK)
    format = format_of_bytes(start);
  return format != NULL ? format->ending : NULL;
}

/* ---- Loading ---- */

heed_status heed__load_file(heed_context *ctx, const char *path, heed_archive **archive,
                            heed_tensor **tensor) {
  heed__where where;
  const heed__format *format;
  heed__loaded loaded = {0};
  heed__where_init(&where, ctx, "load", path);
  heed_status status = find_format(&where, path, &format);
  if (status == HEED_OK) status = format->load(&where, path, &loaded);
  if (status != HEED_OK) return status;
  *archive = loaded.archive;
  *tensor = loaded.tensor;
  return HEED_OK;
}

heed_status heed__load_archive(heed_context *ctx, const char *function, const char *path,
                               heed_archive **out) {
  heed__where where;
  const heed__format *format;
  heed__loaded loaded = {0};
  heed__where_init(&where, ctx, function, path);
  heed_status status = find_format(&where, path, &format);
  if (status == HEED_OK && format->alone)
    status = heed__fail_file(&where,
                             "its format is %s, which holds one tensor without a name; it must hold "
                             "tensors by name",
                             format->ending);
  if (status == HEED_OK) status = format->load(&where, path, &loaded);
  if (status == HEED_OK && loaded.archive == NULL)
    status = heed__fail_file(&where, "it holds one tensor without a name; it must hold tensors by name");
  heed_tensor_free(loaded.tensor);
  if (status == HEED_OK) *out = loaded.archive;
  return status;
}

heed_status heed_load_archive(heed_context *ctx, const char *path, heed_archive **out) {
  HEED__ENTER(ctx, "load", path, out);
  const heed_status status = heed__check_load(ctx, *out);
  return status != HEED_OK ? status : heed__load_archive(ctx, "load", path, out);
}

/* ---- Saving ---- */

/* The format of a path that must pass the filter. Errors: ARGUMENT. */
static heed_status format_to_save(heed_context *ctx, const char *path, format_filter *passes,
                                  const char *what, const heed__format **out) {
  char quoted[HEED__QUOTED], known[ENDINGS];
  *out = format_of_path(path);
  if (*out != NULL && passes(*out)) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "save: path is %s; it must end in %s to hold %s",
                    heed__quoted(quoted, path, true), endings(known, passes), what);
}

static heed_status save_contents(heed_context *ctx, const char *path, const heed__format *format,
                                 const heed__contents *contents) {
  heed__writer w;
  const heed_status status = heed__writer_begin(&w, ctx, path);
  return status == HEED_OK ? heed__writer_end(&w, format->save(&w, contents)) : status;
}

heed_status heed__save_tensor(heed_context *ctx, const char *path, const heed_tensor *x) {
  const heed__format *format;
  const heed__contents contents = {.count = 1, .tensors = &x};
  heed_status status = heed__check_tensors(ctx, "save", "what", 1, &x);
  if (status == HEED_OK)
    status = format_to_save(ctx, path, saves_alone, "one tensor without a name", &format);
  return status == HEED_OK ? save_contents(ctx, path, format, &contents) : status;
}

/* UTF-8 as in files; `what` is "the name" or "the metadata". */
static heed_status check_utf8(heed_context *ctx, const char *what, const char *text) {
  char quoted[HEED__QUOTED];
  size_t invalid = 0;
  const heed_status status = heed__text_check_in_steps(ctx, "save", text, strlen(text), &invalid);
  if (status != HEED_OK || invalid == 0) return status;
  return heed__fail(ctx, HEED_ARGUMENT, "save: %s %s is not UTF-8; it must be", what,
                    heed__quoted(quoted, text, false));
}

/* Checks that a list of texts has no NULL and is UTF-8; "the name" and "names" in messages. */
static heed_status check_texts(heed_context *ctx, const char *each, const char *list, int64_t count,
                               const char *const *texts) {
  heed_status status = HEED_OK;
  if (count > 0 && texts == NULL) return heed__refuse_pointer(ctx, "save", list, NULL);
  for (int64_t i = 0; i < count && status == HEED_OK; i++) {
    if (texts[i] == NULL)
      return heed__fail(ctx, HEED_ARGUMENT, "save: number %lld of %s is missing (NULL)", (long long)i + 1,
                        list);
    status = check_utf8(ctx, each, texts[i]);
  }
  return status;
}

static heed_status check_contents(heed_context *ctx, const heed__contents *c, bool blocks) {
  if (c->count < 0 || c->pairs < 0)
    return heed__fail(ctx, HEED_ARGUMENT, "save: %s is %lld; it must be 0 or more",
                      c->count < 0 ? "count" : "pairs", (long long)(c->count < 0 ? c->count : c->pairs));
  heed_status status = blocks ? heed__check_any_tensors(ctx, "save", "tensors", c->count, c->tensors)
                              : heed__check_tensors(ctx, "save", "tensors", c->count, c->tensors);
  if (status == HEED_OK) status = check_texts(ctx, "the name", "names", c->count, c->names);
  if (status == HEED_OK)
    status = c->values != NULL ? check_texts(ctx, "the key", "keys", c->pairs, c->keys)
                               : check_texts(ctx, "the metadata", "metadata", 2 * c->pairs, c->metadata);
  return status;
}

/* Checks that every `step`-th of the texts is given once: of metadata the keys alone. */
static heed_status check_distinct(heed_context *ctx, const char *what, int64_t count, int64_t step,
                                  const char *const *texts) {
  char quoted[HEED__QUOTED];
  const size_t bytes = heed__array_bytes((uint64_t)count, sizeof(heed__name));
  heed__name *names = heed__allocate(ctx, bytes);
  if (names == NULL) return heed__fail_memory(ctx, "save", bytes);
  for (int64_t i = 0; i < count; i++) names[i] = (heed__name){texts[i * step], i};
  const char *duplicate;
  const heed_status status = heed__sort_names(ctx, "save", names, count, &duplicate);
  heed__release(ctx, names);
  if (status != HEED_OK || duplicate == NULL) return status;
  return heed__fail(ctx, HEED_ARGUMENT, "save: duplicate %s %s", what,
                    heed__quoted(quoted, duplicate, false));
}

/* Saves tensors by name in a format that is known, or NULL: that of the path. */
static heed_status save_archive(heed_context *ctx, const char *path, const heed__format *format,
                                const heed__contents *c) {
  const heed__format *found = format != NULL ? format : format_of_path(path);
  const bool typed = c->values != NULL;
  heed_status status = check_contents(ctx, c, found != NULL && found->blocks);
  if (status == HEED_OK) status = check_distinct(ctx, "name", c->count, 1, c->names);
  if (status == HEED_OK)
    status = check_distinct(ctx, "metadata key", c->pairs, typed ? 1 : 2, typed ? c->keys : c->metadata);
  if (status == HEED_OK && format == NULL)
    status = format_to_save(ctx, path, saves_names, "tensors by name", &found);
  if (status == HEED_OK && format == NULL && c->pairs > 0)
    status = format_to_save(ctx, path, saves_metadata, "metadata", &found);
  return status == HEED_OK ? save_contents(ctx, path, found, c) : status;
}

heed_status heed_save_archive(heed_context *ctx, const char *path, int64_t count, const char *const *names,
                              const heed_tensor *const *tensors, int64_t pairs, const char *const *metadata) {
  HEED__ENTER(ctx, "save", path);
  const heed__contents contents = {count, names, tensors, pairs, metadata, NULL, NULL};
  return save_archive(ctx, path, NULL, &contents);
}

heed_status heed_save_gguf(heed_context *ctx, const char *path, int64_t count, const char *const *names,
                           const heed_tensor *const *tensors, int64_t pairs, const char *const *keys,
                           const heed_gguf_value *values) {
  HEED__ENTER(ctx, "save", path);
#if HEED_MINIMAL
  (void)count, (void)names, (void)tensors, (void)pairs, (void)keys, (void)values;
  return heed__fail(ctx, HEED_ARGUMENT,
                    "save: this build of heed has no GGUF; it must be compiled without HEED_MINIMAL");
#else
  if (pairs > 0 && values == NULL) return heed__refuse_pointer(ctx, "save", "values", NULL);
  const heed__contents contents = {count, names, tensors, pairs, NULL, keys, values};
  return save_archive(ctx, path, &heed__format_gguf, &contents);
#endif
}
