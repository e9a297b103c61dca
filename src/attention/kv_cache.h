/* Shared by the files of key/value caches: rows of keys and values. */
#ifndef HEED_ATTENTION_KV_CACHE_H
#define HEED_ATTENTION_KV_CACHE_H

#include "attention.h"

/** Allocates all parts of a cache like c with that number of rows; unpacked: with the elements of int4 in a
 * byte each. Errors: MEMORY. (kv_cache.c) */
HEED_MUST_USE
heed_status heed__kv_new_parts(const heed_kv_cache *c, const char *function, int64_t rows, bool unpacked,
                               heed_tensor *part[HEED__KV_PARTS]);
/** The bytes of a row of d elements in int4. */
static inline int64_t heed__kv_int4_bytes(int64_t d) {
  return d / 2 + d % 2;
}
/** A row of a head of an item, in bytes. */
static inline char *heed__kv_row_at(const heed_tensor *part, int64_t item, int64_t head, int64_t row) {
  const int64_t at = item * part->stride[0] + head * part->stride[1] + row * part->stride[2];
  return part->data + (size_t)at * heed__element_bytes(part->dtype);
}
/** Copies `count` rows of all heads of a batch item, from row `first` on, to those from `to_first` on. False
 * if stopped at a cancellation check; pace NULL: never. */
bool heed__kv_copy_rows(const heed__pace *pace, heed_tensor *const to[HEED__KV_PARTS], int64_t to_first,
                        int64_t to_item, heed_tensor *const from[HEED__KV_PARTS], int64_t first,
                        int64_t from_item, int64_t count);
/** The same, but packs or unpacks rows in int4. (kv_int4.c) */
bool heed__kv_recode_rows(const heed__pace *pace, bool packs, heed_tensor *const to[HEED__KV_PARTS],
                          int64_t to_first, int64_t to_item, heed_tensor *const from[HEED__KV_PARTS],
                          int64_t first, int64_t from_item, int64_t count);
/** Charges the work of copying that number of rows of all heads. Errors: LIMIT, CANCELLED. (kv_cache.c) */
HEED_MUST_USE
heed_status heed__kv_charge_rows(const heed_kv_cache *c, const char *function, double rows);
/** An empty cache of the same sizes, and with the same prefix. Errors: MEMORY. (kv_cache.c) */
HEED_MUST_USE
heed_status heed__kv_cache_new_like(const heed_kv_cache *c, const char *function, heed_kv_cache **out);
/** Copies all rows of an item, those of the prefix first, to rows 0, 1, … of that item of other parts. False
 * if stopped at a cancellation check. (kv_prefix.c) */
bool heed__kv_copy_all(const heed__pace *pace, heed_tensor *const to[HEED__KV_PARTS],
                       const heed_kv_cache *cache, int64_t item);
/** Gives a cache rows of its own: all of them, instead of those of a file, or that others share. Errors:
 * MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__kv_cache_grow(heed_kv_cache *cache, const char *function);
/** Tokens kept with a window besides those that can be seen, so that truncate can take a few back, and as
 * many free rows at the end. Moving the kept rows is then a small part of the time of reading them. */
static inline int64_t heed__kv_reserve(int64_t window_left) {
  return window_left / 8 > 64 ? window_left / 8 : 64;
}

#endif
