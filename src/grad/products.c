/* Gradients of products. Operands are transposed by their strides; the leading dimensions of a product with
 * one matrix are folded into its rows. */
#include "grad.h"

/* x with the last two dimensions exchanged. */
static void turn(heed_tensor *view, const heed_tensor *x) {
  int order[HEED_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) order[d] = d;
  order[x->ndim - 1] = x->ndim - 2;
  order[x->ndim - 2] = x->ndim - 1;
  heed__permute_on_stack(view, x, order);
}

/* A dimension of size 1 in front of the last one, or behind it. */
static void add_dim(heed_tensor *view, const heed_tensor *x, bool behind) {
  heed__alias_on_stack(view, x);
  const int at = behind ? x->ndim : x->ndim - 1;
  for (int d = view->ndim++; d > at; d--) {
    view->shape[d] = view->shape[d - 1];
    view->stride[d] = view->stride[d - 1];
  }
  view->shape[at] = 1;
  view->stride[at] = 0;
}

/* [rows, columns of the last dimension]; a copy only where the strides need one. */
static heed_status fold_rows(heed__backward *b, const heed_tensor *x, heed_tensor **out) {
  const int64_t columns = x->shape[x->ndim - 1];
  const int64_t shape[] = {columns > 0 ? x->numel / columns : heed__numel(x->ndim - 1, x->shape, 1), columns};
  return heed__reshape(b->ctx, b->function, x, 2, shape, out);
}

/* *out = xᵀ · y of the folded rows. */
static heed_status product_of_rows(heed__backward *b, const heed_tensor *x, const heed_tensor *y,
                                   heed_tensor **out) {
  heed_tensor *left = NULL, *right = NULL, turned;
  heed_status status = fold_rows(b, x, &left);
  if (status == HEED_OK) status = fold_rows(b, y, &right);
  if (status == HEED_OK) {
    turn(&turned, left);
    status = heed_matmul(b->ctx, &turned, right, out);
  }
  heed_tensor_free(left);
  heed_tensor_free(right);
  return status;
}

/* dx[i] = product, which loses the dimensions of size 1 that vectors were given. */
static heed_status give_product(heed__backward *b, int i, heed_status status, heed_tensor *product) {
  const heed__saved *x = &b->node->saved[i];
  if (status == HEED_OK && x->ndim == 1) {
    heed_tensor *sum = NULL;
    const int64_t matrix[] = {i == 0 ? 1 : x->dims[0], i == 0 ? x->dims[0] : 1};
    status = heed__sum_to_shape(b->ctx, b->function, product, 2, matrix, &sum);
    if (status == HEED_OK) status = heed__reshape(b->ctx, b->function, sum, 1, x->dims, &b->dx[i]);
    heed_tensor_free(sum);
  } else if (status == HEED_OK) {
    b->dx[i] = product;
    return HEED_OK;
  }
  heed_tensor_free(product);
  return status;
}

/* PyTorch makes a product of several operations; this is the last of them. */
const char *heed__matmul_name(const heed__node *node) {
  const int a = node->saved[0].ndim, b = node->saved[1].ndim;
  if (a == 1 && b == 1) return "DotBackward0";
  if (a == 2 && b == 1) return "MvBackward0";
  if (a == 1 && b == 2) return "SqueezeBackward4";
  if (a == 2 && b == 2) return "MmBackward0";
  /* one matrix for a batch of others */
  const bool is_one =
      a == 2 || (a == 3 && b == 3 && node->saved[0].dims[0] == 1 && node->saved[1].dims[0] != 1);
  if (!is_one || node->input[0] == NULL) return "UnsafeViewBackward0";
  const int64_t rows = node->saved[0].dims[a - 2], columns = node->saved[1].dims[b - 1];
  return rows == 1 || columns == 1 ? "TransposeBackward0"
                                   : "CloneBackward0"; /* a copy, where one is needed */
}

static const char *linear_name(const heed__node *node, bool biased) {
  const heed__saved *x = &node->saved[0];
  if (x->ndim == 2) return biased ? "AddmmBackward0" : "MmBackward0";
  if (!biased) return x->ndim == 1 ? "SqueezeBackward4" : "UnsafeViewBackward0";
  return heed__saved_is_row_major(x) ? "ViewBackward0" : "AddBackward0";
}

