/* Key/value caches in .safetensors files: of each layer i, from 1, the tensors layers.i.keys and values [b,
 * hkv, rows, d], key_scales and value_scales [b, hkv, rows] of int8, lengths and dropped (int64 [b]), sizes
 * (int64: hkv, d, the window to the left or -1, the capacity or 0, and 4 for int4, whose rows have two
 * elements in a byte, or 0) and samples [n, 17] (of the parameters of W_key, W_value and k_norm: a dtype as
 * in heed.h and some elements); of a whole model `samples` of all of its parameters; as metadata heed.cache,
 * the version of all this, heed.layers, their number, and layers.i.positions, the settings of rotary
 * positions. Files without samples, which earlier versions wrote, are taken for those of the model. */
#include <stdio.h>
#include <string.h>

#include "../nn/nn.h"
#include "files.h"

static const char cache_version[] = "1", model_samples[] = "samples";
static const char *const part_names[HEED__KV_PARTS] = {"keys", "values", "key_scales", "value_scales"};

enum { SIZE_HEADS, SIZE_HEAD, SIZE_WINDOW, SIZE_CAPACITY, SIZE_BITS, CACHE_SIZES };
enum { LAYER_LENGTHS = HEED__KV_PARTS, LAYER_DROPPED, LAYER_SIZES, LAYER_SAMPLES, LAYER_TENSORS };
enum { LAYER_NAME = 48 };

/* ---- Saving ---- */

typedef struct saved_layer {
  heed_tensor tensor[LAYER_TENSORS];
  char name[LAYER_TENSORS][LAYER_NAME], positions[LAYER_NAME];
  int64_t sizes[CACHE_SIZES];
  float sample[HEED__KV_SAMPLES][HEED__SAMPLE];
  heed_kv_cache *flat; /* the cache without its prefix, if it has one */
} saved_layer;

typedef struct saved_file {
  saved_layer *layers;
  const char **names, **metadata;
  const heed_tensor **tensors;
  int64_t count, layer_count; /* of names and tensors; of layers with `flat` */
  char number[32];
} saved_file;

static void add_tensor(saved_file *f, saved_layer *layer, int64_t number, int which, const char *name) {
  snprintf(layer->name[which], LAYER_NAME, "layers.%lld.%s", (long long)number, name);
  f->names[f->count] = layer->name[which];
  f->tensors[f->count++] = &layer->tensor[which];
}

static void add_layer(saved_file *f, int64_t number, const heed_kv_cache *cache) {
  saved_layer *layer = &f->layers[number - 1];
  int64_t rows = 0, sizes = CACHE_SIZES;
  const int64_t samples[] = {cache->origin.samples, HEED__SAMPLE};
  for (int64_t i = 0; i < cache->batch; i++) rows = heed__max(rows, cache->lengths[i] - cache->dropped[i]);
  for (int i = 0; i < HEED__KV_PARTS; i++) {
    if (cache->part[i] == NULL) continue;
    heed__alias_on_stack(&layer->tensor[i], cache->part[i]);
    heed__narrow_on_stack(&layer->tensor[i], 2, 0, rows);
    add_tensor(f, layer, number, i, part_names[i]);
  }
  layer->sizes[SIZE_HEADS] = cache->num_kv_heads;
  layer->sizes[SIZE_HEAD] = cache->head_dim;
  layer->sizes[SIZE_WINDOW] = cache->window_left;
  layer->sizes[SIZE_CAPACITY] = cache->capacity;
  layer->sizes[SIZE_BITS] = cache->int4 ? 4 : 0;
  heed__header_on_stack(&layer->tensor[LAYER_LENGTHS], HEED_INT64, cache->lengths, 1, &cache->batch);
  heed__header_on_stack(&layer->tensor[LAYER_DROPPED], HEED_INT64, cache->dropped, 1, &cache->batch);
  heed__header_on_stack(&layer->tensor[LAYER_SIZES], HEED_INT64, layer->sizes, 1, &sizes);
  add_tensor(f, layer, number, LAYER_LENGTHS, "lengths");
  add_tensor(f, layer, number, LAYER_DROPPED, "dropped");
  add_tensor(f, layer, number, LAYER_SIZES, "sizes");
  if (samples[0] > 0) {
    memcpy(layer->sample, cache->origin.sample, sizeof layer->sample);
    heed__header_on_stack(&layer->tensor[LAYER_SAMPLES], HEED_FLOAT32, layer->sample, 2, samples);
    add_tensor(f, layer, number, LAYER_SAMPLES, "samples");
  }
  snprintf(layer->positions, sizeof layer->positions, "layers.%lld.positions", (long long)number);
  f->metadata[2 + 2 * number] = layer->positions;
  f->metadata[3 + 2 * number] = cache->origin.positions;
}

