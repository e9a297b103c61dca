/* Writing files completely or not at all: into a temporary file in the same folder, which is then renamed. */
#include "files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Errors: CANCELLED, LIMIT. */
static heed_status check_writer(const heed__writer *w) {
  return heed__is_due(&w->where.ctx->pace) ? heed__stopped(w->where.ctx, "save") : HEED_OK;
}

/* ---- Begin and end ---- */

/* The file to replace, with links followed, and its rights. */
static heed_status find_target(heed__writer *w, const char *path, uint32_t *rights) {
  heed__path_kind kind;
  const int error = heed__system_target(path, w->path, &kind, rights);
  if (error != 0) return heed__fail_system(&w->where, "cannot be written", error);
  if (kind == HEED__DIRECTORY) return heed__fail_file(&w->where, "is a folder; it must be a file");
  if (kind == HEED__SPECIAL) return heed__fail_file(&w->where, "is a device or a pipe; it must be a file");
  return HEED_OK;
}

/* Sets the number in w->temporary, after its first `prefix` bytes. */
static void number_temporary(heed__writer *w, size_t prefix, int number) {
  snprintf(w->temporary + prefix, sizeof(w->temporary) - prefix, "%d.tmp", number);
}

/* Saves take the lowest free number, so files left behind by killed ones have low numbers and the folder,
 * which may be large, need not be listed. Saves that have ended since leave gaps. */
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

/* Creates .heed-<hash>-<number>.tmp beside the path. The hash separates the saves of different paths; the
 * name itself may already have the maximum length. Its key is fixed, so that all processes compute the same
 * one. */
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
    return heed__fail_system(&w->where, "cannot be written: no file can be created in its folder",
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
    return heed__fail_file(
        &w->where,
        "cannot be written: its folder already has %d temporary files of this path; delete "
        ".heed-%016llx-*.tmp there if no save is running",
        HEED__TEMPORARIES, hash);
  return heed__fail_system(&w->where, "cannot be written: no file can be created in its folder", error);
}

heed_status heed__writer_begin(heed__writer *w, heed_context *ctx, const char *path) {
  uint32_t rights;
  heed__where_init(&w->where, ctx, "save", path);
  w->file = HEED__NO_FILE;
  w->used = 0;
  w->position = 0;
  w->buffer = NULL;
  heed_status status = heed__check_files(ctx, w->where.text);
  if (status == HEED_OK) status = find_target(w, path, &rights);
  if (status != HEED_OK) return status;
  w->buffer = heed__allocate(ctx, 2 * HEED__WRITER_BUFFER);
  if (w->buffer == NULL) return heed__fail_memory(ctx, "save", 2 * HEED__WRITER_BUFFER);
  w->pieces = w->buffer + HEED__WRITER_BUFFER;
  status = create_temporary(w, rights);
  return status == HEED_OK ? status : heed__writer_end(w, status);
}

static heed_status write_all(heed__writer *w, const char *data, size_t bytes) {
  while (bytes > 0) {
    size_t n;
    const heed_status status = check_writer(w);
    if (status != HEED_OK) return status;
    const int error =
        heed__system_write(w->file, w->position, data, bytes < HEED__IO_CHUNK ? bytes : HEED__IO_CHUNK, &n);
    if (error != 0) return heed__fail_system(&w->where, "cannot be written", error);
    data += n;
    bytes -= n;
    w->position += n;
  }
  return HEED_OK;
}

static heed_status flush(heed__writer *w) {
  const size_t used = w->used;
  w->used = 0;
  return write_all(w, w->buffer, used);
}

/* Renames the file while it is open: once closed, another save would take it for abandoned. Close would
 * report errors too late, after the old file is gone; heed__system_sync reports them before. */
static heed_status finish(heed__writer *w) {
  heed_status status = flush(w);
  if (status != HEED_OK) return status;
  int error = heed__system_sync(w->file);
  if (error != 0) return heed__fail_system(&w->where, "cannot be written", error);
  error = heed__system_replace(w->file, w->temporary, w->path, &w->where.ctx->pace);
  if (error == 0) return HEED_OK;
  status = check_writer(w); /* a cancellation may have ended the wait for the old file */
  return status != HEED_OK ? status : heed__fail_system(&w->where, "cannot be replaced", error);
}

heed_status heed__writer_end(heed__writer *w, heed_status status) {
  if (w->buffer == NULL) return status; /* not begun */
  if (w->file != HEED__NO_FILE) {
    if (status == HEED_OK) status = finish(w);
    if (status == HEED_OK) {
      heed__system_close(w->file);
    } else {
      heed__system_discard(w->file, w->temporary);
    }
  }
  heed__release(w->where.ctx, w->buffer);
  w->buffer = NULL;
  w->file = HEED__NO_FILE;
  return status;
}

