/* Numbers and dtypes as fields of the library: heed.inf, heed.float32. The dtypes are strings, so that they
 * can be given wherever a dtype is. heed.float, heed.long and heed.bool are functions, which lheed_opt_dtype
 * accepts as well. */
#include <math.h>

#include "lheed.h"

void lheed_open_constants(lua_State *L) {
  lua_pushvalue(L, -2); /* the library */
  lheed_set_number(L, "inf", INFINITY);
  lheed_set_number(L, "nan", NAN);
  lheed_set_number(L, "pi", 3.14159265358979323846);
  lheed_set_number(L, "e", 2.71828182845904523536);
#define X(name, text, type)                                                                                  \
  if (HEED_##name != HEED_BOOL) lheed_set_string(L, text, text);
  HEED_DTYPE_LIST(X)
#undef X
  lheed_set_string(L, "half", "float16");
  lua_pop(L, 1);
}