/* A cache with a shared prefix is saved as one without. */
static heed_status flatten(saved_file *f, int64_t layer, const heed_kv_cache *cache) {
  f->layers[layer].flat = NULL;
  f->layer_count = layer + 1;
  return cache->prefix > 0 ? heed__kv_cache_flatten(cache, "save", &f->layers[layer].flat) : HEED_OK;
}

static heed_status check_caches(heed_context *ctx, int64_t count, heed_kv_cache *const *caches) {
  heed_status status = heed__check_positive(ctx, "save", "count", count);
  for (int64_t i = 0; i < count && status == HEED_OK; i++) {
    if (caches[i] == NULL)
      return heed__fail(ctx, HEED_ARGUMENT, "save: cache %lld is missing (NULL)", (long long)i + 1);
    HEED__MAY_ENTER(ctx, "save", caches[i]);
  }
  return status;
}

heed_status heed__kv_caches_save(heed_context *ctx, const char *path, int64_t count,
                                 heed_kv_cache *const *caches, const heed_tensor *samples) {
  heed_status status = check_caches(ctx, count, caches);
  if (status != HEED_OK) return status;
  saved_file f = {.count = 0};
  const size_t layers = heed__array_bytes((uint64_t)count, sizeof *f.layers);
  const size_t texts = heed__array_bytes((uint64_t)count * LAYER_TENSORS + 1, sizeof *f.names);
  f.layers = heed__allocate(ctx, layers);
  f.names = heed__allocate(ctx, texts);
  f.tensors = heed__allocate(ctx, texts);
  f.metadata = heed__allocate(ctx, heed__array_bytes((uint64_t)count + 2, 2 * sizeof *f.metadata));
  if (f.layers == NULL || f.names == NULL || f.tensors == NULL || f.metadata == NULL) {
    status = heed__fail_memory(ctx, "save", layers);
  } else {
    snprintf(f.number, sizeof f.number, "%lld", (long long)count);
    f.metadata[0] = "heed.cache";
    f.metadata[1] = cache_version;
    f.metadata[2] = "heed.layers";
    f.metadata[3] = f.number;
    for (int64_t i = 0; i < count && status == HEED_OK; i++) status = flatten(&f, i, caches[i]);
    for (int64_t i = 0; i < count && status == HEED_OK; i++) {
      heed_kv_cache *cache = f.layers[i].flat != NULL ? f.layers[i].flat : caches[i];
      heed__kv_cache_clear_tails(cache);
      add_layer(&f, i + 1, cache);
    }
    if (samples != NULL) {
      f.names[f.count] = model_samples;
      f.tensors[f.count++] = samples;
    }
    if (status == HEED_OK)
      status = heed_save_archive(ctx, path, f.count, f.names, f.tensors, count + 2, f.metadata);
  }
  for (int64_t i = 0; i < f.layer_count; i++) heed_kv_cache_free(f.layers[i].flat);
  heed__release(ctx, f.layers);
  heed__release(ctx, f.names);
  heed__release(ctx, f.tensors);
  heed__release(ctx, f.metadata);
  return status;
}

heed_status heed_kv_caches_save(heed_context *ctx, const char *path, int64_t count,
                                heed_kv_cache *const *caches) {
  HEED__ENTER(ctx, "save", path, caches);
  return heed__kv_caches_save(ctx, path, count, caches, NULL);
}

