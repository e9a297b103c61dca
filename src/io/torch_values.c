/* The values in a file of torch.save: tensors, under dotted names if dicts and lists are nested; numbers and
 * texts are metadata. Source: torch/_utils.py. */
#include <stdio.h>
#include <string.h>

#include "torch.h"

#define MOST_LEVELS  64   /* of nesting */
#define LONGEST_NAME 1024 /* of a tensor, in bytes */

heed_status heed__fail_torch(const heed__torch_file *f, const char *problem) {
  return heed__fail_file(f->where, "%s", problem);
}

heed__torch_storage *heed__torch_find_storage(const heed__torch_file *f, const heed__pickle_value *key) {
  int64_t low = 0, high = f->count;
  if (memchr(key->text, '\0', key->length) != NULL) return NULL;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const char *name = f->names[middle].name;
    int order = strncmp(name, key->text, key->length);
    if (order == 0) order = name[key->length] != '\0';
    if (order == 0) return &f->storages[f->names[middle].index];
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

/* ---- Tensors ---- */

/* The name of a global without its module, if that begins with "torch", else NULL. */
static const char *torch_name(const heed__pickle_value *global, char out[64]) {
  const char *line = global->kind == HEED__PICKLE_GLOBAL ? memchr(global->text, '\n', global->length) : NULL;
  const size_t length = line != NULL ? global->length - (size_t)(line + 1 - global->text) : 64;
  if (length >= 64 || global->length < 5 || memcmp(global->text, "torch", 5) != 0) return NULL;
  memcpy(out, line + 1, length);
  out[length] = '\0';
  return out;
}

heed_status heed__torch_read_storage(const heed__torch_file *f, const heed__pickle_value *value,
                                     const heed__stored **stored, const heed__pickle_value **key,
                                     int64_t *count) {
  char name[64];
  const heed__pickle_value *part[5] = {NULL};
  for (int i = 0; i < 5 && value != NULL && value->kind == HEED__PICKLE_OUTSIDE; i++)
    part[i] = heed__pickle_item_at(&f->pickle, heed__pickle_at(&f->pickle, value->first), i);
  if (part[4] == NULL || !heed__pickle_is(part[0], HEED__PICKLE_TEXT, "storage") ||
      part[2]->kind != HEED__PICKLE_TEXT || part[4]->kind != HEED__PICKLE_INTEGER || part[4]->integer < 0 ||
      torch_name(part[1], name) == NULL)
    return heed__fail_torch(f, "a tensor has no storage that heed can read");
  const heed__pickle_value *view =
      heed__pickle_item_at(&f->pickle, heed__pickle_at(&f->pickle, value->first), 5);
  if (view != NULL && view->kind != HEED__PICKLE_NONE)
    return heed__fail_torch(f,
                            "a tensor has a storage that is a part of another one, which heed cannot read");
  *stored = heed__stored_named(HEED__IN_STORAGE, name);
  *key = part[2];
  *count = part[4]->integer;
  if (*stored != NULL || strcmp(name, "UntypedStorage") == 0) return HEED_OK;
  return heed__fail_file(f->where, "a tensor has a %s, which heed cannot read", name);
}

/* Stores the integers from 0 of a tuple; false if it is anything else. */
static bool read_torch_sizes(const heed__torch_file *f, const heed__pickle_value *list, int64_t *out,
                             int *count) {
  if (list->kind != HEED__PICKLE_LIST || list->integer > HEED_MAX_DIMS) return false;
  heed__pickle_id item = list->first;
  for (*count = 0; item != 0; ++*count) {
    const heed__pickle_value *size = heed__pickle_at(&f->pickle, heed__pickle_next(&f->pickle, &item));
    if (size->kind != HEED__PICKLE_INTEGER || size->integer < 0) return false;
    out[*count] = size->integer;
  }
  return true;
}

/* Whether the elements lie in the first `count` elements of a storage. */
static bool lies_inside(int64_t offset, int ndim, const int64_t *shape, const int64_t *stride,
                        int64_t count) {
  for (int d = 0; d < ndim; d++) {
    if (shape[d] == 0) return true;
  }
  if (offset >= count) return false;
  for (int d = 0; d < ndim; d++) {
    const int64_t left = count - 1 - offset, steps = shape[d] - 1;
    if (steps > 0 && stride[d] > left / steps) return false;
    offset += steps * stride[d];
  }
  return true;
}

/* Fills an entry with a tensor: a call of torch._utils._rebuild_tensor_v2(storage, offset, size, stride, …)
 * or _v3, which has the dtype as argument 7. `stride` has a capacity of HEED_MAX_DIMS. */
static heed_status read_torch_tensor(const heed__torch_file *f, const heed__pickle_value *call,
                                     heed__entry *entry, int64_t *stride) {
  const heed__pickle *p = &f->pickle;
  const heed__pickle_value *arguments = heed__pickle_at(p, call->last), *argument[4], *key;
  int64_t count;
  int strides;
  char name[64];
  for (int i = 0; i < 4; i++) argument[i] = heed__pickle_item_at(p, arguments, i);
  if (argument[3] == NULL || argument[1]->kind != HEED__PICKLE_INTEGER || argument[1]->integer < 0 ||
      !read_torch_sizes(f, argument[2], entry->shape, &entry->ndim) ||
      !read_torch_sizes(f, argument[3], stride, &strides) || strides != entry->ndim)
    return heed__fail_torch(f, "a tensor has no valid offset, sizes and strides");
  heed_status status = heed__torch_read_storage(f, argument[0], &entry->stored, &key, &count);
  if (status != HEED_OK) return status;
  const heed__pickle_value *dtype = heed__pickle_item_at(p, arguments, 6);
  if (dtype != NULL && torch_name(dtype, name) != NULL)
    entry->stored = heed__stored_named(HEED__IN_TORCH, name);
  if (entry->stored == NULL) return heed__fail_torch(f, "a tensor has a dtype that heed does not know");
  const heed__torch_storage *storage = heed__torch_find_storage(f, key);
  if (storage == NULL)
    return heed__fail_torch(f, "the storage of a tensor is missing: the file is cut short");
  const int64_t width = entry->stored->bits / 8, offset = argument[1]->integer;
  if (!lies_inside(offset, entry->ndim, entry->shape, stride, (int64_t)(storage->bytes / (size_t)width)))
    return heed__fail_torch(f, "a tensor reaches beyond the end of its storage");
  if (heed__numel(entry->ndim, entry->shape, (size_t)width) < 0)
    return heed__fail_torch(f, "a tensor is larger than the address space");
  const bool empty = heed__numel(entry->ndim, entry->shape, 1) == 0;
  entry->stride = stride;
  entry->reversed = width > 1 && f->big_endian == heed__is_little_endian();
  entry->data = f->map->data + storage->at + (empty ? 0 : (size_t)offset * (size_t)width);
  entry->map = f->map;
  f->map->references++;
  return HEED_OK;
}

/* The call that makes a tensor, inside of those that make a parameter or a subclass of it; NULL for other
 * values. */
static const heed__pickle_value *tensor_call(const heed__torch_file *f, const heed__pickle_value *value) {
  const heed__pickle *p = &f->pickle;
  for (int level = 0; level < 8 && value != NULL && value->kind == HEED__PICKLE_CALL; level++) {
    char name[64];
    const heed__pickle_value *arguments = heed__pickle_at(p, value->last);
    if (torch_name(heed__pickle_at(p, value->first), name) == NULL) return NULL;
    if (strcmp(name, "_rebuild_tensor_v2") == 0 || strcmp(name, "_rebuild_tensor_v3") == 0 ||
        strcmp(name, "_rebuild_tensor") == 0)
      return value;
    if (strncmp(name, "_rebuild_parameter", 18) != 0) return NULL;
    value = heed__pickle_item_at(p, arguments, 0);
  }
  return NULL;
}

/* ---- Names ---- */

/* Walks over the values: first it counts, then, with an archive, it fills that. */
typedef struct torch_walk {
  const heed__torch_file *file;
  heed_archive *archive;
  int64_t count, pairs, visits;
  size_t text;
  char name[LONGEST_NAME + 1];
} torch_walk;

static heed_status fail_torch_value(const torch_walk *w, const char *problem) {
  char quoted[HEED__QUOTED];
  return heed__fail_file(w->file->where, "the value %s %s", heed__quoted(quoted, w->name, false), problem);
}

/* An object of a class, whose name is "module\nname". Before PyTorch 1.6 classes of modules are described as
 * ('module', class, …). */
static heed_status fail_class(const torch_walk *w, const heed__pickle_value *global) {
  static const heed__pickle_value unknown = {.kind = HEED__PICKLE_GLOBAL, .text = "unknown", .length = 7};
  const heed__pickle *pickle = &w->file->pickle;
  char name[128], quoted[HEED__QUOTED];
  if (global->kind == HEED__PICKLE_OUTSIDE)
    global = heed__pickle_item_at(pickle, heed__pickle_at(pickle, global->first), 1);
  if (global == NULL || global->kind != HEED__PICKLE_GLOBAL) global = &unknown;
  const size_t length = global->length < sizeof(name) - 1 ? global->length : sizeof(name) - 1;
  memcpy(name, global->text, length);
  name[length] = '\0';
  for (char *p = name; *p != '\0'; p++) {
    if (*p == '\n') *p = '.';
  }
  return heed__fail_file(
      w->file->where,
      "it holds an object of Python, %s, and heed runs no code of files; in Python, save its "
      "tensors alone: torch.save(model.state_dict(), path)",
      heed__quoted(quoted, name, false));
}

static heed_status add_torch_tensor(torch_walk *w, const heed__pickle_value *call) {
  w->text += strlen(w->name) + 1;
  if (w->archive == NULL) {
    w->count++;
    return HEED_OK;
  }
  heed__entry *entry = &w->archive->entries[w->count];
  entry->name = heed__archive_text(w->archive, w->name);
  return read_torch_tensor(w->file, call, entry, w->archive->strides + HEED_MAX_DIMS * w->count++);
}

/* Numbers and texts go into the metadata. */
static heed_status add_torch_text(torch_walk *w, const heed__pickle_value *value) {
  char number[32] = "";
  const char *text = number;
  size_t length;
  if (value->kind == HEED__PICKLE_TEXT) {
    text = value->text;
    if (memchr(text, '\0', value->length) != NULL || heed__text_check(text, value->length) > 0)
      return HEED_OK;
  } else if (value->kind == HEED__PICKLE_FLOAT) {
    heed__write_number(number, sizeof(number), 'g', 17, value->number);
  } else if (value->kind == HEED__PICKLE_BOOLEAN) {
    text = value->integer ? "true" : "false";
  } else {
    snprintf(number, sizeof(number), "%lld", (long long)value->integer);
  }
  length = value->kind == HEED__PICKLE_TEXT ? value->length : strlen(text);
  w->text += strlen(w->name) + length + 2;
  if (w->archive != NULL) {
    w->archive->metadata[2 * w->pairs] = heed__archive_text(w->archive, w->name);
    char *copy = w->archive->text + w->archive->text_used;
    memcpy(copy, text, length);
    copy[length] = '\0';
    w->archive->metadata[2 * w->pairs + 1] = copy;
    w->archive->text_used += length + 1;
  }
  w->pairs++;
  return HEED_OK;
}

/* Appends ".key" to the name. */
static heed_status append_torch_key(torch_walk *w, const heed__pickle_value *key, int64_t number) {
  char digits[32];
  const size_t used = strlen(w->name), dot = used > 0;
  const char *text = digits;
  size_t length = (size_t)snprintf(digits, sizeof(digits), "%lld", (long long)number);
  if (key != NULL && key->kind == HEED__PICKLE_TEXT) {
    text = key->text;
    length = key->length;
    if (memchr(text, '\0', length) != NULL || heed__text_check(text, length) > 0)
      return fail_torch_value(w, "has a key that is not UTF-8 without zero bytes");
  } else if (key != NULL && key->kind != HEED__PICKLE_INTEGER && key->kind != HEED__PICKLE_BOOLEAN) {
    return fail_torch_value(w, "has a key that is neither a text nor an integer");
  }
  if (length > LONGEST_NAME || used + dot + length > LONGEST_NAME)
    return fail_torch_value(w, "has a name that is too long");
  if (dot) w->name[used] = '.';
  memcpy(w->name + used + dot, text, length);
  w->name[used + dot + length] = '\0';
  return HEED_OK;
}

static heed_status visit_torch_value(torch_walk *w, const heed__pickle_value *value, int level);

static heed_status visit_torch_items(torch_walk *w, const heed__pickle_value *value, int level) {
  const heed__pickle *p = &w->file->pickle;
  const size_t used = strlen(w->name);
  if (level == MOST_LEVELS) return fail_torch_value(w, "is nested too deeply");
  heed_status status = HEED_OK;
  int64_t number = 0;
  for (heed__pickle_id item = value->first; item != 0 && status == HEED_OK; number++) {
    const bool dict = value->kind == HEED__PICKLE_DICT;
    const heed__pickle_value *key = dict ? heed__pickle_at(p, heed__pickle_next(p, &item)) : NULL;
    const heed__pickle_value *inner = heed__pickle_at(p, heed__pickle_next(p, &item));
    status = append_torch_key(w, key, dict ? key->integer : number);
    if (status == HEED_OK) status = visit_torch_value(w, inner, level + 1);
    w->name[used] = '\0';
  }
  return status;
}

static heed_status visit_torch_value(torch_walk *w, const heed__pickle_value *value, int level) {
  const heed__pickle *p = &w->file->pickle;
  const heed__pickle_value *call = tensor_call(w->file, value);
  char name[64];
  /* values that occur several times are visited as often: each takes bytes in the file, unless it is an
   * attack */
  if (++w->visits > (int64_t)p->bytes) return fail_torch_value(w, "occurs too often");
  if (heed__is_due_at(&p->ctx->pace, w->visits)) {
    const heed_status status = heed__stopped(p->ctx, "load");
    if (status != HEED_OK) return status;
  }
  if (call != NULL) return add_torch_tensor(w, call);
  switch (value->kind) {
  case HEED__PICKLE_LIST:
  case HEED__PICKLE_DICT: return visit_torch_items(w, value, level);
  case HEED__PICKLE_BOOLEAN:
  case HEED__PICKLE_INTEGER:
  case HEED__PICKLE_FLOAT:
  case HEED__PICKLE_TEXT: return add_torch_text(w, value);
  case HEED__PICKLE_GLOBAL:
    return torch_name(value, name) != NULL ? HEED_OK : fail_class(w, value); /* a dtype */
  case HEED__PICKLE_CALL:
    value = heed__pickle_at(p, value->first);
    if (heed__pickle_is(value, HEED__PICKLE_GLOBAL, "torch\nSize") ||
        heed__pickle_is(value, HEED__PICKLE_GLOBAL, "torch\ndevice") ||
        heed__pickle_is(value, HEED__PICKLE_GLOBAL, "_codecs\nencode"))
      return HEED_OK;
    return fail_class(w, value);
  case HEED__PICKLE_NONE:
  case HEED__PICKLE_OTHER:
  case HEED__PICKLE_OUTSIDE:
  case HEED__PICKLE_MARK: break;
  }
  return HEED_OK;
}

static heed_status walk_values(const heed__torch_file *f, torch_walk *w, heed_archive *archive) {
  *w = (torch_walk){.file = f, .archive = archive};
  return visit_torch_value(w, heed__pickle_at(&f->pickle, f->pickle.root), 0);
}

heed_status heed__torch_load_values(const heed__torch_file *f, heed__loaded *out) {
  torch_walk w;
  heed_archive *archive = NULL;
  heed_status status = walk_values(f, &w, NULL);
  if (status == HEED_OK && w.count == 0) status = heed__fail_torch(f, "it holds no tensors");
  if (status == HEED_OK) status = heed__archive_new(f->where, w.count, w.pairs, w.text, &archive);
  if (status != HEED_OK) return status;
  const size_t bytes = heed__array_bytes((uint64_t)w.count, HEED_MAX_DIMS * sizeof(int64_t));
  archive->nested = true;
  archive->strides = heed__allocate(f->where->ctx, bytes);
  status = archive->strides != NULL ? walk_values(f, &w, archive)
                                    : heed__fail_memory(f->where->ctx, "load", bytes);
  if (status == HEED_OK) status = heed__archive_sort(archive, f->where);
  if (status == HEED_OK && tensor_call(f, heed__pickle_at(&f->pickle, f->pickle.root)) != NULL) {
    status = heed__entry_open(archive, &archive->entries[0], &out->tensor);
  } else if (status == HEED_OK) {
    out->archive = archive;
    archive = NULL;
  }
  heed_archive_free(archive);
  return status;
}
