-- Makes the text that the notebooks' scripts print with --grad: the expected text, with the grad_fn notes where the
-- documents have them.
--   heed scripts/dev/make_notebook_notes.lua DOCUMENTS [FOLDER]
-- DOCUMENTS is a folder with the documents, 000_….txt to 004_….txt; FOLDER, tests/expected by default, has X.txt and
-- gets X-grad.txt. A note whose tensor is not in the expected text is an error. Two tensors of document 004 are cut off
-- before their end; there the note is what PyTorch prints.
local folder = assert(arg[1], "usage: make_notebook_notes.lua DOCUMENTS [FOLDER]")
local expected = arg[2] or "tests/expected"

local notebooks = {
  { document = "000", name = "coding_attention" },
  { document = "003", name = "production_attention" },
  { document = "004", name = "step_by_step", cut = {
    { "Attention Weight after dropout: ", ",\n       grad_fn=<MulBackward0>)" },
    { "\n-- cell 23\n", ", grad_fn=<ViewBackward0>)" },
  } },
}

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return (text:gsub("\r", ""))
end

local function find_document(number)
  local list = assert(io.popen(("ls '%s'"):format(folder)))
  for name in list:lines() do
    if name:sub(1, #number + 1) == number .. "_" then
      list:close()
      return read(folder .. "/" .. name)
    end
  end
  error("no document " .. number)
end

--- The tensors with a note, in order: { text without it, text with it, name }.
local function noted(document)
  local found, from = {}, 1
  while true do
    local note, last, name = document:find("grad_fn=<(%w+)>%)", from)
    if not note then return found end
    local first = from
    while true do -- the last "tensor(" before the note
      local next_one = document:find("tensor(", first + 1, true)
      if not next_one or next_one > note then break end
      first = next_one
    end
    local text = document:sub(first, last)
    found[#found + 1] = { (text:gsub(",%s+grad_fn=<%w+>%)$", ")")), text, name }
    from = last + 1
  end
end

--- Where a tensor is in a text, from a position; a number may differ by one unit in its last digit.
local function find(text, tensor, from)
  local first, last = text:find(tensor, from, true)
  if first then return first, last end
  local pattern = tensor:gsub("[%-%.%(%)%[%]%+%*%?%^%$%%]", "%%%0"):gsub("%d(%f[^%d])", "%%d%1")
  return text:find(pattern, from)
end

local total = 0
for _, notebook in ipairs(notebooks) do
  local text, at = read(("%s/%s.txt"):format(expected, notebook.name)), 1
  local pieces = {}
  for _, tensor in ipairs(noted(find_document(notebook.document))) do
    local first, last = find(text, tensor[1], at)
    if not first then error(("%s has no tensor\n%s"):format(notebook.name, tensor[1])) end
    local note = tensor[2]:match "(,%s+grad_fn=<%w+>%))$"
    pieces[#pieces + 1] = text:sub(at, last - 1) .. note
    at, total = last + 1, total + 1
  end
  pieces[#pieces + 1] = text:sub(at)
  text = table.concat(pieces)
  for _, tensor in ipairs(notebook.cut or {}) do
    local _, label = assert(text:find(tensor[1], 1, true))
    local last = assert(text:find(")", label + #"tensor(" + 1, true))
    text = text:sub(1, last - 1) .. tensor[2] .. text:sub(last + 1)
  end
  local file = assert(io.open(("%s/%s-grad.txt"):format(expected, notebook.name), "wb"))
  file:write(text)
  file:close()
end
print(("%d notes"):format(total))