/* ---- Writing ---- */

heed_status heed__writer_put(heed__writer *w, const void *data, size_t bytes) {
  if (bytes > HEED__WRITER_BUFFER - w->used) {
    const heed_status status = flush(w);
    if (status != HEED_OK) return status;
    if (bytes >= HEED__WRITER_BUFFER) return write_all(w, data, bytes);
  }
  if (bytes > 0) memcpy(w->buffer + w->used, data, bytes);
  w->used += bytes;
  return HEED_OK;
}

heed_status heed__writer_patch(heed__writer *w, uint64_t offset, const void *data, size_t bytes) {
  if (offset >= w->position) {
    memcpy(w->buffer + (offset - w->position), data, bytes);
    return HEED_OK;
  }
  heed_status status = flush(w);
  const uint64_t end = w->position;
  w->position = offset;
  if (status == HEED_OK) status = write_all(w, data, bytes);
  w->position = end;
  return status;
}

uint64_t heed__writer_position(const heed__writer *w) {
  return w->position + w->used;
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

/* Whether x's memory is identical to its bytes in a file. Bools in a host's memory may be any byte. */
static bool is_as_in_file(const heed_tensor *x) {
  return x->dtype != HEED_BOOL && heed__is_little_endian() && heed_tensor_is_contiguous(x);
}

void heed__pieces_begin(heed__pieces *p, const heed_tensor *x, void *buffer, size_t capacity) {
  const size_t width = heed__element_bytes(x->dtype);
  *p = (heed__pieces){.buffer = buffer, .more = x->numel > 0, .whole = is_as_in_file(x)};
  heed__alias_on_stack(&p->x, x);
  if (heed_tensor_is_contiguous(x)) {
    p->x.ndim = 1;
    p->x.shape[0] = x->numel;
    p->x.stride[0] = 1;
  }
  if (!p->more || p->whole) return;
  int64_t inner = 1; /* elements of the dimensions after d, which are copied whole */
  int d = p->x.ndim - 1;
  for (; d > 0 && inner * p->x.shape[d] <= (int64_t)(capacity / width); d--) inner *= p->x.shape[d];
  p->dim = d;
  p->step = (int64_t)(capacity / width) / inner;
}

/* Moves `count` further in the divided dimension, and carries into those before it. */
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

/* Copies a piece with one call, which transposes in blocks. Contiguous elements may be those of a header on
 * the stack, which has no context to walk with. */
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
  if (from.ndim == 1 && from.stride[0] == 1) {
    memcpy(p->buffer, from.data, (size_t)from.numel * width);
  } else {
    (void)!heed__copy_elements(&to, &from);
  }
  uint8_t *flag = p->buffer;
  for (int64_t i = 0; from.dtype == HEED_BOOL && i < from.numel; i++) flag[i] = flag[i] != 0;
  if (!heed__is_little_endian()) heed__reverse_bytes(p->buffer, from.numel, width);
  p->data = p->buffer;
  p->bytes = (size_t)from.numel * width;
  advance(p, from.shape[0]);
  return true;
}

heed_status heed__writer_check_space(heed__writer *w, double bytes) {
  if (bytes <= heed__system_disk_space(w->temporary)) return HEED_OK;
  return heed__fail_system(&w->where, "cannot be written", ENOSPC);
}

/* Blocks are the same bytes in memory and in files. */
static heed_status put_blocks(heed__writer *w, const heed_tensor *x) {
  heed_tensor *made;
  heed_status status = heed__as_contiguous(w->where.ctx, "save", x, x->dtype, &x, &made);
  if (status == HEED_OK) status = heed__writer_put(w, x->data, (size_t)heed__row_bytes(x->dtype, x->numel));
  heed_tensor_free(made);
  return status;
}

heed_status heed__writer_put_tensor(heed__writer *w, const heed_tensor *x) {
  heed__pieces pieces;
  heed_status status = check_writer(w);
  const double bytes = (double)x->numel * (double)heed__block_bytes(x->dtype);
  if (status == HEED_OK) status = heed__writer_check_space(w, bytes / (double)heed__block_elements(x->dtype));
  if (status == HEED_OK && heed__is_blocked(x->dtype)) return put_blocks(w, x);
  heed__pieces_begin(&pieces, x, w->pieces, HEED__WRITER_BUFFER);
  while (status == HEED_OK && heed__pieces_next(&pieces))
    status = heed__writer_put(w, pieces.data, pieces.bytes);
  return status;
}
