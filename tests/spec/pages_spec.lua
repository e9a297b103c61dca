-- What README.md, docs and the other pages show is true: their code runs and prints what they say, and their links,
-- paths and make targets exist. See tests/pages.lua for the rules.
local pages = require "tests.pages"
local support = require "tests.support"

local all = {}
for _, path in ipairs(pages.list()) do all[#all + 1] = pages.read(path) end

-- A file or a folder; with a "*" any file that fits.
local function exists(path)
  if path:find("*", 1, true) then return support.run("ls -d " .. path:gsub("[^%w_./*-]", "")).code == 0 end
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

-- Calls f(folder) with a temporary folder, in which `build`, `scripts`, `src` and `tests` are links to those of this
-- build: code on a page may write files there.
local function in_folder(f)
  local folder = os.tmpname()
  os.remove(folder)
  local links = {
    build = support.build, scripts = support.top .. "/scripts", src = support.top .. "/src",
    tests = support.top .. "/tests",
  }
  assert(support.run("mkdir " .. folder).code == 0)
  for name, target in pairs(links) do
    assert(support.run(("ln -s %s %s/%s"):format(support.quote(target), folder, name)).code == 0)
  end
  local results = support.pack(pcall(f, folder))
  support.remove_folder(folder)
  if not results[1] then error(results[2], 0) end
end

-- Runs a command there and compares what it prints.
local function check(folder, command, output, quiet)
  local ran = support.run(("cd %s && %s"):format(folder, command))
  if ran.code ~= 0 then error(ran.out .. ran.err, 0) end
  if quiet then assert.are.equal("", ran.err) end
  if output then assert.are.equal(output, ran.out) end
  return ran.out
end

-- ---- Code ---------------------------------------------------------------------------------------

local function check_lua(page, script)
  in_folder(function(folder)
    local name = page.path:gsub("/", "_") .. ".lua"
    support.write(folder .. "/" .. name, script.code)
    local out, i = check(folder, support.heed .. " " .. name, nil, true), 0
    for text in out:gmatch "([^\1]*)\1" do
      i = i + 1
      if script.outputs[i] then assert.are.equal(script.outputs[i], text) end
    end
    assert.are.equal(#script.outputs, i)
  end)
end

-- Text on one line. Numbers are printed as 6.0 by Lua 5.3 and later, as 6 by others.
local function flat(text)
  text = (text .. " "):gsub("%s+", " ")
  if not math.type then text = text:gsub("(%d)%.0 ", "%1 ") end
  return (text:gsub(" $", ""))
end

-- Every row must run; all rows whose text differs are shown at once.
local function check_rows(page, rows)
  in_folder(function(folder)
    local name = page.path:gsub("/", "_") .. ".lua"
    support.write(folder .. "/" .. name, pages.row_script(rows))
    local out, i, want, got = check(folder, support.heed .. " " .. name, nil, true), 0, {}, {}
    for text in out:gmatch "([^\1]*)\1" do
      i = i + 1
      local row = rows[i]
      if row.gives then
        want[i] = ("line %d: %s"):format(row.line, flat(row.gives))
        got[i] = ("line %d: %s"):format(row.line, flat(text))
      end
    end
    assert.are.equal(#rows, i)
    assert.are.same(want, got)
  end)
end

local function check_prompt(block)
  local lines, output = pages.session(block.code)
  local result = support.run(support.heed .. " -i", lines)
  assert.are.same({ code = 0, out = output, err = "" }, result)
end

local BUILD_C = [[
  lua=$(%s/scripts/dev/find_lua.sh %s library) || exit
  cc $PAGES_CFLAGS -std=c11 -Wall -Wextra -Werror page.c -Isrc $(pkg-config --cflags $lua) build/libheed.a -o page \
    $(pkg-config --libs $lua) -lopenblas -lcjson -lz -lutf8proc -lm -pthread]]

local function check_c(block)
  in_folder(function(folder)
    local code = block.code
    if not support.has.loops then -- 5.1 has no luaL_requiref; docs/lua-versions.md says what to write instead
      code = code:gsub("luaL_requiref%b();.-\n", "lua_pushcfunction(L, luaopen_heed);\nlua_call(L, 0, 1);\n")
    end
    support.write(folder .. "/page.c", code)
    check(folder, BUILD_C:format(support.quote(support.top), support.lua), nil, true)
    check(folder, "./page", block.output, true)
  end)
end

-- A target with a slash is a file, which a pattern may make. The make that runs the tests may have other settings.
local MAKE = "env -u BUILD -u LUA -u MAKEFLAGS make "
local targets -- of the Makefile, a set
local function is_target(name)
  if name:find "/" then return support.run(MAKE .. "-n " .. name).code == 0 end
  if not targets then
    targets = {}
    local database = support.run(MAKE .. "-pq header 2>/dev/null || true") -- header has nothing to build
    for target in ("\n" .. database.out):gmatch "\n([%w_/-]+):[^=]" do targets[target] = true end
  end
  return targets[name] ~= nil
end

local function check_make(command)
  for _, target in ipairs(pages.targets(command)) do
    assert(is_target(target), ("'%s': make has no target %s"):format(command, target))
  end
end

-- Make targets are looked up, `build/heed` is run, and a block with any other command must say why it is not run.
local function check_shell(block)
  local parsed = support.run("sh -n", block.code)
  assert.are.same({ code = 0, err = "" }, { code = parsed.code, err = parsed.err })
  for word in block.code:gmatch "%f[%w_./]scripts/[%w_./-]+" do assert(exists(word), word .. " does not exist") end
  local runs = false
  for _, command in ipairs(pages.commands(block.code)) do
    if command:find "^make%f[%A]" then
      check_make(command)
    elseif not block.reason then
      assert(command:find "^build/heed", ("'%s': only make and build/heed can run here"):format(command))
      runs = true
    end
  end
  if runs then in_folder(function(folder) check(folder, block.code, block.output) end) end
end

local is_model_built = exists(support.build .. "/models/all-MiniLM-L6-v2/model.safetensors") -- by `make model`

describe("the code blocks of", function()
  for _, page in ipairs(all) do
    local with_model = support.read(page.path):find("\n<!-- runs with a model -->\n", 1, true)
    local test_script = with_model and not is_model_built and pending or it
    for _, script in ipairs(pages.scripts(page)) do
      test_script(("%s, line %d: the Lua code prints what the page shows"):format(page.path, script.line), function()
        check_lua(page, script)
      end)
    end
    for _, rows in ipairs(page.tables) do
      local line = assert(rows[1], page.path .. ": a comment 'rows run after' without a table").line
      it(("%s, line %d: the rows give what the table says"):format(page.path, line), function()
        check_rows(page, rows)
      end)
    end
    for i, block in ipairs(page.blocks) do
      local where = ("%s, line %d: "):format(page.path, block.line)
      it(where .. "the language, and a reason not to run, are known ones", function()
        local language, reason, above = block.language, block.reason, page.blocks[i - 1]
        assert(pages.LANGUAGES[language], ("'%s' is not a known language"):format(language))
        if reason then assert(pages.REASONS[reason], ("'%s' is not a known reason"):format(reason)) end
        if language == "text" then assert(above and above.language ~= "text", "there is no code above the text") end
        if language == "cmake" then assert.are.equal("make test-install runs it", reason) end
      end)
      if block.language == "c" then -- a library with sanitizers needs more flags to link than the pages show
        local test = (block.reason or support.build:find "asan") and pending or it
        test(where .. "the C program compiles and runs", function() check_c(block) end)
      elseif block.language == "prompt" then
        it(where .. "the prompt shows what the page shows", function() check_prompt(block) end)
      elseif block.language == "sh" then
        it(where .. "the commands exist", function() check_shell(block) end)
      end
    end
  end
end)

-- ---- Links and names ----------------------------------------------------------------------------

local function find_page(path)
  for _, page in ipairs(all) do
    if page.path == path then return page end
  end
end

-- The path of a link's target, seen from the top folder, and its anchor; nil for addresses.
local function resolve(page, link)
  if link:find "^%a+:" then return nil end
  local path, name = link:match "^([^#]*)#?(.*)$"
  if path == "" then return page.path, name end
  path = (page.path:match "^.*/" or "") .. path
  while path:find "[^/]+/%.%./" do path = path:gsub("[^/]+/%.%./", "", 1) end
  return path, name
end

describe("the pages", function()
  it("have no dead links", function()
    local dead = {}
    for _, page in ipairs(all) do
      for _, link in ipairs(page.links) do
        local path, name = resolve(page, link.text)
        local target = path and find_page(path)
        if path and (not exists(path) or name ~= "" and not (target and target.anchors[name])) then
          dead[#dead + 1] = ("%s:%d: %s"):format(page.path, link.line, link.text)
        end
      end
    end
    assert.are.same({}, dead)
  end)

  it("can all be reached from the README", function()
    local reached, queue = { ["README.md"] = true }, { "README.md" }
    while #queue > 0 do
      local page = find_page(table.remove(queue))
      for _, link in ipairs(page and page.links or {}) do
        local path = resolve(page, link.text)
        if path and not reached[path] then
          reached[path] = true
          queue[#queue + 1] = path
        end
      end
    end
    for _, page in ipairs(all) do assert(reached[page.path], page.path) end
  end)

  it("of docs are all on docs/contents.md", function()
    local listed = {}
    for _, link in ipairs(find_page("docs/contents.md").links) do listed["docs/" .. link.text] = true end
    for _, page in ipairs(all) do
      local needed = page.path:find "^docs/" and page.path ~= "docs/contents.md"
      assert(listed[page.path] or not needed, page.path)
    end
  end)

  it("name files and make targets that exist", function()
    local missing = {}
    for _, page in ipairs(all) do
      for _, span in ipairs(page.path ~= "CHANGELOG.md" and page.spans or {}) do
        local path = span.text:match "^[%l]+/[%w_./*-]+$"
        local top = path and path:match "^%l+"
        local ours = top == "src" or top == "lua" or top == "scripts" or top == "tests" or top == "docs"
        if ours and not path:find "%u%u" and not exists(path) then -- NAME stands for any name
          missing[#missing + 1] = ("%s:%d: %s"):format(page.path, span.line, path)
        end
        if span.text:find "^make " and not span.text:find "…" then check_make(span.text) end
      end
    end
    assert.are.same({}, missing)
  end)

  it("quote the message of matmul as it is", function()
    local heed = require "heed"
    local _, message = pcall(function() return heed.ones(6, 3):matmul(heed.ones(2, 3)) end)
    message = message:gsub("^.-:%d+: ", "")
    for _, path in ipairs { "CONTRIBUTING.md", "src/cli/heed.1" } do
      local text = support.read(path):gsub("%s+", " ")
      assert(text:find(message, 1, true), ("%s does not have '%s'"):format(path, message))
    end
  end)

  it("have one line for each entry of the changelog", function()
    for line in support.read("CHANGELOG.md"):match("## %[Unreleased%].*"):gmatch "[^\n]+" do
      assert(line:find "^[#-]" and #line <= 150, line)
    end
  end)

  it("name every example", function()
    local examples = support.run "cd scripts/examples && ls -d */ *.lua *.c *.py"
    assert.are.equal(0, examples.code)
    for name in examples.out:gmatch "[^\n]+" do
      local found = false
      for _, page in ipairs(all) do found = found or support.read(page.path):find("examples/" .. name, 1, true) end
      assert(found, ("scripts/examples/%s is on no page"):format(name))
    end
  end)

  it("name every option of attention", function()
    local page = support.read "docs/attention-options.md"
    local files = {
      AttentionOptions = "attention_functions", MultiHeadAttentionOptions = "attention", ForwardOptions = "nn",
    }
    for class, file in pairs(files) do
      local annotations = support.read("lua/heed/meta/" .. file .. ".lua")
      local fields = annotations:match("%-%-%-@class heed%." .. class .. "[^\n]*\n(.-)\n\n")
      for name in fields:gmatch "%-%-%-@field ([%w_]+)" do
        assert(page:find("`" .. name .. "`", 1, true), ("docs/attention-options.md: %s is missing"):format(name))
      end
    end
  end)
end)
