/* The scalar kernel of Philox: the function of core. */
#include "scalar.h"

void heed__scalar_philox(uint32_t *out, const uint32_t *key, uint64_t block, uint64_t thread, size_t n) {
  heed__philox_blocks(out, key, block, thread, n);
}