/* An input that was not given has a saved shape of its own: that of nothing. */
const char *heed__linear_name(const heed__node *node) {
  return linear_name(node, node->saved[2].ndim > 0);
}
const char *heed__linear_int8_name(const heed__node *node) {
  return linear_name(node, node->saved[3].ndim > 0);
}

heed_status heed__matmul_backward(heed__backward *b) {
  heed_tensor left, right, whole, rows, columns, turned;
  const heed__saved *saved = b->node->saved;
  const heed_tensor *dy = b->dy[0];
  heed_status status = HEED_OK;
  if (saved[1].ndim == 1) {
    add_dim(&columns, dy, true);
    dy = &columns;
  }
  if (saved[0].ndim == 1) {
    add_dim(&rows, dy, false);
    dy = &rows;
  }
  if (heed__backward_wants(b, 0)) { /* dy · bᵀ */
    const heed_tensor *y = heed__backward_input(b, 1, &right);
    if (y->ndim == 1) {
      add_dim(&whole, y, true);
      y = &whole;
    }
    heed_tensor *product = NULL;
    turn(&turned, y);
    status = heed_matmul(b->ctx, dy, &turned, &product);
    status = give_product(b, 0, status, product);
  }
  if (status == HEED_OK && heed__backward_wants(b, 1)) { /* aᵀ · dy */
    const heed_tensor *x = heed__backward_input(b, 0, &left);
    if (x->ndim == 1) {
      add_dim(&whole, x, false);
      x = &whole;
    }
    heed_tensor *product = NULL;
    if (saved[1].ndim <= 2 && dy->ndim > 2 && x->ndim == dy->ndim) {
      status = product_of_rows(b, x, dy, &product);
    } else {
      turn(&turned, x);
      status = heed_matmul(b->ctx, &turned, dy, &product);
    }
    status = give_product(b, 1, status, product);
  }
  return status;
}

/* dx = dy · weight */
static heed_status linear_input(heed__backward *b, const heed_tensor *weight) {
  return heed_matmul(b->ctx, b->dy[0], weight, &b->dx[0]);
}

/* dbias = the sum of dy's rows */
static heed_status linear_bias(heed__backward *b, int i) {
  const heed__saved *bias = &b->node->saved[i];
  if (!heed__backward_wants(b, i)) return HEED_OK;
  return heed__sum_to_shape(b->ctx, b->function, b->dy[0], bias->ndim, bias->dims, &b->dx[i]);
}

heed_status heed__linear_backward(heed__backward *b) {
  heed_tensor header;
  const heed_tensor *dy = b->dy[0];
  heed_status status = HEED_OK;
  if (heed__backward_wants(b, 0)) {
    const heed_tensor *weight = heed__backward_input(b, 1, &header);
    heed_tensor *widened = NULL;
    status = heed__to(b->ctx, b->function, weight, HEED_FLOAT32, &widened);
    if (status == HEED_OK) status = linear_input(b, widened);
    heed_tensor_free(widened);
  }
  if (status == HEED_OK && heed__backward_wants(b, 1)) {
    const heed_tensor *x = heed__backward_input(b, 0, &header);
    heed_tensor rows, turned;
    if (dy->ndim == 1) { /* one row */
      heed_tensor row;
      add_dim(&rows, dy, false);
      add_dim(&row, x, false);
      turn(&turned, &rows);
      status = heed_matmul(b->ctx, &turned, &row, &b->dx[1]);
    } else {
      status = product_of_rows(b, dy, x, &b->dx[1]);
    }
  }
  return status ? status : linear_bias(b, 2);
}

/* x, weight, scale, bias: the weight and its scales are constants. */
heed_status heed__linear_int8_backward(heed__backward *b) {
  heed_tensor first, second, *widened = NULL;
  heed_status status = HEED_OK;
  if (heed__backward_wants(b, 0)) {
    status = heed__dequantize_int8(b->ctx, b->function, heed__backward_input(b, 1, &first),
                                   heed__backward_input(b, 2, &second), &widened);
    if (status == HEED_OK) status = linear_input(b, widened);
    heed_tensor_free(widened);
  }
  return status ? status : linear_bias(b, 3);
}

heed_status heed__dot_backward(heed__backward *b) {
  heed_tensor other;
  heed_status status = HEED_OK;
  for (int i = 0; i < 2 && status == HEED_OK; i++) {
    if (heed__backward_wants(b, i))
      status = heed_mul(b->ctx, b->dy[0], heed__backward_input(b, 1 - i, &other), &b->dx[i]);
  }
  return status;
}
