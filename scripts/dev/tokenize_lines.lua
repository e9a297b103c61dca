-- Runs a tokenizer over lines, for scripts/dev/compare_tokenizers.py:
--
--   build/heed scripts/dev/tokenize_lines.lua TOKENIZER LINES
--
-- LINES has one text in each line, as hexadecimal digits. For each it prints the ids without and with the template,
-- those with special tokens, and, as hexadecimal digits, the decoded text of the last ones, with and without special
-- tokens.
-- Ids count from 0 here, as in the file.

local heed = require "heed"

local function ids_of(tok, text, options)
  local ids = tok:encode(text, options)
  local from_zero = {}
  for i, id in ipairs(ids) do from_zero[i] = ("%d"):format(id - 1) end
  return table.concat(from_zero, " "), ids
end

local function to_hex(text) return (text:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end
local function from_hex(text) return (text:gsub("..", function(c) return string.char(tonumber(c, 16)) end)) end

local tok = assert(heed.tokenizers.load(arg[1]))
for line in io.lines(arg[2]) do
  local text = from_hex(line)
  local plain = ids_of(tok, text, { add_special_tokens = false })
  local framed = ids_of(tok, text)
  local special, ids = ids_of(tok, text, { allowed_special = true })
  io.write(table.concat({ plain, framed, special, to_hex(tok:decode(ids)),
                          to_hex(tok:decode(ids, { skip_special_tokens = true })) }, "|"), "\n")
end
