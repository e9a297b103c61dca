/* Converting the weights of Linear and Embedding in modules and their parts: all weights change or none. */
#include "nn.h"

/* A module whose weight is converted. */
typedef struct leaf {
  heed_module *module;
  heed_tensor *weight, *scale; /* the new ones, from commit on the old ones; NULL: no change */
} leaf;

typedef struct conversion {
  heed_context *ctx;
  const char *function;
  heed_dtype dtype;
  leaf *leaves;
  int64_t count;
  const heed_tensor *refused; /* a weight whose rows are not whole blocks */
  bool fits;                  /* those of another one are */
} conversion;

unsigned heed__module_dtypes(void) {
  unsigned set = 0;
  for (int i = 0; heed__is_any_dtype((heed_dtype)i); i++)
    if (heed__can_store((heed_dtype)i) || heed__is_blocked((heed_dtype)i)) set |= HEED__DTYPE_BIT(i);
  return set;
}

/* As llama.cpp's tools choose. */
heed_dtype heed__dtype_of_rows(heed_dtype dtype, int64_t n, heed_dtype otherwise) {
  if (n % heed__block_elements(dtype) == 0) return dtype;
  const heed_dtype smaller = dtype == HEED_Q4_K   ? HEED_Q5_0
                             : dtype == HEED_Q5_K ? HEED_Q5_1
                             : dtype == HEED_Q6_K ? HEED_Q8_0
                                                  : dtype;
  return n % heed__block_elements(smaller) == 0 ? smaller : otherwise;
}

/* The dtype that a weight gets. */
static heed_dtype dtype_of_weight(const conversion *c, const heed_tensor *weight) {
  return heed__dtype_of_rows(c->dtype, weight->shape[1], weight->dtype);
}

static bool changes(conversion *c, const heed_module *m) {
  if (m->class->storable == NULL || (c->dtype == HEED_INT8 && !m->class->quantizes)) return false;
  const heed_tensor *weight = heed__module_slot(m, m->class->storable)->parameter;
  if (heed__dtype_of_rows(c->dtype, weight->shape[1], HEED_BOOL) == HEED_BOOL)
    c->refused = weight;
  else
    c->fits = true;
  return weight->dtype != dtype_of_weight(c, weight);
}

/* Counts the modules to convert in m and its parts, and lists them if c->leaves is allocated. A module that
 * is a part of several others is listed several times. */
static void gather(conversion *c, heed_module *m) {
  if (changes(c, m)) {
    if (c->leaves != NULL) c->leaves[c->count] = (leaf){.module = m};
    c->count++;
  }
  for (int i = 0; i < m->count; i++) {
    if (m->slots[i].module != NULL) gather(c, m->slots[i].module);
  }
}

static const heed_tensor *scale_of(const heed_module *m) {
  const heed__slot *slot = heed__module_slot(m, HEED__SCALE);
  return slot != NULL ? slot->parameter : NULL;
}

/* Makes the new weight, and for int8 the scale, of a leaf. */
static heed_status convert(const conversion *c, leaf *l) {
  heed_context *ctx = c->ctx;
  const heed_module *m = l->module;
  const heed_tensor *weight = heed__module_slot(m, m->class->storable)->parameter;
  heed_tensor *wide = NULL;
  heed_status status = HEED_OK;
  if (heed__is_placeholder(weight)) {
    const int64_t scales[] = {weight->shape[0], heed__int8_blocks(weight->shape[1])};
    status = heed__placeholder(ctx, c->function, dtype_of_weight(c, weight), weight->ndim, weight->shape,
                               &l->weight);
    if (status == HEED_OK && c->dtype == HEED_INT8)
      status = heed__placeholder(ctx, c->function, HEED_FLOAT32, 2, scales, &l->scale);
    return status;
  }
  if (weight->dtype == HEED_INT8) {
    status = heed__dequantize_int8(ctx, c->function, weight, scale_of(m), &wide);
    if (status != HEED_OK) return status;
    weight = wide;
  }
  if (c->dtype == HEED_INT8) {
    if (weight->dtype != HEED_FLOAT32) status = heed__to(ctx, c->function, weight, HEED_FLOAT32, &wide);
    if (status == HEED_OK)
      status = heed__quantize_int8(ctx, c->function, HEED__WEIGHT, wide != NULL ? wide : weight, &l->weight,
                                   &l->scale);
  } else {
    status = heed__to(ctx, c->function, weight, dtype_of_weight(c, weight), &l->weight);
  }
  heed_tensor_free(wide);
  return status;
}

