/* Reading files: which are opened, what messages call them, and mapping. */
#define _DEFAULT_SOURCE   /* MAP_NORESERVE */
#define _FILE_OFFSET_BITS 64

#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
  if (strerror_r(error, text, sizeof(text)) != 0) snprintf(text, sizeof(text), "error %d", error);
  return heed__broken(place, "%s: %s", what, text);
}

/* ---- Reading ---- */

heed__path_kind heed__path_kind_of(const char *path) {
  struct stat found;
  if (stat(path, &found) != 0) return HEED__NOTHING;
  return S_ISREG(found.st_mode) ? HEED__REGULAR : S_ISDIR(found.st_mode) ? HEED__DIRECTORY : HEED__SPECIAL;
}

heed_status heed__file_open(const heed__place *place, const char *path, int *fd, int64_t *size) {
  struct stat found;
  int opened;
  do
    opened = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* a pipe does not wait for a writer */
  while (opened < 0 && errno == EINTR);
  if (opened < 0) return heed__broken_by(place, "cannot be opened", errno);
  heed_status status = HEED_OK;
  if (fstat(opened, &found) != 0)
    status = heed__broken_by(place, "cannot be read", errno);
  else if (S_ISDIR(found.st_mode))
    status = heed__broken(place, "is a folder; the path of a file is needed");
  else if (!S_ISREG(found.st_mode))
    status = heed__broken(place, "is a device or a pipe; a file is needed");
  if (status != HEED_OK) {
    close(opened);
    return status;
  }
  *fd = opened;
  *size = (int64_t)found.st_size;
  return HEED_OK;
}

void heed__file_close(int fd) {
  close(fd);
}

heed_status heed__file_read(const heed__place *place, int fd, int64_t offset, void *out, size_t bytes) {
  const size_t most = (size_t)1 << 30; /* in one call */
  char *p = out;
  while (bytes > 0) {
    const ssize_t n = pread(fd, p, bytes < most ? bytes : most, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return heed__broken_by(place, "cannot be read", errno);
    if (n == 0) return heed__broken(place, "ends after %lld bytes, while it is read", (long long)offset);
    p += n;
    offset += n;
    bytes -= (size_t)n;
  }
  return HEED_OK;
}

/* ---- Mapping ---- */

static void unmap(heed__outside *thing) {
  heed__file_map *map = (heed__file_map *)thing;
  munmap(map->data, map->size);
}

heed_status heed__file_map_open(const heed__place *place, const char *path, heed__file_map **out) {
  int fd;
  int64_t size;
  heed__file_map *map = NULL;
  heed_status status = heed__file_open(place, path, &fd, &size);
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
  /* Private, so that what is written stays in memory; not reserved, since hardly any of it will be. */
  void *data = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) {
    status = heed__broken_by(place, "cannot be mapped", errno);
    goto done;
  }
  *map = (heed__file_map){.ctx = place->ctx, .references = 1, .data = data, .size = (size_t)size};
  heed__outside_add(place->ctx, &map->outside, unmap);
  *out = map;
  map = NULL;
done:
  heed__release(place->ctx, map);
  close(fd);
  return status;
}

void heed__file_map_release(heed__file_map *map) {
  if (map == NULL || --map->references > 0) return;
  heed__outside_remove(map->ctx, &map->outside);
  heed__release(map->ctx, map);
}
