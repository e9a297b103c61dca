/* Reading files: which are opened, what messages call them, and mapping. */
#include "files.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Messages ---- */

/* Of a text, without the quotes and the dots for what is left out. */
#define SHOWN ((size_t)HEED__QUOTED - 8)

const char *heed__quoted(char out[HEED__QUOTED], const char *name, bool path) {
  static const char digits[] = "0123456789abcdef";
  size_t length = strlen(name), used = 0;
  const bool cut = length > SHOWN;
  out[used++] = '\'';
  if (cut && path) {
    name += length - (SHOWN - 3);
    while (((unsigned char)*name & 0xc0) == 0x80) name++; /* from the start of a character */
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

void heed__place_init(heed__place *place, heed_context *ctx, const char *function, const char *path) {
  char quoted[HEED__QUOTED];
  place->ctx = ctx;
  snprintf(place->text, sizeof(place->text), "%s: %s", function, heed__quoted(quoted, path, true));
}

void heed__place_inside(heed__place *place, const heed__place *outer, const char *what, const char *name) {
  char quoted[HEED__QUOTED];
  place->ctx = outer->ctx;
  snprintf(place->text, sizeof(place->text), "%.160s, %.12s %s", outer->text, what,
           heed__quoted(quoted, name, false));
}

heed_status heed__broken(const heed__place *place, const char *format, ...) {
  char text[HEED__MESSAGE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return heed__fail(place->ctx, HEED_FILE, "%s: %s", place->text, text);
}

heed_status heed__broken_by(const heed__place *place, const char *what, int error) {
  char text[128];
  heed__system_error(error, text, sizeof(text));
  return heed__broken(place, "%s: %s", what, text);
}

/* ---- Reading ---- */

heed_status heed__file_open(const heed__place *place, const char *path, heed__file *out, int64_t *size) {
  heed__file file = HEED__NO_FILE;
  heed__path_kind kind;
  const heed_status status = heed__check_files(place->ctx, place->text);
  if (status != HEED_OK) return status;
  const int error = heed__system_open(path, &file, &kind, size);
  if (error != 0) return heed__broken_by(place, "cannot be opened", error);
  if (kind == HEED__REGULAR) {
    *out = file;
    return HEED_OK;
  }
  heed__system_close(file);
  return heed__broken(place, kind == HEED__DIRECTORY ? "is a folder; the path of a file is needed"
                                                     : "is a device or a pipe; a file is needed");
}

heed_status heed__file_read(const heed__place *place, heed__file file, int64_t offset, void *out,
                            size_t bytes) {
  char *p = out;
  while (bytes > 0) {
    size_t n;
    if (heed__is_due(&place->ctx->pace)) {
      const heed_status status = heed__stopped(place->ctx, "load");
      if (status != HEED_OK) return status;
    }
    const int error = heed__system_read(file, offset, p, bytes < HEED__AT_ONCE ? bytes : HEED__AT_ONCE, &n);
    if (error != 0) return heed__broken_by(place, "cannot be read", error);
    if (n == 0)
      return heed__broken(place, "ends after %lld byte%s, while it is read", (long long)offset,
                          HEED__S(offset));
    p += n;
    offset += (int64_t)n;
    bytes -= n;
  }
  return HEED_OK;
}

heed_status heed__load_bytes(heed_context *ctx, const char *path, heed_tensor **out) {
  heed__place place;
  heed__file file = HEED__NO_FILE;
  heed_tensor *x = NULL;
  int64_t size;
  heed__place_init(&place, ctx, "load", path);
  heed_status status = heed__file_open(&place, path, &file, &size);
  if (status != HEED_OK) return status;
  status = heed__tensor_new(ctx, "load", HEED_INT8, 1, &size, &x);
  if (status == HEED_OK) status = heed__file_read(&place, file, 0, x->data, (size_t)size);
  heed__system_close(file);
  if (status == HEED_OK) {
    *out = x;
  } else {
    heed_tensor_free(x);
  }
  return status;
}

/* ---- Mapping ---- */

static void unmap(heed__outside *thing) {
  heed__file_map *map = (heed__file_map *)thing;
  heed__system_unmap(map->data, map->size);
}

heed_status heed__file_map_open(const heed__place *place, const char *path, heed__file_map **out) {
  heed__file file = HEED__NO_FILE;
  int64_t size;
  char *data;
  heed__file_map *map = NULL;
  heed_status status = heed__is_due(&place->ctx->pace) ? heed__stopped(place->ctx, "load") : HEED_OK;
  if (status == HEED_OK) status = heed__file_open(place, path, &file, &size);
  if (status != HEED_OK) return status;
  if (size == 0) {
    status = heed__broken(place, "is empty");
    goto done;
  }
  if ((uint64_t)size > PTRDIFF_MAX) {
    status = heed__broken(place, "has %lld bytes, too many for this machine's addresses", (long long)size);
    goto done;
  }
  map = heed__allocate(place->ctx, sizeof(*map));
  if (map == NULL) {
    status = heed__fail_memory(place->ctx, "load", sizeof(*map));
    goto done;
  }
  const int error = heed__system_map(file, (size_t)size, &data);
  if (error != 0) {
    status = heed__broken_by(place, "cannot be mapped", error);
    goto done;
  }
  *map = (heed__file_map){.ctx = place->ctx, .references = 1, .data = data, .size = (size_t)size};
  heed__outside_add(place->ctx, &map->outside, unmap);
  *out = map;
  map = NULL;
done:
  heed__release(place->ctx, map);
  heed__system_close(file);
  return status;
}

void heed__file_map_release(heed__file_map *map) {
  if (map == NULL || --map->references > 0) return;
  heed__outside_remove(map->ctx, &map->outside);
  heed__release(map->ctx, map);
}
