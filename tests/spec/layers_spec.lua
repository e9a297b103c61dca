-- scripts/dev/check_layers.lua finds violations, and nothing else.
local check = dofile "scripts/dev/check_layers.lua"

local function problem(path, text)
  local problems = check(path, text)
  assert.are.equal(1, #problems, table.concat(problems, "\n"))
  return problems[1]
end

describe("the layer check", function()
  it("lets a layer include the headers of those below it", function()
    assert.are.same({}, check("src/ops/rows.c", '#include "ops.h"\n#include "../core/core.h"\n#include "../heed.h"\n'))
    assert.are.same({}, check("src/nn/nn.h", '#include "../ops/ops.h"\n'))
    assert.are.same({}, check("src/binding/lops.c", '#include "lheed.h"\n#include "../nn/nn.h"\n#include <lua.h>\n'))
  end)

  it("rejects a layer above", function()
    assert.are.equal("src/core/tensor.c:2: includes ../ops/ops.h: ops is not below core",
      problem("src/core/tensor.c", '#include "core.h"\n#include "../ops/ops.h"\n'))
  end)

  it("rejects the private headers of other layers", function()
    assert.are.equal("src/ops/rows.c:1: includes ../kernels/scalar/scalar.h: kernels is entered by its door, kernels.h",
      problem("src/ops/rows.c", '#include "../kernels/scalar/scalar.h"\n'))
  end)

  it("keeps heed.h, and every header that includes it, out of the kernels", function()
    local reason = ": an edit of heed.h would recompile the kernels; of core they include types.h alone"
    assert.are.same({}, check("src/kernels/kernels.h", '#include "../core/types.h"\n'))
    assert.are.same({}, check("src/kernels/isa/avx2.c", '#include "../scalar/scalar.h"\n'))
    assert.are.equal("src/kernels/dispatch.c:1: includes ../heed.h" .. reason,
      problem("src/kernels/dispatch.c", '#include "../heed.h"\n'))
    assert.are.equal("src/kernels/scalar/scalar.h:1: includes ../../core/core.h" .. reason,
      problem("src/kernels/scalar/scalar.h", '#include "../../core/core.h"\n'))
    assert.are.equal("src/core/types.h:1: includes core.h" .. reason,
      problem("src/core/types.h", '#include "core.h"\n'))
  end)

  it("rejects folders that are not in the design", function()
    assert.are.equal("src/utils/x.c:1: utils is not a layer of the design", problem("src/utils/x.c", "int x;\n"))
  end)

  it("keeps Lua in the binding and the command", function()
    assert.truthy(problem("src/ops/rows.c", "#include <lua.h>\n"):find("Lua is not for this file", 1, true))
    assert.truthy(problem("src/nn/linear.c", "lua_pop(L, 1);\n"):find("calls lua_pop", 1, true))
  end)

  it("keeps BLAS, intrinsics and threads each in their own files", function()
    assert.are.same({}, check("src/ops/gemm.c", "#include <cblas.h>\nvoid f(void) { cblas_sgemm(); }\n"))
    assert.truthy(problem("src/ops/matmul.c", "#include <cblas.h>\n"):find("BLAS is not for this file", 1, true))
    assert.truthy(problem("src/io/json.c", "p = dlopen(name, 1);\n"):find("calls dlopen", 1, true))
    assert.are.same({}, check("src/kernels/isa/avx2.h", "#include <immintrin.h>\n"))
    assert.truthy(problem("src/kernels/isa/avx2.c", "#include <immintrin.h>\n"):find("intrinsics", 1, true))
    assert.are.same({}, check("src/core/parallel.c", "#include <pthread.h>\n"))
    assert.truthy(problem("src/core/context.c", "x = pthread_create(a, b, c, d);\n"):find("threads", 1, true))
  end)

  it("keeps the operating system in core", function()
    assert.are.same({}, check("src/core/system_posix.c", "#if defined(__wasi__)\n#include <sys/mman.h>\n#endif\n"))
    assert.are.same({}, check("src/core/parallel.c", "#if defined(_WIN32)\n#include <windows.h>\n#endif\n"))
    assert.truthy(problem("src/io/file.c", "#if defined(_WIN32)\n#endif\n"):find("tests _WIN32", 1, true))
    assert.truthy(problem("src/io/file.c", "#elif defined(__linux__)\n"):find("tests __linux__", 1, true))
    assert.truthy(problem("src/io/file.c", "#include <sys/stat.h>\n"):find("files and pages", 1, true))
    assert.truthy(problem("src/ops/rows.c", "#include <time.h>\n"):find("the operating system", 1, true))
  end)

  it("rejects calls that a library must not make", function()
    assert.truthy(problem("src/core/tensor.c", "void f(void) {\n  exit(1);\n}\n"):find(":2: calls exit", 1, true))
    assert.truthy(problem("src/ops/rows.c", "printf(\"%d\", 1);\n"):find("calls printf", 1, true))
    assert.truthy(problem("src/ops/rows.c", "p = malloc(8);\n"):find("calls malloc", 1, true))
  end)

  it("rejects formatting of numbers that depends on the locale", function()
    assert.truthy(problem("src/ops/rows.c", 'fail("%s: p is %.3g", f, p);\n'):find("locale", 1, true))
    assert.are.same({}, check("src/core/number_text.c", 'snprintf(text, size, "%.*e", precision, value);\n'))
    assert.are.same({}, check("src/ops/rows.c", 'fail("%s: 100 %% given of %d", f, n);\n'))
  end)

  it("is not misled by comments, strings and members", function()
    assert.are.same({}, check("src/core/tensor.c", table.concat({
      "/* malloc(8), then", "   exit(1) */ int a; // abort()", "const char *s = \"free(\\\"p\\\")\", c = '\"';",
      "allocator.free(p); a->free(p); heed__free(p); snprintf(t, 8, s);",
    }, "\n")))
  end)
end)
