/* Elementwise gradients: one pass over the gradient of a result and over what it was computed from. */
#include "map.h"

typedef struct gradient_rows {
  heed__gradient_row *row;
  const double *numbers;
  bool has_second;
} gradient_rows;

static void gradient_of_row(const void *user, void *out, const heed__span *in, size_t n) {
  const gradient_rows *rows = user;
  rows->row(out, in[0].data, in[1].data, rows->has_second ? in[2].data : NULL, rows->numbers, n);
}

static heed_status map_gradient(heed_context *ctx, const char *function, heed__gradient_row *row,
                                const double *numbers, const heed_tensor *dy, const heed_tensor *a,
                                const heed_tensor *b, heed_dtype read_as, heed_tensor **dx) {
  const gradient_rows rows = {row, numbers, b != NULL};
  heed__map map = {
      .function = function,
      .result = HEED_FLOAT32,
      .row = gradient_of_row,
      .user = &rows,
      .packed = true,
      .count = b != NULL ? 3 : 2,
      .input = {{"gradient", dy, HEED_FLOAT32}, {"a", a, read_as}, {"b", b, read_as}},
  };
  return heed__map_run(ctx, &map, dx);
}

heed_status heed__map_gradient(heed_context *ctx, const char *function, heed__gradient_row *row,
                               const double *numbers, const heed_tensor *dy, const heed_tensor *a,
                               const heed_tensor *b, heed_tensor **dx) {
  return map_gradient(ctx, function, row, numbers, dy, a, b, HEED_FLOAT32, dx);
}

heed_status heed__map_mask_gradient(heed_context *ctx, const char *function, heed__gradient_row *row,
                                    const double *numbers, const heed_tensor *dy, const heed_tensor *mask,
                                    heed_tensor **dx) {
  return map_gradient(ctx, function, row, numbers, dy, mask, NULL, HEED_BOOL, dx);
}
