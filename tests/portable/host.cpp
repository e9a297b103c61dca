// A host in C++17, to check that heed.h compiles there: draws, multiplies, runs a module, reads an error message.
#include "heed.h"

#include <cmath>
#include <cstdio>
#include <memory>

namespace {

struct Free {
  void operator()(heed_context *p) const { heed_context_free(p); }
  void operator()(heed_tensor *p) const { heed_tensor_free(p); }
  void operator()(heed_module *p) const { heed_module_release(p); }
};
template <class T> using Owned = std::unique_ptr<T, Free>;

Owned<heed_tensor> normal(heed_context *ctx, int64_t rows, int64_t columns) {
  const int64_t shape[] = {rows, columns};
  heed_tensor *out = nullptr;
  if (heed_normal(ctx, nullptr, 0, 1, 2, shape, &out) != HEED_OK) std::puts(heed_message(ctx));
  return Owned<heed_tensor>(out);
}

int check(bool holds, const char *what) {
  if (!holds) std::printf("wrong: %s\n", what);
  return holds ? 0 : 1;
}

} // namespace

int main() {
  heed_context *made = nullptr;
  if (heed_context_new(nullptr, &made) != HEED_OK) return 1;
  const Owned<heed_context> ctx(made);
  const auto a = normal(ctx.get(), 6, 3), b = normal(ctx.get(), 3, 2), c = normal(ctx.get(), 2, 2);
  int wrong = 0;

  heed_tensor *product = nullptr;
  wrong += check(heed_matmul(ctx.get(), a.get(), b.get(), &product) == HEED_OK, "matmul");
  const Owned<heed_tensor> owner(product);
  const auto *x = static_cast<const float *>(heed_tensor_data(a.get()));
  const auto *y = static_cast<const float *>(heed_tensor_data(b.get()));
  const auto *z = static_cast<const float *>(heed_tensor_data(product));
  const double first = double(x[0]) * double(y[0]) + double(x[1]) * double(y[2]) + double(x[2]) * double(y[4]);
  wrong += check(std::fabs(double(z[0]) - first) < 1e-5, "the first element of the product");

  heed_module *layer = nullptr;
  wrong += check(heed_linear_new(ctx.get(), nullptr, 3, 2, true, &layer) == HEED_OK, "linear");
  const Owned<heed_module> linear(layer);

  heed_tensor *none = nullptr;
  wrong += check(heed_matmul(ctx.get(), a.get(), c.get(), &none) == HEED_SHAPE && none == nullptr, "sizes that differ");
  std::printf("%s\n%d wrong\n", heed_message(ctx.get()), wrong);
  return wrong;
}
