-- Checks the layers in the source: what each file may include and call. (check_objects.lua: what the linker sees.)
--   heed scripts/dev/check_layers.lua FILE...     C sources and headers, by their path from the top
-- As a module (dofile) it returns check(path, text) -> a list of problems, and the list of layers.

-- From bottom to top: a layer may include the doors of those before it.
-- distributed is a module of its own, on heed.h alone.
local layers = { "core", "kernels", "ops", "attention", "grad", "nn", "io", "text", "binding", "cli", "distributed" }
local door = {
  core = "core.h", kernels = "kernels.h", ops = "ops.h", attention = "attention.h", grad = "grad.h", nn = "nn.h",
  io = "io.h", text = "text.h", binding = "lheed.h",
}
local level = {}
for i, layer in ipairs(layers) do level[layer] = i end

-- What only some files may use: `includes` and `calls` are patterns, `files` patterns of the paths of these files.
local reserved = {
  {
    what = "Lua", files = { "^src/binding/", "^src/cli/", "^src/distributed/lmpi%.c$" },
    includes = { "lua%.h$", "lualib%.h$", "lauxlib%.h$" }, calls = { "lua_%w+", "luaL_%w+" },
  },
  { what = "BLAS", files = { "^src/ops/gemm%.c$" }, includes = { "cblas" }, calls = { "cblas_%w+" } },
  {
    what = "loading libraries", files = { "^src/ops/gemm%.c$" }, -- BLAS
    includes = { "dlfcn%.h$" }, calls = { "dlopen", "dlsym", "LoadLibrary%w*" },
  },
  {
    what = "intrinsics", files = { "^src/kernels/isa/[%w_]+%.h$" },
    includes = { "intrin%.h$", "arm_neon%.h$", "arm_sve%.h$" }, calls = { "_mm%d*_[%w_]+" },
  },
  {
    what = "threads", files = { "^src/core/parallel%.c$", "^src/cli/interrupt%.c$" },
    includes = { "pthread%.h$", "^threads%.h$" }, calls = { "pthread_%w+", "thrd_%w+", "CreateThread" },
  },
  {
    what = "utf8proc", files = { "^src/io/text%.c$" }, includes = { "utf8proc%.h$" }, calls = { "utf8proc_%w+" },
  },
  { what = "cJSON", files = { "^src/io/json%.c$" }, includes = { "cJSON%.h$" }, calls = { "cJSON_%w+" } },
  {
    what = "zlib", files = { "^src/io/zip%.h$", "^src/io/zip_%w+%.c$", "^src/io/compress%.c$" },
    includes = { "^zlib%.h$" }, calls = { "inflate%w*", "deflate%w*", "crc32%w*", "adler32%w*" },
  },
  {
    what = "the operating system",
    files = { "^src/core/system_%w+%.c$", "^src/core/parallel%.c$", "^src/cli/", "^src/distributed/mpi%.c$" },
    includes = { "^windows%.h$", "^unistd%.h$", "^signal%.h$", "^time%.h$" }, calls = {},
  },
  {
    what = "files and pages", files = { "^src/core/system_%w+%.c$", "^src/cli/" },
    includes = { "^fcntl%.h$", "^sys/" }, calls = { "open", "fopen", "mmap", "madvise", "CreateFile%w+" },
  },
  { what = "MPI", files = { "^src/distributed/mpi%.c$" }, includes = { "^mpi%.h$" }, calls = { "P?MPI_%w+" } },
  { what = "libedit", files = { "^src/cli/" }, includes = { "histedit%.h$", "readline%.h$" }, calls = {} },
  {
    what = "the end of the process", files = { "^src/cli/", "^src/distributed/mpi%.c$" },
    includes = {}, calls = { "exit", "_exit", "_Exit", "quick_exit", "abort" },
  },
  {
    what = "printing", files = { "^src/cli/", "^src/distributed/mpi%.c$" }, -- as the last words of a job
    includes = {}, calls = { "printf", "vprintf", "fprintf", "vfprintf", "puts", "fputs", "putchar", "perror" },
  },
  {
    what = "the heap", files = { "^src/cli/", "^src/core/alloc%.c$", "^src/core/context%.c$" }, -- the default allocator
    includes = {}, calls = { "malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "free" },
  },
}

-- The macros of systems, and the files whose conditions may test them: those of the operating system; heed.h and core.h
-- for attributes of the compiler.
local systems = { "_WIN32", "__linux__", "__APPLE__", "__wasi__", "__wasm__", "__MINGW32__", "__EMSCRIPTEN__" }
local system_files = {
  "^src/core/system_%w+%.c$", "^src/core/parallel%.c$", "^src/cli/", "^src/heed%.h$", "^src/core/core%.h$",
}

-- The macro of a system that a preprocessor condition tests, if any.
local function tested_system(line)
  if not line:find "^%s*#%s*e?l?ifn?d?e?f?" then return nil end
  for _, name in ipairs(systems) do
    if line:find("%f[%w_]" .. name .. "%f[^%w_]") then return name end
  end
end

-- Where printf and its kin may write floating-point numbers; everywhere else they would show the locale's separator.
local number_files = { "^src/core/number_text%.c$", "^src/cli/" }

-- Whether a line has a string with a conversion of printf's for floating-point numbers.
local function formats_a_number(line)
  for text in line:gmatch('"(.-)"') do
    if text:gsub("%%%%", ""):find("%%[-+ #0-9.*]*[aAeEfFgG]") then return true end
  end
  return false
end

local function matches_any(text, patterns)
  for _, pattern in ipairs(patterns) do
    if text:find(pattern) then return true end
  end
  return false
end

-- The text with comments and the contents of strings blanked, line by line as before.
local function code_of(text)
  local function blank(s) return (s:gsub("[^\n]", " ")) end
  local out, at = {}, 1
  while true do
    local start = text:find("[\"'/]", at)
    if not start then break end
    local stop, two = nil, text:sub(start, start + 1)
    if two == "/*" then
      stop = select(2, text:find("*/", start + 2, true)) or #text
    elseif two == "//" then
      stop = (text:find("\n", start, true) or #text + 1) - 1
    elseif two:sub(1, 1) ~= "/" then -- up to the same quote, unless it is escaped
      local quote, p = two:sub(1, 1), start + 1
      while p <= #text and text:sub(p, p) ~= quote do p = p + (text:sub(p, p) == "\\" and 2 or 1) end
      stop = math.min(p, #text)
    end
    out[#out + 1] = text:sub(at, start - 1)
    out[#out + 1] = stop and blank(text:sub(start, stop)) or text:sub(start, start)
    at = (stop or start) + 1
  end
  out[#out + 1] = text:sub(at)
  return table.concat(out)
end

-- a/b/../c.h -> a/c.h
local function plain_path(path)
  local count
  repeat path, count = path:gsub("[^/]+/%.%./", "", 1) until count == 0
  return path
end

-- Files that heed.h must not reach, so that an edit of it does not recompile the kernels. As each of them may include
-- only others of them, no chain of includes leads there.
local apart_from_heed_h = { "^src/kernels/", "^src/core/types%.h$", "^src/core/convert%.h$" }

-- nil if the file at `path`, in `layer`, may include "name", else why not.
local function wrong_include(path, layer, name)
  local target = plain_path(path:match("^(.*/)[^/]*$") .. name)
  if matches_any(path, apart_from_heed_h) then
    if matches_any(target, apart_from_heed_h) then return nil end
    return "an edit of heed.h would recompile the kernels; of core they include types.h alone"
  end
  if target == "src/heed.h" then return nil end
  if layer == "distributed" and target == "src/binding/compat.h" then return nil end -- one interface to all Luas
  local other, header = target:match("^src/(%w+)/(.+)$")
  if other == layer then return nil end
  if not level[other] then return "there is no such layer" end
  if level[other] >= level[layer] or layer == "distributed" then return other .. " is not below " .. layer end
  if header ~= door[other] and not header:find("%.def$") then
    return ("%s is entered by its door, %s"):format(other, tostring(door[other]))
  end
end

local function check(path, text)
  local problems = {}
  local function problem(line, ...) problems[#problems + 1] = ("%s:%d: "):format(path, line) .. string.format(...) end
  local layer = path:match("^src/(%w+)/")
  if layer and not level[layer] then problem(1, "%s is not a layer of the design", layer) end

  local number = 0
  for raw in (text .. "\n"):gmatch("(.-)\n") do
    number = number + 1
    local bracket, name = raw:match('^%s*#%s*include%s*([<"])([^>"]+)')
    if name then
      local why = bracket == '"' and level[layer] and wrong_include(path, layer, name)
      if why then problem(number, "includes %s: %s", name, why) end
      for _, rule in ipairs(reserved) do
        if matches_any(name, rule.includes) and not matches_any(path, rule.files) then
          problem(number, "includes %s: %s is not for this file", name, rule.what)
        end
      end
    end
    local system = tested_system(raw)
    if system and not matches_any(path, system_files) then
      problem(number, "tests %s: code that depends on the system belongs in core/system_*.c", system)
    end
    if formats_a_number(raw) and not matches_any(path, number_files) then
      problem(number, "writes a float as the locale has it: do that with heed__write_number or HEED__G")
    end
  end

  number = 0
  for line in (code_of(text) .. "\n"):gmatch("(.-)\n") do
    number = number + 1
    for before, call in line:gmatch("(.?.?)%f[%w_]([%a_][%w_]*)%s*%(") do
      local is_field = before:find("%.$") or before:find("->", 1, true)
      for _, rule in ipairs(is_field and {} or reserved) do
        for _, pattern in ipairs(rule.calls) do
          if call:find("^" .. pattern .. "$") and not matches_any(path, rule.files) then
            problem(number, "calls %s: %s is not for this file", call, rule.what)
          end
        end
      end
    end
  end
  return problems
end

if not (arg and arg[0] and arg[0]:find("check_layers%.lua$")) then return check, layers end

local wrong = 0
for _, path in ipairs(arg) do
  local file = assert(io.open(path, "rb"))
  for _, text in ipairs(check(path, file:read("*a"))) do
    wrong = wrong + 1
    print(text)
  end
  file:close()
end
print(("layers: %d files, %d problems"):format(#arg, wrong))
os.exit(wrong == 0)
