/* Writing files whole or not at all: into a new file in the same folder, which then takes the name. */
#define _XOPEN_SOURCE     700 /* realpath */
#define _FILE_OFFSET_BITS 64

#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define BUFFER HEED__WRITER_ROOM

/* ---- Beginning and end ---- */

/* The file that is to be replaced, all links followed, and its rights (0: there is none yet). */
static heed_status find_target(heed__writer *w, const char *path, mode_t *mode) {
  struct stat found;
  const size_t length = strlen(path);
  if (length >= sizeof(w->path)) return heed__broken_by(&w->place, "cannot be written", ENAMETOOLONG);
  *mode = 0;
  if (stat(path, &found) != 0) {
    if (errno != ENOENT) return heed__broken_by(&w->place, "cannot be written", errno);
    memcpy(w->path, path, length + 1);
    return HEED_OK;
  }
  if (S_ISDIR(found.st_mode)) return heed__broken(&w->place, "is a folder; the path of a file is needed");
  if (!S_ISREG(found.st_mode)) return heed__broken(&w->place, "is a device or a pipe; a file is needed");
  if (access(path, W_OK) != 0 || realpath(path, w->path) == NULL)
    return heed__broken_by(&w->place, "cannot be written", errno);
  *mode = found.st_mode & 0777;
  return HEED_OK;
}