/* Whether two leaves share the elements of their weights. */
static bool are_tied(const heed_module *a, const heed_module *b) {
  const heed_tensor *scale = scale_of(a), *other = scale_of(b);
  if ((scale == NULL) != (other == NULL) || (scale != NULL && !heed__same_view(scale, other))) return false;
  return heed__same_view(heed__module_slot(a, a->class->storable)->parameter,
                         heed__module_slot(b, b->class->storable)->parameter);
}

/* Whether an earlier leaf covers leaf i: it is the same module, or shares the weight (an embedding that is
 * also the output projection); then leaf i shares the new weight, too. */
static bool share(const conversion *c, int64_t i, heed_status *status) {
  leaf *l = &c->leaves[i];
  for (int64_t before = 0; before < i; before++) {
    const leaf *other = &c->leaves[before];
    if (other->weight == NULL) continue;
    if (other->module == l->module) return true;
    if (!are_tied(other->module, l->module)) continue;
    *status = heed__tensor_from_view(c->ctx, c->function, other->weight, &l->weight);
    if (*status == HEED_OK && other->scale != NULL)
      *status = heed__tensor_from_view(c->ctx, c->function, other->scale, &l->scale);
    return true;
  }
  return false;
}

/* Exchanges the tensors of the module and of the leaf. Cannot fail. */
static void commit(leaf *l) {
  if (l->weight == NULL) return;
  heed_module *m = l->module;
  heed__module_swap_parameter(m, m->class->storable, &l->weight);
  heed__slot *slot = heed__module_slot(m, HEED__SCALE);
  if (slot != NULL) { /* the weight was int8; it is not converted to int8 again */
    heed__module_take_parameter(m, HEED__SCALE, &l->scale);
  } else if (l->scale != NULL) {
    heed__module_insert_parameter(m, m->class->storable, HEED__SCALE, l->scale);
    l->scale = NULL;
  }
}

heed_status heed__modules_to(heed_context *ctx, const char *function, int64_t count,
                             heed_module *const *modules, heed_dtype dtype) {
  conversion c = {.ctx = ctx, .function = function, .dtype = dtype};
  char text[HEED__DTYPES_TEXT], shape[HEED__SHAPE_TEXT];
  heed_status status = HEED_OK;
  if ((heed__module_dtypes() & HEED__DTYPE_BIT(dtype)) == 0)
    return heed__fail(ctx, HEED_DTYPE, "%s: dtype is %s; it must be %s", function, heed_dtype_name(dtype),
                      heed__dtypes_text(text, heed__module_dtypes(), ""));
  for (int64_t i = 0; i < count; i++) gather(&c, modules[i]);
  if (c.refused != NULL && !c.fits)
    return heed__fail(
        ctx, HEED_SHAPE, "%s: dtype is %s; the rows of no weight are whole blocks of 32 elements: one is %s",
        function, heed_dtype_name(dtype), heed__shape_text(shape, c.refused->ndim, c.refused->shape));
  if (c.count == 0) return HEED_OK;
  const size_t bytes = (size_t)c.count * sizeof *c.leaves;
  c.leaves = heed__allocate(ctx, bytes);
  if (c.leaves == NULL) return heed__fail_memory(ctx, function, bytes);
  c.count = 0;
  for (int64_t i = 0; i < count; i++) gather(&c, modules[i]);

  const heed__recorder *recorder = heed__pause_recording(ctx); /* the new weights are parameters, too */
  for (int64_t i = 0; i < c.count && status == HEED_OK; i++) {
    if (!share(&c, i, &status)) status = convert(&c, &c.leaves[i]);
  }
  heed__resume_recording(ctx, recorder);
  for (int64_t i = 0; i < c.count && status == HEED_OK; i++) commit(&c.leaves[i]);
  for (int64_t i = 0; i < c.count; i++) { /* the old tensors or, after a failure, the new ones */
    heed_tensor_free(c.leaves[i].weight);
    heed_tensor_free(c.leaves[i].scale);
  }
  heed__release(ctx, c.leaves);
  return status;
}

heed_status heed_module_to(heed_module *m, heed_dtype dtype) {
  HEED__ENTER(heed_module_context(m), "to", m);
  if (!heed__is_any_dtype(dtype)) return heed__refuse_dtype(m->context, "to", "dtype", dtype);
  return heed__modules_to(m->context, "to", 1, &m, dtype);
}
