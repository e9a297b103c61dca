-- Joins the sources into two files, DIR/heed.c and DIR/heed.h, for hosts that add them to their own build.
--   heed scripts/dev/amalgamate.lua DIR LUA_SOURCES_H FILE... -- FILE...
-- FILE...: all C sources of the library, with paths relative to the top folder; those of binding are put under
-- #if HEED_LUA, those after -- under #if !HEED_MINIMAL.
-- LUA_SOURCES_H: the output of embed_lua.sh, which the binding includes.
--
-- The sources are joined as they are. Each header comes in once; #include <…> goes to the top with the conditions that
-- it stands under, so that no macro of ours is seen by the system's headers. No two files may define the same name.
-- The exception are the kernel tables of vector processors (isa/*.c with vector/table.h), which are compiled from the
-- same headers: macros append the table's name to each name that these define, and are undefined where the table ends.
local out_dir, lua_sources = arg[1], arg[2]

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("a")
  file:close()
  return text
end
local function write(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  assert(file:close())
end

-- ---- The beginning of the file ----

local preamble = [[
/* heed @VERSION@: an attention runtime, in one file. Made from its sources by `make amalgamation`; heed.h is the
 * interface and its manual.
 *
 *   cc -O2 -c heed.c
 *   cc game.c heed.o -lm -pthread          (Windows: gcc, without -lm -pthread; macOS: without either)
 *
 * Needs gcc 9 or clang 12, or newer, on Linux, Windows or (untested) macOS, for 32-bit or 64-bit processors. 32-bit
 * x86 needs -msse2 -mfpmath=sse, processors without 64-bit atomics -latomic. For WebAssembly, compile with clang
 * --target=wasm32-wasi, with -msimd128 for kernels with SIMD, and link with -lwasi-emulated-mman
 * -Wl,-z,stack-size=1048576; without -pthread, one thread does all the work. It contains all kernels, including those
 * for AVX2, AVX-512 and NEON, and chooses at run time: -mavx2 or -march=native are not needed. Other processors use the
 * scalar kernels. Other libraries are used only if these are defined as 1; a call that needs a missing one fails with
 * a message:
 *   HEED_BLAS      OpenBLAS, for processors without any of these vectors        -lopenblas
 *   HEED_CJSON     cJSON, to load .safetensors and config.json                  -lcjson (and where cJSON.h is: -I)
 *   HEED_ZIP       zlib, to load and save .npz                                  -lz
 *   HEED_UTF8PROC  utf8proc, for tokenizers                                     -lutf8proc
 *   HEED_LUA       the Lua interface, luaopen_heed, with its Lua files          lua.h in the path, and the host's Lua
 * Loading and saving .npy files and saving .safetensors files need none of them.
 *
 *   HEED_MINIMAL   1: a quarter of the size, for games: attention, its modules and caches, tensors, files of weights;
 *                  without training, models and tokenizers, and with AVX2 or NEON as the only kernels beside the scalar
 *                  ones. With -Os -fno-asynchronous-unwind-tables it is smallest, and hardly slower
 *
 *   HEED_API       precedes public functions, here and in heed.h; such as __attribute__((visibility("hidden"))) in a
 *                  library that must not export them
 *
 * Windows: with mingw-w64's gcc, the kernels for AVX2 and AVX-512 have no unwind tables, because with them gcc does not
 * align the stack as these kernels need (its bug 54412), and programs crash. The kernels call nothing that can throw,
 * but a debugger cannot unwind through them. Paths are UTF-8. A file whose tensors are mapped cannot be replaced before
 * they are freed. */

#if !defined(__GNUC__)
#error "heed.c needs gcc or clang (on Windows: of mingw-w64)"
#endif

#ifndef HEED_BLAS
#define HEED_BLAS 0
#endif
#ifndef HEED_CJSON
#define HEED_CJSON 0
#endif
#ifndef HEED_ZIP
#define HEED_ZIP 0
#endif
#ifndef HEED_UTF8PROC
#define HEED_UTF8PROC 0
#endif
#ifndef HEED_LUA
#define HEED_LUA 0
#endif
#ifndef HEED_MINIMAL
#define HEED_MINIMAL 0
#endif

/* POSIX functions, independent of -std; and on Windows the standard printf. */
#undef _GNU_SOURCE
#undef _DEFAULT_SOURCE
#undef _XOPEN_SOURCE
#undef _FILE_OFFSET_BITS
#define HEED__ONE_FILE    1
#define _DEFAULT_SOURCE   1
#define _XOPEN_SOURCE     700
#define _DARWIN_C_SOURCE  1
#define _FILE_OFFSET_BITS 64
#if defined(__wasi__) && !defined(_WASI_EMULATED_MMAN)
#define _WASI_EMULATED_MMAN
#endif
#undef __USE_MINGW_ANSI_STDIO
#define __USE_MINGW_ANSI_STDIO 1
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX

/* Products and sums are rounded separately unless the source fuses them, so that results are the same in every build.
 * The sources use neither errno nor floating-point traps after arithmetic. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("no-math-errno", "no-trapping-math", "fp-contract=off")
#endif
/* Keeps the order of functions: gcc 12 fails with internal errors if functions with and without unwind tables
 * alternate, as they do after sorting. */
#if defined(_WIN32) && !defined(__clang__)
#pragma GCC optimize("no-toplevel-reorder")
#endif

/* The host's build may enable these warnings, which the sources do not avoid. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

]]

-- Follows the system's headers.
local opening = [[

#undef near /* macros of Windows */
#undef far

/* Functions that are not in heed.h are not exported from the program or library that contains this file. */
#if !defined(_WIN32)
#pragma GCC visibility push(hidden)
#endif
]]
local closing = [[

#if !defined(_WIN32)
#pragma GCC visibility pop
#endif
#pragma GCC diagnostic pop
]]

