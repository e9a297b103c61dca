-- The project's Markdown pages: their code blocks, links, headings and code spans.
--
-- A block is a fence with a language. `text` is the output of the block above it. A block that the tests cannot run
-- stands below a comment with one of the reasons in pages.REASONS: <!-- not run: needs a model -->
--
-- A page with the line <!-- runs with a model --> is run if the build folder has the model of `make model`.
--
-- The rows of a table below <!-- rows run after: CODE --> are run one by one, each after CODE in a new script: the code
-- in the column `heed`. A filled cell in the column `gives` is what the row prints, with one space for lines and
-- indentation. A bar in code is written as \|.
local support = require "tests.support"

local pages = {}

pages.LANGUAGES = { lua = true, prompt = true, c = true, sh = true, text = true, cmake = true, python = true }

pages.REASONS = {
  ["needs a model"] = true,
  ["takes minutes"] = true,
  ["needs root"] = true,
  ["needs the network"] = true,
  ["needs a server"] = true,
  ["needs several machines"] = true,
  ["needs another compiler"] = true,
  ["needs another Lua"] = true,
  ["needs an installed heed"] = true,
  ["make test-install runs it"] = true,
  ["make test-amalgamation runs it"] = true,
}

--- The paths of all pages, README.md first.
function pages.list()
  local list = { "README.md" }
  local found = support.run "ls CHANGELOG.md CONTRIBUTING.md SECURITY.md docs/*.md scripts/examples/*/README.md"
  for path in found.out:gmatch "[^\n]+" do list[#list + 1] = path end
  return list
end

-- The name of a heading in links, as GitHub makes it.
local function anchor(heading)
  return (heading:gsub("`", ""):lower():gsub("[^%w%-_ \128-\255]", ""):gsub(" ", "-"))
end

-- The cells of a line of a table, without spaces around them; nil for other lines.
local function cells_of(line)
  if not line:find "^|" then return nil end
  local cells = {}
  for cell in line:gsub("\\|", "\1"):gsub("^|", ""):gmatch "%s*(.-)%s*|" do
    cells[#cells + 1] = (cell:gsub("\1", "|"))
  end
  return cells
end

local function unquoted(cell) return cell and (cell:match "^`` ?(.-) ?``$" or cell:match "^`([^`]*)`$" or cell) end

-- Adds a line to a table that is run: first come the names of the columns, then a rule, then the rows.
local function add_row(rows, cells, line)
  if not rows.columns then
    rows.columns = {}
    for i, name in ipairs(cells) do rows.columns[name] = i end
    assert(rows.columns.heed, ("line %d: a table that is run needs a column heed"):format(line))
  elseif not cells[1]:find "^:?%-+:?$" then
    local gives = rows.columns.gives and unquoted(cells[rows.columns.gives])
    rows[#rows + 1] = { line = line, code = unquoted(cells[rows.columns.heed]), gives = gives ~= "" and gives or nil }
  end
end

--- {path, lines = their number, blocks = {language, code, line, reason, output}, anchors = a set, links and spans =
--- {text, line}, tables}. `output` is the text below a block, nil if there is none. A table is what is run before each
--- of its rows, {setup = code, {line, code, gives}…}; `gives` is nil without that column.
function pages.read(path)
  local page = { path = path, lines = 0, blocks = {}, anchors = {}, links = {}, spans = {}, tables = {} }
  local block, previous, rows
  for line in (support.read(path)):gmatch "([^\n]*)\n" do
    page.lines = page.lines + 1
    local fence = line:match "^%s*```(.*)$"
    if block and fence then
      block.code = table.concat(block.code, "\n") .. "\n"
      local above = page.blocks[#page.blocks - 1]
      if block.language == "text" and above and above.language ~= "text" then above.output = block.code end
      block = nil
    elseif block then
      table.insert(block.code, line)
    elseif fence then
      block = { language = fence, code = {}, line = page.lines + 1 }
      block.reason = previous and previous:match "^<!%-%- not run: (.-) %-%->$"
      table.insert(page.blocks, block)
    else
      if line:find "^#+ " then page.anchors[anchor(line:match "^#+ (.*)$")] = true end
      local setup, cells = line:match "^<!%-%- rows run after: (.-) %-%->$", cells_of(line)
      if setup then
        rows = { setup = setup }
        table.insert(page.tables, rows)
      elseif not cells then
        rows = line == "" and rows and not rows.columns and rows or nil
      elseif rows then
        add_row(rows, cells, page.lines)
      end
      for span in line:gmatch "`([^`]+)`" do table.insert(page.spans, { text = span, line = page.lines }) end
      for target in line:gsub("`[^`]+`", ""):gmatch "%]%(([^)]+)%)" do
        table.insert(page.links, { text = target, line = page.lines })
      end
    end
    previous = line
  end
  assert(not block, path .. ": a code block has no end")
  return page
end

--- The Lua blocks as scripts. A block continues those above it, unless it contains `require "heed"`: then a new script
--- begins. Each is {line, code, outputs = {output or false for each block}}; the code has the page's line numbers, and
--- prints "\1" after each block.
function pages.scripts(page)
  local scripts = {}
  for _, block in ipairs(page.blocks) do
    if block.language == "lua" and not block.reason then
      local script = scripts[#scripts]
      if not script or block.code:find('require "heed"', 1, true) then
        script = { line = block.line, code = "", outputs = {} }
        scripts[#scripts + 1] = script
      end
      local _, lines = script.code:gsub("\n", "\n")
      script.code = script.code .. ("\n"):rep(block.line - 1 - lines) .. block.code .. 'io.write "\\1"'
      table.insert(script.outputs, block.output or false)
    end
  end
  return scripts
end

--- A table's rows as one script, which prints for each row what the row gives and then "\1". The code of a row is an
--- expression, whose values are printed, or statements, which may end with `return` and such values.
function pages.row_script(rows)
  local lines = { 'local heed = require "heed"', "local nn = heed.nn" }
  for _, row in ipairs(rows) do
    local is_expression = (loadstring or load)("return " .. row.code) -- luacheck: ignore 113
    local code = is_expression and "return " .. row.code or row.code
    lines[#lines + 1] = ("do %s; print((function() %s\n end)()) io.write '\\1' end"):format(rows.setup, code)
  end
  return table.concat(lines, "\n") .. "\n"
end

--- The lines that a block of the prompt types, after "> " or ">> ", and what it shows.
function pages.session(code)
  local lines, output = {}, {}
  for line in code:gmatch "([^\n]*)\n" do
    local input = line:match "^>>? (.*)$"
    table.insert(input and lines or output, (input or line) .. "\n")
  end
  return table.concat(lines), table.concat(output)
end

--- The commands of a shell block, with lines that end in "\" joined; without comments, `sudo` and variables before the
--- command.
function pages.commands(code)
  local commands = {}
  for line in code:gsub("\\\n%s*", ""):gmatch "[^\n]+" do
    for command in (line:gsub("%s+#.*$", "")):gsub("&&", "\n"):gmatch "[^\n]+" do
      command = command:gsub("^%s*", ""):gsub("^sudo%s+", "")
      while command:find "^[%u_]+=%S*%s" do command = command:gsub("^[%u_]+=%S*%s+", "") end
      commands[#commands + 1] = command
    end
  end
  return commands
end

--- The targets that a `make` command names.
function pages.targets(command)
  local targets = {}
  for word in command:gsub("'[^']*'", ""):gsub("^make", ""):gmatch "%S+" do
    if word:find "^[;&|]" then break end
    if not word:find "[=$]" and not word:find "^%-" then targets[#targets + 1] = word:match "^[%w_/-]+" end
  end
  return targets
end

return pages
