/* Writing files whole or not at all: into a new file in the same folder, which then takes the name. */
#include "files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BUFFER HEED__WRITER_ROOM

/* CANCELLED or LIMIT where that is due. */
static heed_status check_writer(const heed__writer *w) {
  return heed__is_due(&w->place.ctx->pace) ? heed__stopped(w->place.ctx, "save") : HEED_OK;
}

/* ---- Beginning and end ---- */

/* The file that is to be replaced, all links followed, and its rights. */
static heed_status find_target(heed__writer *w, const char *path, uint32_t *rights) {
  heed__path_kind kind;
  const int error = heed__system_target(path, w->path, &kind, rights);
  if (error != 0) return heed__broken_by(&w->place, "cannot be written", error);
  if (kind == HEED__DIRECTORY) return heed__broken(&w->place, "is a folder; the path of a file is needed");
  if (kind == HEED__SPECIAL) return heed__broken(&w->place, "is a device or a pipe; a file is needed");
  return HEED_OK;
}

/* w->temporary, whose first `prefix` bytes stay the same, becomes the name with that number. */
static void number_temporary(heed__writer *w, size_t prefix, int number) {
  snprintf(w->temporary + prefix, sizeof(w->temporary) - prefix, "%d.tmp", number);
}

/* Saves take the lowest free number, so the files left behind by killed ones have low numbers, too: listing
 * the folder, which may be large, is not necessary. Saves that have ended since leave gaps between them. */
static heed_status remove_abandoned_files(heed__writer *w, size_t prefix) {
  enum { LONGEST_GAP = 8 };
  for (int number = 0, gap = 0; number < HEED__TEMPORARIES && gap < LONGEST_GAP; number++) {
    const heed_status status = check_writer(w);
    if (status != HEED_OK) return status;
    number_temporary(w, prefix, number);
    gap = heed__system_remove_abandoned(w->temporary) ? 0 : gap + 1;
  }
  return HEED_OK;
}

/* A new file beside the path, .heed-<hash>-<number>.tmp. The hash keeps the saves of different paths apart;
 * the path's name itself may already be as long as names can be. Its key is fixed, so that all processes
 * agree. */
static heed_status create_temporary(heed__writer *w, uint32_t rights) {
  static const uint64_t key[2] = {0, 0};
  const size_t folder = heed__folder_length(w->path);
  const char *name = w->path + folder;
  heed__hasher hasher = heed__hash_begin(key);
  heed__hash_feed(&hasher, name, strlen(name));
  const unsigned long long hash = heed__hash_value(&hasher);
  const int prefix =
      snprintf(w->temporary, sizeof(w->temporary), "%.*s.heed-%016llx-", (int)folder, w->path, hash);
  if (prefix < 0 || (size_t)prefix + sizeof("999.tmp") > sizeof(w->temporary))
    return heed__broken_by(&w->place, "cannot be written: no new file can be made in its folder",
                           ENAMETOOLONG);
  heed_status status = remove_abandoned_files(w, (size_t)prefix);
  int error = EEXIST;
  for (int number = 0; status == HEED_OK && error == EEXIST && number < HEED__TEMPORARIES; number++) {
    number_temporary(w, (size_t)prefix, number);
    error = heed__system_create(w->temporary, rights, &w->file);
    if (error == EEXIST) status = check_writer(w);
  }
  if (status != HEED_OK || error == 0) return status;
  if (error == EEXIST)
    return heed__broken(
        &w->place,
        "cannot be written: its folder already has %d temporary files of this path; delete the "
        "files .heed-%016llx-*.tmp there if no save is running",
        HEED__TEMPORARIES, hash);
  return heed__broken_by(&w->place, "cannot be written: no new file can be made in its folder", error);
}