-- ---- Reading sources ----

-- The text without #ifndef NAME_H … #endif around it.
local function without_guard(text)
  local before, name, inside = text:match("^(.-)#ifndef ([%u%d_]+_H)\n#define [%u%d_]+_H\n(.*)#endif%s*$")
  return name and not before:find("#", 1, true) and before .. inside or text
end

local function folder_of(path) return path:match("^(.*/)[^/]*$") or "" end

-- a/b/../c.h -> a/c.h
local function plain_path(path)
  local count
  repeat path, count = path:gsub("[^/]+/%.%./", "", 1) until count == 0
  return path
end

local system = { list = {}, seen = {} } -- #include <…> with their conditions

-- Updates the list of preprocessor conditions that apply to a line: for each #if its current condition and the
-- conditions of its earlier branches, which must be false.
local function follow(conditions, directive, rest)
  if directive == "if" then conditions[#conditions + 1] = { now = rest, before = {} }
  elseif directive == "ifdef" then conditions[#conditions + 1] = { now = "defined(" .. rest .. ")", before = {} }
  elseif directive == "ifndef" then conditions[#conditions + 1] = { now = "!defined(" .. rest .. ")", before = {} }
  elseif directive == "elif" or directive == "else" then
    local top = conditions[#conditions]
    top.before[#top.before + 1] = "!(" .. top.now .. ")"
    top.now = directive == "elif" and rest or nil
  elseif directive == "endif" then conditions[#conditions] = nil
  end
end
local function condition_of(conditions)
  local all = {}
  for _, c in ipairs(conditions) do
    for _, before in ipairs(c.before) do all[#all + 1] = before end
    if c.now then all[#all + 1] = #conditions + #c.before > 1 and "(" .. c.now .. ")" or c.now end
  end
  return table.concat(all, " && ")
end

local function add_system(name, condition)
  local key = condition .. "<" .. name
  if system.seen[key] or system.seen["<" .. name] then return end
  system.seen[key] = true
  system.list[#system.list + 1] = condition == "" and ("#include <%s>\n"):format(name)
    or ("#if %s\n#include <%s>\n#endif\n"):format(condition, name)
end

-- The text of a file with its headers, except those in `seen`.
local function join(path, seen, conditions)
  local lines = {}
  for line in without_guard(read(path)):gmatch("([^\n]*)\n") do
    local directive, rest = line:match("^%s*#%s*(%a+)%s*(.-)%s*$")
    local bracket, name = line:match('^%s*#%s*include%s*([<"])([^>"]+)')
    if bracket == "<" then
      add_system(name, condition_of(conditions))
    elseif bracket then
      local header = name == "lua_sources.h" and lua_sources or plain_path(folder_of(path) .. name)
      if not seen[header] or header:find("%.def$") then -- a list is included once for each use
        seen[header] = true
        lines[#lines + 1] = header == "src/heed.h" and '#include "heed.h"' or join(header, seen, conditions)
      end
    elseif not line:find("^#define _%u+_SOURCE%f[%s]") and not line:find("^#define _FILE_OFFSET_BITS") and
      not line:find("^#undef _GNU_SOURCE") then -- the preamble has these
      if directive then follow(conditions, directive, rest:gsub("%s*/%*.-%*/", "")) end
      lines[#lines + 1] = line
    end
  end
  return table.concat(lines, "\n")
end

-- ---- Names of the kernel tables ----

-- The text without comments, strings and preprocessor lines.
local function bare(text)
  text = text:gsub("/%*.-%*/", " "):gsub("\\\n", " "):gsub("\n%s*#[^\n]*", "\n")
  return (text:gsub('"[^"\n]*"', '""'):gsub("'[^'\n]*'", "0"))
end

-- What the text defines at file scope: functions, types, enumerators, objects. Names that macros make are not seen:
-- the headers make them with V_NAME and KERNEL, which differ in each table.
local function names_of(text)
  local names, seen = {}, {}
  local function add(name)
    if seen[name] or name:find("^[Hh][Ee][Ee][Dd]_") or name:find("^_") then return end
    seen[name] = true
    names[#names + 1] = name
  end
  text = bare(text)
  for block in text:gmatch("%f[%w_]enum%s*[%w_]*%s*(%b{})") do
    for name in block:gmatch("[{,]%s*([%a_][%w_]*)") do add(name) end
  end
  local outside = text:gsub("%b{}", "{}"):gsub("%.[%a_][%w_]*%s*=", "=") -- without designators, as .max =
  for _, pattern in ipairs {
    "([%a_][%w_]*)%s*%b()%s*[{;]", -- functions, their types
    "%f[%w_]struct%s+([%a_][%w_]*)%s*{", "{}%s*([%a_][%w_]*)%s*;", -- structs
    "%f[%w_]typedef%s[^;{}()]-([%a_][%w_]*)%s*;", "%f[%w_]typedef%s[^;{}()]-([%a_][%w_]*)%s*%[", -- other types
    "([%a_][%w_]*)%s*=%s*", "([%a_][%w_]*)%s*%b[]%s*=", "([%a_][%w_]*)%s*%b[]%s*%b[]%s*=", -- objects
  } do
    for name in outside:gmatch(pattern) do add(name) end
  end
  table.sort(names)
  return names
end

local function macros_of(text)
  local names, seen = {}, {}
  for name in text:gmatch("\n%s*#%s*define%s+([%a_][%w_]*)") do
    if not seen[name] then names[#names + 1], seen[name] = name, true end
  end
  table.sort(names)
  return names
end

-- ---- Joining ----

local function begins(path) return ("\n/* ==== %s ==== */\n\n"):format(path:gsub("^src/", "")) end

local seen, engine, binding, tables, more = {}, {}, {}, {}, false
for i = 3, #arg do
  local path = arg[i]
  local set = path:match("^src/kernels/isa/([%w_]+)%.c$")
  if path == "--" then
    more = true
  elseif set then
    tables[#tables + 1] = { path = path, set = set, more = more }
  else
    local list = path:find("^src/binding/") and binding or engine
    list[#list + 1] = { path = path, more = more }
  end
end

-- A file, of which a build with HEED_MINIMAL may have nothing.
local function part(file, text)
  return begins(file.path) .. (file.more and "#if !HEED_MINIMAL\n" .. text .. "\n#endif\n" or text .. "\n")
end
local function conditions_of(file, condition)
  local all = { condition }
  if file.more then all[#all + 1] = { now = "!HEED_MINIMAL", before = {} } end
  return all
end

local out = {}
for _, file in ipairs(engine) do out[#out + 1] = part(file, join(file.path, seen, conditions_of(file))) end

-- Tables that inherit stand below those they inherit from.
local function inherits(t) return read(t.path):find("HEED__INHERITING_TABLE", 1, true) ~= nil end
table.sort(tables, function(a, b)
  if inherits(a) ~= inherits(b) then return inherits(b) end
  return a.path < b.path
end)

for _, t in ipairs(tables) do
  local mine = setmetatable({}, { __index = seen }) -- headers that are there already, and this table's
  local text = join(t.path, mine, conditions_of(t)) .. "\n"
  local lines = {}
  local names, macros = names_of(text), macros_of("\n" .. text)
  local is_macro = {}
  for _, name in ipairs(macros) do is_macro[name] = true end
  for _, name in ipairs(names) do
    if not is_macro[name] then lines[#lines + 1] = ("#define %s %s_%s\n"):format(name, name, t.set) end
  end
  lines[#lines + 1] = "\n" .. text .. "\n"
  for _, name in ipairs(names) do
    if not is_macro[name] then lines[#lines + 1] = ("#undef %s\n"):format(name) end
  end
  for _, name in ipairs(macros) do lines[#lines + 1] = ("#undef %s\n"):format(name) end
  out[#out + 1] = part(t, table.concat(lines))
end

out[#out + 1] = "\n#if HEED_LUA\n"
for _, file in ipairs(binding) do
  out[#out + 1] = part(file, join(file.path, seen, conditions_of(file, { now = "HEED_LUA", before = {} })))
end
out[#out + 1] = "\n#endif /* HEED_LUA */\n"

local header = read "src/heed.h"
local version = header:match('#define HEED_VERSION%s+"([^"]+)"')
local top = preamble:gsub("@VERSION@", version)
write(out_dir .. "/heed.c", top .. table.concat(system.list) ..
  opening .. table.concat(out) .. closing)
write(out_dir .. "/heed.h", header)
