/* Error contexts; opening, reading and mapping files. */
#include "files.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Error contexts ---- */

#define SHOWN ((size_t)HEED__QUOTED - 8) /* without quotes, dots and the closing zero */

const char *heed__quoted(char out[HEED__QUOTED], const char *name, bool path) {
  static const char digits[] = "0123456789abcdef";
  size_t length = strlen(name), used = 0;
  const bool cut = length > SHOWN;
  out[used++] = '\'';
  if (cut && path) {
    name += length - (SHOWN - 3);
    while (((unsigned char)*name & 0xc0) == 0x80) name++; /* to the start of a character */
    length = strlen(name);
    memcpy(out + used, "...", 3);
    used += 3;
  }
  const size_t invalid = heed__text_check(name, length), valid = invalid > 0 ? invalid - 1 : length;
  size_t i = 0;
  for (; i < length; i++) {
    const unsigned char byte = (unsigned char)name[i];
    const bool plain = byte >= ' ' && byte != 127 && (byte < 128 || i < valid);
    if (used + (plain ? 1 : 4) > SHOWN + 1) break;
    if (plain) {
      out[used++] = name[i];
    } else {
      const char escape[] = {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
      memcpy(out + used, escape, sizeof(escape));
      used += sizeof(escape);
    }
  }
  if (i < length) {
    while (((unsigned char)name[i] & 0xc0) == 0x80 && i < valid) i--, used--;
    memcpy(out + used, "...", 3);
    used += 3;
  }
  out[used++] = '\'';
  out[used] = '\0';
  return out;
}

void heed__where_init(heed__where *where, heed_context *ctx, const char *function, const char *path) {
  char quoted[HEED__QUOTED];
  where->ctx = ctx;
  snprintf(where->text, sizeof(where->text), "%s: %s", function, heed__quoted(quoted, path, true));
}

void heed__where_inside(heed__where *where, const heed__where *outer, const char *part, const char *name) {
  char quoted[HEED__QUOTED];
  where->ctx = outer->ctx;
  snprintf(where->text, sizeof(where->text), "%.160s, %.12s %s", outer->text, part,
           heed__quoted(quoted, name, false));
}

heed_status heed__fail_file(const heed__where *where, const char *format, ...) {
  char text[HEED__MESSAGE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return heed__fail(where->ctx, HEED_FILE, "%s: %s", where->text, text);
}

heed_status heed__fail_system(const heed__where *where, const char *what, int error) {
  char text[128];
  heed__system_error(error, text, sizeof(text));
  return heed__fail_file(where, "%s: %s", what, text);
}

/* ---- Reading ---- */

heed_status heed__check_load(heed_context *ctx, const void *result) {
  if (result == NULL) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "load: *out already holds a result; it must be NULL");
}

heed_status heed__file_open(const heed__where *where, const char *path, heed__file *out, int64_t *size) {
  heed__file file = HEED__NO_FILE;
  heed__path_kind kind;
  const heed_status status = heed__check_files(where->ctx, where->text);
  if (status != HEED_OK) return status;
  const int error = heed__system_open(path, &file, &kind, size);
  if (error != 0) return heed__fail_system(where, "cannot be opened", error);
  if (kind == HEED__REGULAR) {
    *out = file;
    return HEED_OK;
  }
  heed__system_close(file);
  return heed__fail_file(where, "is a %s; it must be a file",
                         kind == HEED__DIRECTORY ? "folder" : "device or a pipe");
}

heed_status heed__file_read(const heed__where *where, heed__file file, int64_t offset, void *out,
                            size_t bytes) {
  char *p = out;
  const heed_status charged = heed__charge(where->ctx, "load", (double)bytes);
  if (charged != HEED_OK) return charged;
  while (bytes > 0) {
    size_t n;
    if (heed__is_due(&where->ctx->pace)) {
      const heed_status status = heed__stopped(where->ctx, "load");
      if (status != HEED_OK) return status;
    }
    const int error = heed__system_read(file, offset, p, bytes < HEED__IO_CHUNK ? bytes : HEED__IO_CHUNK, &n);
    if (error != 0) return heed__fail_system(where, "cannot be read", error);
    if (n == 0)
      return heed__fail_file(where, "was cut short to %lld byte%s while it was read", (long long)offset,
                             HEED__S(offset));
    p += n;
    offset += (int64_t)n;
    bytes -= n;
  }
  return HEED_OK;
}

heed_status heed__load_bytes(heed_context *ctx, const char *path, heed_tensor **out) {
  heed__where where;
  heed__file file = HEED__NO_FILE;
  heed_tensor *x = NULL;
  int64_t size;
  heed__where_init(&where, ctx, "load", path);
  heed_status status = heed__file_open(&where, path, &file, &size);
  if (status != HEED_OK) return status;
  status = heed__tensor_new(ctx, "load", HEED_INT8, 1, &size, &x);
  if (status == HEED_OK) status = heed__file_read(&where, file, 0, x->data, (size_t)size);
  heed__system_close(file);
  if (status == HEED_OK) {
    *out = x;
  } else {
    heed_tensor_free(x);
  }
  return status;
}

/* ---- Mapping ---- */

static void unmap(heed__external *external) {
  heed__file_map *map = (heed__file_map *)external;
  if (map->copied) {
    heed__release(map->ctx, map->data);
  } else {
    heed__system_unmap(map->data, map->size);
  }
}

/* The contents of a file: mapped, or copied if the limits do not allow that. */
static heed_status take_contents(const heed__where *where, heed__file file, heed__file_map *map) {
  heed_context *ctx = where->ctx;
  if (!heed__maps_files(&ctx->limits)) {
    map->data = heed__allocate(ctx, map->size);
    if (map->data == NULL) return heed__fail_memory(ctx, "load", map->size);
    const heed_status status = heed__file_read(where, file, 0, map->data, map->size);
    if (status != HEED_OK) heed__release(ctx, map->data);
    map->copied = true;
    return status;
  }
  const heed_status status = heed__charge(ctx, "load", (double)map->size);
  if (status != HEED_OK) return status;
  const int error = heed__system_map(file, map->size, &map->data);
  return error != 0 ? heed__fail_system(where, "cannot be mapped", error) : HEED_OK;
}

heed_status heed__file_map_open(const heed__where *where, const char *path, heed__file_map **out) {
  heed__file file = HEED__NO_FILE;
  int64_t size;
  heed__file_map *map = NULL;
  heed_status status = heed__is_due(&where->ctx->pace) ? heed__stopped(where->ctx, "load") : HEED_OK;
  if (status == HEED_OK) status = heed__file_open(where, path, &file, &size);
  if (status != HEED_OK) return status;
  if (size == 0) {
    status = heed__fail_file(where, "is empty");
    goto done;
  }
  if ((uint64_t)size > PTRDIFF_MAX) {
    status = heed__fail_file(where, "has %lld bytes, more than the address space", (long long)size);
    goto done;
  }
  map = heed__allocate(where->ctx, sizeof(*map));
  if (map == NULL) {
    status = heed__fail_memory(where->ctx, "load", sizeof(*map));
    goto done;
  }
  *map = (heed__file_map){.ctx = where->ctx, .references = 1, .size = (size_t)size};
  status = take_contents(where, file, map);
  if (status != HEED_OK) goto done;
  heed__external_add(where->ctx, &map->external, unmap);
  *out = map;
  map = NULL;
done:
  heed__release(where->ctx, map);
  heed__system_close(file);
  return status;
}

void heed__file_map_release(heed__file_map *map) {
  if (map == NULL || --map->references > 0) return;
  heed__external_remove(map->ctx, &map->external);
  heed__release(map->ctx, map);
}
