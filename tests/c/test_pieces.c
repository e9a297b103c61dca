/* The elements of a tensor as the bytes of a file, in pieces (src/io/files.h). */
#include "support.h"

#include "../../src/io/files.h"

/* The bytes of the elements of x, row-major and little-endian as in files; x is contiguous. */
static void bytes_in_files(const heed_tensor *x, size_t count, unsigned char *out) {
  const size_t width = heed__element_bytes(x->dtype);
  const unsigned char *bytes = heed_tensor_data((heed_tensor *)x);
  const union {
    uint16_t number;
    unsigned char first;
  } order = {.number = 1};
  for (size_t i = 0; i < count * width; i++)
    out[i] = bytes[order.first == 1 ? i : i / width * width + (width - 1 - i % width)];
}

/* With a buffer of any size, the pieces together are the row-major copy. */
static void pieces_are_row_major_in_a_buffer_of_any_size(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *whole = NULL, *x = NULL, *view = NULL, *turned = NULL, *copy = NULL;
  _Alignas(8) char buffer[24 * 8], got[24 * 8];
  unsigned char wanted[24 * 8];
  for (int dtype = 0; dtype <= HEED_INT8; dtype++) {
    assert_ok(heed_range(ctx, HEED_INT64, heed_integer(0), heed_integer(23), heed_integer(1), &whole));
    assert_ok(heed_to(ctx, whole, (heed_dtype)dtype, &x));
    assert_ok(heed_view(ctx, x, 3, SHAPE(2, 3, 4), &view));
    assert_ok(heed_permute(ctx, view, 3, (const int[]){3, 1, 2}, &turned));
    assert_ok(heed_clone(ctx, turned, &copy));
    bytes_in_files(copy, 24, wanted);
    for (size_t bytes = 8; bytes <= sizeof(buffer); bytes++) {
      heed__pieces pieces;
      size_t used = 0;
      heed__pieces_begin(&pieces, turned, buffer, bytes);
      while (heed__pieces_next(&pieces)) {
        assert_true(pieces.bytes > 0 && pieces.bytes <= bytes && used + pieces.bytes <= sizeof(got));
        memcpy(got + used, pieces.data, pieces.bytes);
        used += pieces.bytes;
      }
      assert_int_equal(used, 24 * heed__element_bytes((heed_dtype)dtype));
      assert_memory_equal(got, wanted, used);
    }
    heed_tensor *const all[] = {whole, x, view, turned, copy};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) heed_tensor_free(all[i]);
    whole = x = view = turned = copy = NULL;
  }
}

/* As caches save their lengths: bools are copied on every machine, numbers on a big-endian one. */
static void pieces_can_be_those_of_a_header_on_the_stack(void **state) {
  (void)state;
  const uint8_t flags[5] = {0, 1, 2, 255, 0}, flags_in_file[5] = {0, 1, 1, 1, 0};
  const int64_t numbers[2] = {1, -2};
  unsigned char numbers_in_file[16];
  _Alignas(8) char buffer[16];
  heed_tensor x;
  heed__pieces pieces;
  heed__header_on_stack(&x, HEED_BOOL, flags, 1, SHAPE(5));
  heed__pieces_begin(&pieces, &x, buffer, sizeof(buffer));
  assert_true(heed__pieces_next(&pieces));
  assert_memory_equal(pieces.data, flags_in_file, 5);
  assert_false(heed__pieces_next(&pieces));
  heed__header_on_stack(&x, HEED_INT64, numbers, 1, SHAPE(2));
  bytes_in_files(&x, 2, numbers_in_file);
  heed__pieces_begin(&pieces, &x, buffer, sizeof(buffer));
  assert_true(heed__pieces_next(&pieces));
  assert_memory_equal(pieces.data, numbers_in_file, 16);
  assert_false(heed__pieces_next(&pieces));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(pieces_are_row_major_in_a_buffer_of_any_size),
      TEST(pieces_can_be_those_of_a_header_on_the_stack),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