heed_status heed_kv_cache_save(heed_kv_cache *cache, const char *path) {
  HEED__ENTER(heed_kv_cache_context(cache), "save", path);
  return heed_kv_caches_save(cache->context, path, 1, &cache);
}

/* ---- Loading ---- */

/* A layer of a file that is being loaded. */
typedef struct loaded_layer {
  const heed_archive *archive;
  const heed__where *where; /* "load_cache: 'a.safetensors', layer '2'" */
  int64_t number;
  heed_tensor *tensor[LAYER_TENSORS];
  const int64_t *sizes, *lengths, *dropped;
} loaded_layer;

static const char *metadata_of(const heed_archive *archive, const char *name) {
  for (int64_t i = 0; i < archive->pairs; i++)
    if (strcmp(archive->metadata[2 * i], name) == 0) return archive->metadata[2 * i + 1];
  return NULL;
}

/* Takes a tensor of the file, if it is there. */
static heed_status take_named(const heed_archive *archive, const char *name, heed_tensor **out) {
  const heed__entry *entry = heed__archive_find(archive, name);
  return entry != NULL ? heed_archive_tensor(archive, entry - archive->entries + 1, out) : HEED_OK;
}

/* The same of the layer. */
static heed_status take_entry(loaded_layer *l, int which, const char *name) {
  char full[LAYER_NAME];
  snprintf(full, sizeof full, "layers.%lld.%s", (long long)l->number, name);
  return take_named(l->archive, full, &l->tensor[which]);
}

/* A tensor of the file must have this dtype and shape; size -1: any. */
static heed_status check_taken(const loaded_layer *l, int which, const char *name, heed_dtype dtype, int ndim,
                               const int64_t *shape) {
  const heed_tensor *x = l->tensor[which];
  char have[HEED__SHAPE_TEXT];
  if (x == NULL) return heed__fail_file(l->where, "%s is missing", name);
  bool fits = x->dtype == dtype && x->ndim == ndim;
  for (int i = 0; fits && i < ndim; i++) fits = shape[i] < 0 || x->shape[i] == shape[i];
  if (fits) return HEED_OK;
  return heed__fail_file(l->where, "%s is %s of %s, which does not fit the other tensors of the layer", name,
                         heed__shape_text(have, x->ndim, x->shape), heed_dtype_name(x->dtype));
}

static heed_status take_layer(loaded_layer *l) {
  const int64_t any = -1, sizes = CACHE_SIZES, samples[] = {-1, HEED__SAMPLE};
  heed_status status = HEED_OK;
  for (int i = 0; i < HEED__KV_PARTS && status == HEED_OK; i++) status = take_entry(l, i, part_names[i]);
  if (status == HEED_OK) status = take_entry(l, LAYER_LENGTHS, "lengths");
  if (status == HEED_OK) status = take_entry(l, LAYER_DROPPED, "dropped");
  if (status == HEED_OK) status = take_entry(l, LAYER_SIZES, "sizes");
  if (status == HEED_OK) status = take_entry(l, LAYER_SAMPLES, "samples");
  if (status == HEED_OK) status = check_taken(l, LAYER_SIZES, "sizes", HEED_INT64, 1, &sizes);
  if (status == HEED_OK) status = check_taken(l, LAYER_LENGTHS, "lengths", HEED_INT64, 1, &any);
  if (status == HEED_OK)
    status = check_taken(l, LAYER_DROPPED, "dropped", HEED_INT64, 1, l->tensor[LAYER_LENGTHS]->shape);
  if (status == HEED_OK && l->tensor[LAYER_SAMPLES] != NULL)
    status = check_taken(l, LAYER_SAMPLES, "samples", HEED_FLOAT32, 2, samples);
  if (status != HEED_OK) return status;
  l->sizes = (const int64_t *)(const void *)l->tensor[LAYER_SIZES]->data;
  l->lengths = (const int64_t *)(const void *)l->tensor[LAYER_LENGTHS]->data;
  l->dropped = (const int64_t *)(const void *)l->tensor[LAYER_DROPPED]->data;
  return HEED_OK;
}