/* Bytes of a path's folder, with the slash. */
static size_t folder_length(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

/* A new file beside the path. What follows from the clock need not be unique: O_EXCL sees to that. */
static heed_status create_temporary(heed__writer *w) {
  const size_t folder = folder_length(w->path);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t number = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + (uint64_t)(uintptr_t)w;
  for (int attempt = 0; attempt < 100; attempt++, number++) {
    const int length = snprintf(w->temporary, sizeof(w->temporary), "%.*s.heed-%ld-%016llx.tmp", (int)folder,
                                w->path, (long)getpid(), (unsigned long long)number);
    if (length < 0 || (size_t)length >= sizeof(w->temporary)) {
      errno = ENAMETOOLONG;
      break;
    }
    do w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    while (w->fd < 0 && errno == EINTR);
    if (w->fd >= 0) return HEED_OK;
    if (errno != EEXIST) break;
  }
  return heed__broken_by(&w->place, "cannot be written: no new file can be made in its folder", errno);
}

heed_status heed__writer_begin(heed__writer *w, heed_context *ctx, const char *path) {
  mode_t mode;
  heed__place_init(&w->place, ctx, "save", path);
  w->fd = -1;
  w->used = 0;
  w->at = 0;
  w->buffer = NULL;
  heed_status status = find_target(w, path, &mode);
  if (status != HEED_OK) return status;
  w->buffer = heed__allocate(ctx, 2 * BUFFER);
  if (w->buffer == NULL) return heed__fail_memory(ctx, "save", 2 * BUFFER);
  w->pieces = w->buffer + BUFFER;
  status = create_temporary(w);
  if (status == HEED_OK && mode != 0 && fchmod(w->fd, mode) != 0)
    status = heed__broken_by(&w->place, "cannot be written", errno);
  return status == HEED_OK ? status : heed__writer_end(w, status);
}

static heed_status write_all(heed__writer *w, const char *data, size_t bytes) {
  const size_t most = (size_t)1 << 30; /* in one call */
  while (bytes > 0) {
    const ssize_t n = pwrite(w->fd, data, bytes < most ? bytes : most, (off_t)w->at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return heed__broken_by(&w->place, "cannot be written", n < 0 ? errno : ENOSPC);
    data += n;
    bytes -= (size_t)n;
    w->at += (uint64_t)n;
  }
  return HEED_OK;
}

static heed_status flush(heed__writer *w) {
  const size_t used = w->used;
  w->used = 0;
  return write_all(w, w->buffer, used);
}

/* Makes the new name last, too. What cannot be done here is no failure: the file is whole and in its place.
 */
static void sync_folder(heed__writer *w) {
  w->path[folder_length(w->path)] = '\0';
  const int fd = open(w->path[0] != '\0' ? w->path : ".", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  if (fd < 0) return;
  (void)fsync(fd);
  close(fd);
}

/* The file's bytes on the disk, and its name. Some file systems have no fsync: EINVAL. */
static heed_status finish(heed__writer *w) {
  heed_status status = flush(w);
  if (status != HEED_OK) return status;
  int failed;
  do failed = fsync(w->fd);
  while (failed != 0 && errno == EINTR);
  if (failed != 0 && errno != EINVAL) return heed__broken_by(&w->place, "cannot be written", errno);
  const int fd = w->fd;
  w->fd = -1;
  if (close(fd) != 0 && errno != EINTR) return heed__broken_by(&w->place, "cannot be written", errno);
  if (rename(w->temporary, w->path) != 0) return heed__broken_by(&w->place, "cannot be replaced", errno);
  w->temporary[0] = '\0';
  sync_folder(w);
  return HEED_OK;
}

heed_status heed__writer_end(heed__writer *w, heed_status status) {
  if (w->buffer == NULL) return status; /* it was not begun */
  const bool created = w->fd >= 0;
  if (status == HEED_OK) status = finish(w);
  if (w->fd >= 0) close(w->fd);
  if (created && status != HEED_OK && w->temporary[0] != '\0') unlink(w->temporary);
  heed__release(w->place.ctx, w->buffer);
  w->buffer = NULL;
  w->fd = -1;
  return status;
}

/* ---- Writing ---- */

heed_status heed__writer_put(heed__writer *w, const void *data, size_t bytes) {
  if (bytes > BUFFER - w->used) {
    const heed_status status = flush(w);
    if (status != HEED_OK) return status;
    if (bytes >= BUFFER) return write_all(w, data, bytes);
  }
  if (bytes > 0) memcpy(w->buffer + w->used, data, bytes);
  w->used += bytes;
  return HEED_OK;
}

heed_status heed__writer_seek(heed__writer *w, uint64_t offset) {
  if (offset == w->at + w->used) return HEED_OK;
  const heed_status status = flush(w);
  w->at = offset;
  return status;
}

uint64_t heed__writer_at(const heed__writer *w) {
  return w->at + w->used;
}

/* ---- Tensors as bytes ---- */

void heed__reverse_bytes(void *data, int64_t count, size_t width) {
  char *p = data;
  for (; count > 0; count--, p += width) {
    for (size_t i = 0; i < width / 2; i++) {
      const char byte = p[i];
      p[i] = p[width - 1 - i];
      p[width - 1 - i] = byte;
    }
  }
}

/* Whether x's memory is what stands in a file. A bool of a host's may be any byte. */
static bool is_as_in_file(const heed_tensor *x) {
  return x->dtype != HEED_BOOL && heed__is_little_endian() && heed_tensor_is_contiguous(x);
}

void heed__pieces_begin(heed__pieces *p, const heed_tensor *x, void *buffer, size_t room) {
  const size_t width = heed__element_bytes(x->dtype);
  *p = (heed__pieces){.buffer = buffer, .more = x->numel > 0, .whole = is_as_in_file(x)};
  heed__alias_on_stack(&p->x, x);
  if (x->ndim == 0) {
    p->x.ndim = 1;
    p->x.shape[0] = p->x.stride[0] = 1;
  }
  if (!p->more || p->whole) return;
  int64_t inner = 1; /* elements of the dimensions that are copied whole */
  int d = p->x.ndim - 1;
  for (; d > 0 && inner * p->x.shape[d] <= (int64_t)(room / width); d--) inner *= p->x.shape[d];
  p->dim = d;
  p->step = (int64_t)(room / width) / inner;
}

/* On to the next piece: `count` further in the divided dimension, or in one before it. */
static void advance(heed__pieces *p, int64_t count) {
  p->at[p->dim] += count;
  for (int d = p->dim; p->at[d] == p->x.shape[d]; d--) {
    p->at[d] = 0;
    if (d == 0) {
      p->more = false;
      return;
    }
    p->at[d - 1]++;
  }
}

/* Copied all at once, so that a transpose is made in blocks. */
bool heed__pieces_next(heed__pieces *p) {
  const size_t width = heed__element_bytes(p->x.dtype);
  if (!p->more) return false;
  if (p->whole) {
    p->data = p->x.data;
    p->bytes = (size_t)p->x.numel * width;
    p->more = false;
    return true;
  }
  heed_tensor from, to;
  heed__alias_on_stack(&from, &p->x);
  from.ndim -= p->dim;
  from.numel = 1;
  for (int d = 0; d <= p->dim; d++) from.data += (size_t)(p->at[d] * p->x.stride[d]) * width;
  for (int d = 0; d < from.ndim; d++) {
    const int64_t size = p->x.shape[p->dim + d], left = size - p->at[p->dim + d];
    from.shape[d] = d > 0 || p->step > left ? left : p->step;
    from.stride[d] = p->x.stride[p->dim + d];
    from.numel *= from.shape[d];
  }
  heed__alias_on_stack(&to, &from);
  to.data = p->buffer;
  heed__row_major(to.ndim, to.shape, to.stride);
  heed__copy_elements(&to, &from);
  uint8_t *flag = p->buffer;
  for (int64_t i = 0; from.dtype == HEED_BOOL && i < from.numel; i++) flag[i] = flag[i] != 0;
  if (!heed__is_little_endian()) heed__reverse_bytes(p->buffer, from.numel, width);
  p->data = p->buffer;
  p->bytes = (size_t)from.numel * width;
  advance(p, from.shape[0]);
  return true;
}

/* An expanded tensor may be larger than any disk: better told at once than when the disk is full. */
static heed_status check_room(heed__writer *w, const heed_tensor *x) {
  struct statvfs disk;
  const double bytes = (double)x->numel * (double)heed__element_bytes(x->dtype);
  if (fstatvfs(w->fd, &disk) != 0 || bytes <= (double)disk.f_bavail * (double)disk.f_frsize) return HEED_OK;
  return heed__broken_by(&w->place, "cannot be written", ENOSPC);
}

heed_status heed__writer_put_tensor(heed__writer *w, const heed_tensor *x) {
  heed__pieces pieces;
  heed_status status = check_room(w, x);
  heed__pieces_begin(&pieces, x, w->pieces, BUFFER);
  while (status == HEED_OK && heed__pieces_next(&pieces))
    status = heed__writer_put(w, pieces.data, pieces.bytes);
  return status;
}
