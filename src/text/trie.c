/* Double arrays. The children of a node lie in one block of 256 units, at its base xor their labels. Only the
 * last two blocks are searched for free units, so that building takes linear time. */
#include <string.h>

#include "sentencepiece.h"

#define TRIE_BLOCK  256
#define TRIE_WORDS  (TRIE_BLOCK / 64)
#define OPEN_BLOCKS 2

size_t heed__trie_longest(const heed__trie *trie, const char *text, size_t size, int32_t *value) {
  size_t node = 0, longest = 0;
  if (trie->count == 0) return 0;
  for (size_t i = 0; i < size && heed__trie_step(trie, &node, (unsigned char)text[i]); i++) {
    const int32_t found = heed__trie_value(trie, node);
    if (found < 0) continue;
    longest = i + 1;
    *value = found;
  }
  return longest;
}

/* Bit u % 64 of word u / 64 belongs to unit u of the block. */
typedef struct trie_block {
  uint64_t used[TRIE_WORDS], is_base[TRIE_WORDS]; /* the unit holds a node; it is the base of some node */
} trie_block;

typedef struct trie_job { /* a node whose children are to be placed: keys first to last - 1 */
  uint32_t node, first, last, depth;
} trie_job;

typedef struct trie_builder {
  heed_context *ctx;
  const char *function;
  const heed__trie_key *keys;
  heed__bytes units, blocks, jobs;
  size_t count; /* of units: whole blocks */
} trie_builder;

static int compare_trie_keys(const void *a, const void *b) {
  const heed__trie_key *x = a, *y = b;
  const uint32_t least = x->size < y->size ? x->size : y->size;
  const int order = memcmp(x->text, y->text, least);
  return order != 0 ? order : x->size < y->size ? -1 : x->size > y->size;
}

static heed_status add_trie_block(trie_builder *b) {
  heed_status status = heed__bytes_reserve(b->ctx, b->function, &b->units, TRIE_BLOCK * sizeof(uint32_t));
  if (status == HEED_OK) status = heed__bytes_reserve(b->ctx, b->function, &b->blocks, sizeof(trie_block));
  if (status != HEED_OK) return status;
  memset(b->units.data + b->units.size, 0, TRIE_BLOCK * sizeof(uint32_t));
  memset(b->blocks.data + b->blocks.size, 0, sizeof(trie_block));
  b->units.size += TRIE_BLOCK * sizeof(uint32_t);
  b->blocks.size += sizeof(trie_block);
  b->count += TRIE_BLOCK;
  return HEED_OK;
}

static inline uint64_t *word_of(uint64_t words[TRIE_WORDS], size_t unit) {
  return &words[unit % TRIE_BLOCK / 64];
}

static inline uint64_t bit_of(size_t unit) {
  return UINT64_C(1) << unit % 64;
}

static inline int lowest_bit(uint64_t word) {
  int bit = 0;
  for (int half = 32; half > 0; half /= 2)
    if ((word & ((UINT64_C(1) << half) - 1)) == 0) word >>= half, bit += half;
  return bit;
}

/* Moves bit i to bit i xor label % 64. */
static inline uint64_t permute_bits(uint64_t word, uint8_t label) {
  static const uint64_t low[] = {UINT64_C(0x5555555555555555), UINT64_C(0x3333333333333333),
                                 UINT64_C(0x0f0f0f0f0f0f0f0f), UINT64_C(0x00ff00ff00ff00ff),
                                 UINT64_C(0x0000ffff0000ffff), UINT64_C(0x00000000ffffffff)};
  for (int i = 0; i < 6; i++)
    if (label >> i & 1) word = (word & low[i]) << (1 << i) | (word >> (1 << i) & low[i]);
  return word;
}

/* The bases in a word of a block at which the units of all labels are free. */
static uint64_t free_bases(const trie_block *block, size_t word, const uint8_t *labels, int count) {
  uint64_t bases = ~block->is_base[word];
  for (int i = 0; i < count && bases != 0; i++)
    bases &= permute_bits(~block->used[word ^ labels[i] / 64], labels[i]);
  return bases;
}