static bool is_stored_dtype(heed_dtype dtype) {
  return dtype == HEED_FLOAT32 || dtype == HEED_BFLOAT16 || dtype == HEED_FLOAT16 || dtype == HEED_INT8;
}

static heed_status check_parts(const loaded_layer *l) {
  const heed_tensor *keys = l->tensor[HEED__KV_KEYS];
  const int64_t batch = l->tensor[LAYER_LENGTHS]->shape[0];
  const bool int4 = l->sizes[SIZE_BITS] == 4;
  const int64_t d = l->sizes[SIZE_HEAD];
  int64_t shape[] = {batch, l->sizes[SIZE_HEADS], -1, int4 ? d / 2 + d % 2 : d};
  if (keys == NULL) return heed__fail_file(l->where, "keys is missing");
  if ((int4 ? keys->dtype != HEED_INT8 : l->sizes[SIZE_BITS] != 0) || d < 1)
    return heed__fail_file(l->where, "the sizes do not fit keys of %s; the file is damaged",
                           heed_dtype_name(keys->dtype));
  if (!is_stored_dtype(keys->dtype))
    return heed__fail_file(l->where, "keys are %s; they must be float32, bfloat16, float16 or int8",
                           heed_dtype_name(keys->dtype));
  heed_status status = check_taken(l, HEED__KV_KEYS, "keys", keys->dtype, 4, shape);
  if (status != HEED_OK) return status;
  shape[2] = keys->shape[2];
  status = check_taken(l, HEED__KV_VALUES, "values", keys->dtype, 4, shape);
  for (int i = HEED__KV_KEY_SCALES; i < HEED__KV_PARTS && status == HEED_OK; i++) {
    if (keys->dtype == HEED_INT8)
      status = check_taken(l, i, part_names[i], HEED_FLOAT32, 3, shape);
    else if (l->tensor[i] != NULL)
      status = heed__fail_file(l->where, "%s are there, but keys are %s", part_names[i],
                               heed_dtype_name(keys->dtype));
  }
  return status;
}

static heed_status check_lengths_of(const loaded_layer *l) {
  const int64_t batch = l->tensor[LAYER_LENGTHS]->shape[0], rows = l->tensor[HEED__KV_KEYS]->shape[2];
  const int64_t window = l->sizes[SIZE_WINDOW], capacity = l->sizes[SIZE_CAPACITY];
  bool fits = batch > 0 && window >= -1 && capacity >= (window < 0 ? 1 : 0);
  for (int64_t i = 0; i < batch && fits; i++) {
    const int64_t length = l->lengths[i], dropped = l->dropped[i];
    fits = dropped >= 0 && length >= dropped && length - dropped <= rows &&
           (window >= 0 ? dropped == 0 || dropped <= length - window : dropped == 0) &&
           (capacity == 0 || length <= capacity);
  }
  if (fits) return HEED_OK;
  return heed__fail_file(l->where, "lengths, dropped and sizes contradict each other; the file is damaged");
}

/* The parameters that were sampled for the file must be those of the model. `found`: NULL in older files. */
static heed_status check_samples(const heed__where *where, const heed_tensor *found, const float *samples,
                                 int64_t count) {
  const bool same_count = found != NULL && found->shape[0] == count;
  if (found == NULL || count == 0) return HEED_OK;
  const float *of_file = (const float *)(const void *)found->data;
  const int64_t differing = same_count ? heed__differing_samples(of_file, samples, count) : count;
  if (differing == 0) return HEED_OK;
  if (!same_count)
    return heed__fail_file(
        where, "its model has %lld parameters and this one %lld; it must be a cache of this model",
        (long long)found->shape[0], (long long)count);
  return heed__fail_file(
      where,
      "it was made with other weights (%lld of %lld parameters differ); it must be a cache "
      "of this model",
      (long long)differing, (long long)count);
}

