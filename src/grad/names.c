/* The names of nodes of products, slices and assignments, which depend on the call, as PyTorch 2.13 prints them. */
#include "grad.h"

static int ndim_of(const heed__node *node, int input) {
  return node->saved[input].ndim;
}

const char *heed__matmul_name(const heed__node *node) {
  const int a = ndim_of(node, 0), b = ndim_of(node, 1);
  if (a == 1 && b == 1) return "DotBackward0";
  if (a == 2 && b == 2) return "MmBackward0";
  if (a == 2 && b == 1) return "MvBackward0";
  if (a == 1 && b == 2) return "SqueezeBackward4";
  return "UnsafeViewBackward0";
}

const char *heed__linear_name(const heed__node *node) {
  const bool bias = node->saved[2].dims != NULL;
  if (ndim_of(node, 0) > 2) return bias ? "ViewBackward0" : "UnsafeViewBackward0";
  return bias ? "AddmmBackward0" : "MmBackward0";
}

const char *heed__slice_name(const heed__node *node) {
  const heed__strided_values *v = node->values;
  return v->view.order[0] == HEED__STRIDED && v->selects ? "SelectBackward0" : "SliceBackward0";
}

const char *heed__copy_name(const heed__node *node) {
  return node->inputs == 2 ? "CopySlices" : "CopyBackwards";
}