heed_status heed__writer_begin(heed__writer *w, heed_context *ctx, const char *path) {
  uint32_t rights;
  heed__place_init(&w->place, ctx, "save", path);
  w->file = HEED__NO_FILE;
  w->used = 0;
  w->at = 0;
  w->buffer = NULL;
  heed_status status = heed__check_files(ctx, w->place.text);
  if (status == HEED_OK) status = find_target(w, path, &rights);
  if (status != HEED_OK) return status;
  w->buffer = heed__allocate(ctx, 2 * BUFFER);
  if (w->buffer == NULL) return heed__fail_memory(ctx, "save", 2 * BUFFER);
  w->pieces = w->buffer + BUFFER;
  status = create_temporary(w, rights);
  return status == HEED_OK ? status : heed__writer_end(w, status);
}

static heed_status write_all(heed__writer *w, const char *data, size_t bytes) {
  while (bytes > 0) {
    size_t n;
    const heed_status status = check_writer(w);
    if (status != HEED_OK) return status;
    const int error =
        heed__system_write(w->file, w->at, data, bytes < HEED__AT_ONCE ? bytes : HEED__AT_ONCE, &n);
    if (error != 0) return heed__broken_by(&w->place, "cannot be written", error);
    data += n;
    bytes -= n;
    w->at += n;
  }
  return HEED_OK;
}

static heed_status flush(heed__writer *w) {
  const size_t used = w->used;
  w->used = 0;
  return write_all(w, w->buffer, used);
}

/* Renames the file while it is open: once closed, another save would take it for abandoned. An error of the
 * close would come too late, since the old file is gone by then; heed__system_sync has reported it. */
static heed_status finish(heed__writer *w) {
  heed_status status = flush(w);
  if (status != HEED_OK) return status;
  int error = heed__system_sync(w->file);
  if (error != 0) return heed__broken_by(&w->place, "cannot be written", error);
  error = heed__system_replace(w->file, w->temporary, w->path, &w->place.ctx->pace);
  if (error == 0) return HEED_OK;
  status = check_writer(w); /* the wait for the old file may have ended for that */
  return status != HEED_OK ? status : heed__broken_by(&w->place, "cannot be replaced", error);
}

heed_status heed__writer_end(heed__writer *w, heed_status status) {
  if (w->buffer == NULL) return status; /* it was not begun */
  if (w->file != HEED__NO_FILE) {
    if (status == HEED_OK) status = finish(w);
    if (status == HEED_OK) {
      heed__system_close(w->file);
    } else {
      heed__system_discard(w->file, w->temporary);
    }
  }
  heed__release(w->place.ctx, w->buffer);
  w->buffer = NULL;
  w->file = HEED__NO_FILE;
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

heed_status heed__writer_patch(heed__writer *w, uint64_t offset, const void *data, size_t bytes) {
  if (offset >= w->at) {
    memcpy(w->buffer + (offset - w->at), data, bytes);
    return HEED_OK;
  }
  heed_status status = flush(w);
  const uint64_t end = w->at;
  w->at = offset;
  if (status == HEED_OK) status = write_all(w, data, bytes);
  w->at = end;
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
  (void)!heed__copy_elements(&to, &from);
  uint8_t *flag = p->buffer;
  for (int64_t i = 0; from.dtype == HEED_BOOL && i < from.numel; i++) flag[i] = flag[i] != 0;
  if (!heed__is_little_endian()) heed__reverse_bytes(p->buffer, from.numel, width);
  p->data = p->buffer;
  p->bytes = (size_t)from.numel * width;
  advance(p, from.shape[0]);
  return true;
}

heed_status heed__writer_check_room(heed__writer *w, double bytes) {
  if (bytes <= heed__system_disk_space(w->temporary)) return HEED_OK;
  return heed__broken_by(&w->place, "cannot be written", ENOSPC);
}

heed_status heed__writer_put_tensor(heed__writer *w, const heed_tensor *x) {
  heed__pieces pieces;
  heed_status status = check_writer(w);
  if (status == HEED_OK)
    status = heed__writer_check_room(w, (double)x->numel * (double)heed__element_bytes(x->dtype));
  heed__pieces_begin(&pieces, x, w->pieces, BUFFER);
  while (status == HEED_OK && heed__pieces_next(&pieces))
    status = heed__writer_put(w, pieces.data, pieces.bytes);
  return status;
}