/* The file must be of this module, and *origin becomes what the cache notes of it. */
static heed_status check_module(const loaded_layer *l, const heed_module *m, heed__kv_origin *origin) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  const int64_t *sizes = l->sizes, batch = l->tensor[LAYER_LENGTHS]->shape[0];
  char name[LAYER_NAME];
  int64_t longest = 0;
  if (sizes[SIZE_HEADS] != a->num_kv_heads || sizes[SIZE_HEAD] != a->head_dim)
    return heed__fail_file(l->where,
                           "the cache has num_kv_heads %lld and head_dim %lld; they must be %lld and %lld",
                           (long long)sizes[SIZE_HEADS], (long long)sizes[SIZE_HEAD],
                           (long long)a->num_kv_heads, (long long)a->head_dim);
  if (sizes[SIZE_WINDOW] != heed__module_cache_window(m))
    return heed__fail_file(
        l->where, "the cache is for a window with left %lld; it must be that of the module, %lld (-1: none)",
        (long long)sizes[SIZE_WINDOW], (long long)heed__module_cache_window(m));
  heed__module_cache_origin(m, origin);
  for (int64_t i = 0; i < batch; i++) longest = heed__max(longest, l->lengths[i]);
  if (longest == 0) return HEED_OK;
  snprintf(name, sizeof name, "layers.%lld.positions", (long long)l->number);
  const char *positions = metadata_of(l->archive, name);
  if (positions == NULL) return heed__fail_file(l->where, "the metadata %s is missing", name);
  if (strcmp(positions, origin->positions) != 0)
    return heed__fail_file(l->where,
                           "the positions of its keys are '%.200s'; they must be those of the module, '%s'",
                           positions, origin->positions);
  return check_samples(l->where, l->tensor[LAYER_SAMPLES], origin->sample[0], origin->samples);
}

static heed_status load_layer(const heed__where *file, const heed_archive *archive, int64_t number,
                              heed_module *m, heed_kv_cache **out) {
  heed_context *ctx = file->ctx;
  heed__where where = *file;
  heed__kv_origin origin;
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)number);
  if (archive->pairs > 3) heed__where_inside(&where, file, "layer", text);
  loaded_layer l = {.archive = archive, .where = &where, .number = number};
  heed_kv_cache *made = NULL;
  heed_status status = take_layer(&l);
  if (status == HEED_OK) status = check_parts(&l);
  if (status == HEED_OK) status = check_lengths_of(&l);
  if (status == HEED_OK) status = check_module(&l, m, &origin);
  if (status == HEED_OK) {
    const heed_kv_cache_config config = {.size = sizeof config,
                                         .batch = l.tensor[LAYER_LENGTHS]->shape[0],
                                         .capacity = l.sizes[SIZE_CAPACITY],
                                         .dtype = l.tensor[HEED__KV_KEYS]->dtype,
                                         .bits = l.sizes[SIZE_BITS]};
    status = heed__kv_cache_new_loaded(ctx, "load_cache", &config, l.sizes[SIZE_HEADS], l.sizes[SIZE_HEAD],
                                       l.sizes[SIZE_WINDOW], l.tensor, l.lengths, l.dropped, &made);
  }
  if (status == HEED_OK && made->part[HEED__KV_KEYS]->shape[2] > made->rows)
    status = heed__fail_file(&where, "keys have %lld rows; there must be at most %lld",
                             (long long)made->part[HEED__KV_KEYS]->shape[2], (long long)made->rows);
  if (status == HEED_OK) {
    made->origin = origin;
    *out = made;
  } else {
    heed_kv_cache_free(made);
  }
  for (int i = 0; i < LAYER_TENSORS; i++) heed_tensor_free(l.tensor[i]);
  return status;
}