/* The base for a node with these children's labels. Offsets of 2^21 and more must be whole blocks. */
static heed_status find_base(trie_builder *b, size_t node, const uint8_t *labels, int count, size_t *base) {
  const trie_block *blocks = (const trie_block *)(const void *)b->blocks.data;
  const size_t end = b->count / TRIE_BLOCK;
  for (size_t i = end > OPEN_BLOCKS ? end - OPEN_BLOCKS : 0; i < end; i++) {
    const bool is_far = ((i * TRIE_BLOCK) ^ node) >> 21 != 0;
    for (size_t word = 0; word < TRIE_WORDS; word++) {
      uint64_t bases = free_bases(&blocks[i], word, labels, count);
      if (is_far) bases &= word == node % TRIE_BLOCK / 64 ? bit_of(node) : 0;
      if (bases == 0) continue;
      *base = i * TRIE_BLOCK + word * 64 + (size_t)lowest_bit(bases);
      return HEED_OK;
    }
  }
  *base = b->count + node % TRIE_BLOCK;
  return add_trie_block(b);
}

/* Places the children of a node and adds their jobs. */
static heed_status place_children(trie_builder *b, trie_job job) {
  uint8_t labels[TRIE_BLOCK];
  uint32_t firsts[TRIE_BLOCK + 1];
  int count = 0;
  for (uint32_t k = job.first; k < job.last; k++) {
    const heed__trie_key *key = &b->keys[k];
    const uint8_t label = job.depth < key->size ? (uint8_t)key->text[job.depth] : 0;
    if (count > 0 && labels[count - 1] == label) continue;
    labels[count] = label;
    firsts[count++] = k;
  }
  firsts[count] = job.last;
  size_t base;
  heed_status status = find_base(b, job.node, labels, count, &base);
  if (status == HEED_OK)
    status = heed__bytes_reserve(b->ctx, b->function, &b->jobs, (size_t)count * sizeof(trie_job));
  if (status != HEED_OK) return status;
  uint32_t *units = (uint32_t *)(void *)b->units.data;
  trie_block *block = (trie_block *)(void *)b->blocks.data + base / TRIE_BLOCK;
  const size_t offset = base ^ job.node;
  units[job.node] |= (uint32_t)(offset < (size_t)1 << 21 ? offset << 10 : offset << 2 | 0x200);
  *word_of(block->is_base, base) |= bit_of(base);
  for (int i = 0; i < count; i++) {
    const size_t unit = base ^ labels[i];
    *word_of(block->used, unit) |= bit_of(unit);
    if (labels[i] == 0) {
      units[job.node] |= 0x100;
      units[unit] = (uint32_t)b->keys[firsts[i]].value | 0x80000000;
    } else {
      units[unit] = labels[i];
      const trie_job child = {(uint32_t)unit, firsts[i], firsts[i + 1], job.depth + 1};
      memcpy(b->jobs.data + b->jobs.size, &child, sizeof(child));
      b->jobs.size += sizeof(child);
    }
  }
  return HEED_OK;
}

heed_status heed__trie_build(heed_context *ctx, const char *function, heed__trie_key *keys, size_t count,
                             heed__trie *out) {
  trie_builder b = {.ctx = ctx, .function = function, .keys = keys};
  heed_status status = HEED_OK;
  if (count == 0) return HEED_OK;
  status = heed__sort_records(ctx, function, keys, (int64_t)count, sizeof(*keys), compare_trie_keys);
  if (status == HEED_OK) status = add_trie_block(&b);
  if (status == HEED_OK) status = heed__bytes_reserve(ctx, function, &b.jobs, sizeof(trie_job));
  if (status == HEED_OK) {
    const trie_job root = {0, 0, (uint32_t)count, 0};
    memcpy(b.jobs.data, &root, sizeof(root));
    b.jobs.size = sizeof(root);
    ((trie_block *)(void *)b.blocks.data)->used[0] = 1;
  }
  for (int64_t steps = 0; status == HEED_OK && b.jobs.size > 0; steps++) {
    trie_job job;
    b.jobs.size -= sizeof(job);
    memcpy(&job, b.jobs.data + b.jobs.size, sizeof(job));
    status = place_children(&b, job);
    if (status == HEED_OK && heed__is_due_at(&ctx->pace, steps)) status = heed__stopped(ctx, function);
  }
  heed__release(ctx, b.jobs.data);
  heed__release(ctx, b.blocks.data);
  if (status != HEED_OK) {
    heed__release(ctx, b.units.data);
    return status;
  }
  out->units = (const uint32_t *)(const void *)b.units.data;
  out->count = b.count;
  return HEED_OK;
}
