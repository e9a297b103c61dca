/* The names of nodes that depend on the call, as PyTorch 2.13 prints them. */
#include "grad.h"

static const heed__gradient *of(heed__op op) {
  return heed__gradient_of(op);
}

static int ndim_of(const heed__node *node, int input) {
  return node->saved[input].ndim;
}

static const char *name_of_product(const heed__node *node) {
  const int a = ndim_of(node, 0), b = ndim_of(node, 1);
  if (a == 1 && b == 1) return "DotBackward0";
  if (a == 2 && b == 2) return "MmBackward0";
  if (a == 2 && b == 1) return "MvBackward0";
  if (a == 1 && b == 2) return "SqueezeBackward4";
  return "UnsafeViewBackward0";
}

static const char *name_of_linear(const heed__node *node) {
  const bool bias = node->saved[2].dims != NULL;
  if (ndim_of(node, 0) > 2) return bias ? "ViewBackward0" : "UnsafeViewBackward0";
  return bias ? "AddmmBackward0" : "MmBackward0";
}

const char *heed__gradient_name(const heed__node *node) {
  const heed__gradient *g = node->gradient;
  const heed__view_values *view = node->values;
  const heed__strided_values *strided = node->values;
  if (g->name_of != NULL) return g->name_of(node);
  if (g == of(HEED__OP_matmul)) return name_of_product(node);
  if (g == of(HEED__OP_linear)) return name_of_linear(node);
  if (g == of(HEED__OP_slice) && view->order[0] == HEED__STRIDED && strided->selects)
    return "SelectBackward0";
  if (g == of(HEED__OP_copy) && node->inputs == 2) return "CopySlices";
  return g->name;
}