static heed_status check_modules(heed_context *ctx, int64_t count, heed_module *const *modules) {
  heed_status status = heed__check_positive(ctx, "load_cache", "count", count);
  for (int64_t i = 0; i < count && status == HEED_OK; i++) {
    if (modules[i] == NULL)
      return heed__fail(ctx, HEED_ARGUMENT, "load_cache: module %lld is missing (NULL)", (long long)i + 1);
    HEED__MAY_ENTER(ctx, "load_cache", modules[i]);
    if (!modules[i]->class->takes_keys)
      status =
          heed__fail(ctx, HEED_ARGUMENT, "load_cache: the module is a %s; it must be a MultiHeadAttention",
                     modules[i]->class->name);
  }
  return status;
}

/* Whether the file holds caches that this version reads, of that number of layers. */
static heed_status check_file(const heed__where *where, const heed_archive *archive, int64_t count) {
  const char *version = metadata_of(archive, "heed.cache"), *layers = metadata_of(archive, "heed.layers");
  char number[32];
  if (version == NULL)
    return heed__fail_file(where, "the file holds no cache; it must be one that cache:save wrote");
  if (strcmp(version, cache_version) != 0)
    return heed__fail_file(where, "the cache has version %.20s; it must be %s, the one that this heed reads",
                           version, cache_version);
  snprintf(number, sizeof number, "%lld", (long long)count);
  if (layers != NULL && strcmp(layers, number) == 0) return HEED_OK;
  return heed__fail_file(where, "the file holds the caches of %.20s layer%s; there must be %s",
                         layers != NULL ? layers : "no",
                         layers != NULL && strcmp(layers, "1") == 0 ? "" : "s", number);
}

/* Whether the file is of the model with these samples of all parameters. */
static heed_status check_model(const heed__where *where, const heed_archive *archive,
                               const heed_tensor *samples) {
  heed_tensor *found = NULL;
  heed_status status = take_named(archive, model_samples, &found);
  if (status == HEED_OK && found != NULL &&
      (found->dtype != HEED_FLOAT32 || found->ndim != 2 || found->shape[1] != HEED__SAMPLE))
    status = heed__fail_file(where, "samples are not float32 [n, %d]; the file is damaged", HEED__SAMPLE);
  if (status == HEED_OK)
    status = check_samples(where, found, (const float *)(const void *)samples->data, samples->shape[0]);
  heed_tensor_free(found);
  return status;
}

heed_status heed__kv_caches_load(heed_context *ctx, const char *path, int64_t count,
                                 heed_module *const *modules, const heed_tensor *samples,
                                 heed_kv_cache **out) {
  heed_archive *archive = NULL;
  heed__where where;
  heed_status status = check_modules(ctx, count, modules);
  if (status != HEED_OK) return status;
  heed__where_init(&where, ctx, "load_cache", path);
  const size_t bytes = heed__array_bytes((uint64_t)count, sizeof *out);
  heed_kv_cache **made = heed__allocate(ctx, bytes);
  if (made == NULL) return heed__fail_memory(ctx, "load_cache", bytes);
  memset(made, 0, bytes);
  status = heed__load_archive(ctx, "load_cache", path, &archive);
  if (status == HEED_OK) status = check_file(&where, archive, count);
  for (int64_t i = 0; i < count && status == HEED_OK; i++)
    status = load_layer(&where, archive, i + 1, modules[i], &made[i]);
  if (status == HEED_OK && samples != NULL) status = check_model(&where, archive, samples);
  heed_archive_free(archive);
  for (int64_t i = 0; i < count; i++) {
    if (status == HEED_OK)
      out[i] = made[i];
    else
      heed_kv_cache_free(made[i]);
  }
  heed__release(ctx, made);
  return status;
}

heed_status heed_kv_caches_load(heed_context *ctx, const char *path, int64_t count,
                                heed_module *const *modules, heed_kv_cache **out) {
  HEED__ENTER(ctx, "load_cache", path, modules, out);
  return heed__kv_caches_load(ctx, path, count, modules, NULL, out);
}

heed_status heed_kv_cache_load(heed_module *m, const char *path, heed_kv_cache **out) {
  HEED__ENTER(heed_module_context(m), "load_cache", path, out);
  return heed_kv_caches_load(m->context, path, 1, &m, out);
}
