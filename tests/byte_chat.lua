-- A small chat model with random weights, written to a folder: a Llama, and a byte-level tokenizer without merges, with
-- ChatML's special tokens.
local compat = require "heed.compat"
local Llama = require "heed.models.llama"
local support = require "tests.support"

local M = { special = { "<|im_start|>", "<|im_end|>" } }

--- The character that stands for a byte in byte-level vocabularies (GPT-2's bytes_to_unicode).
local function characters()
  local list, extra = {}, 0
  for byte = 0, 255 do
    local printable = byte >= 33 and byte <= 126 or byte >= 161 and byte <= 172 or byte >= 174
    list[byte] = compat.character(printable and byte or 256 + extra)
    if not printable then extra = extra + 1 end
  end
  return list
end

local write = support.write

local ESCAPES = { ["\\"] = "\\\\", ['"'] = '\\"', ["\n"] = "\\n" }
local function quoted(text) return '"' .. text:gsub('[\\"\n]', ESCAPES) .. '"' end

--- Writes the tokenizer of the folder.
function M.write_tokenizer(folder)
  local vocabulary, added = {}, {}
  for byte, character in pairs(characters()) do
    vocabulary[#vocabulary + 1] = ("%s:%d"):format(quoted(character), byte)
  end
  for i, token in ipairs(M.special) do
    added[i] = ('{"id":%d,"content":%s,"special":true,"single_word":false,"lstrip":false,"rstrip":false,'
      .. '"normalized":false}'):format(255 + i, quoted(token))
  end
  write(folder .. "/tokenizer.json", ('{"version":"1.0","added_tokens":[%s],"normalizer":null,"pre_tokenizer":'
    .. '{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},"post_processor":null,'
    .. '"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{%s},"merges":[]}}'):format(
    table.concat(added, ","), table.concat(vocabulary, ",")))
  write(folder .. "/tokenizer_config.json", ('{"eos_token":"<|im_end|>","chat_template":%s}'):format(
    quoted(support.read "tests/chat_templates/chatml.jinja")))
end

--- Writes the model and the tokenizer. `window`: of a Mistral; nil: none.
function M.write(folder, context, window)
  require("heed").manual_seed(1)
  local model = Llama {
    vocab_size = 258, hidden_size = 16, intermediate_size = 24, num_hidden_layers = 2, num_attention_heads = 2,
    max_position_embeddings = context, tie_word_embeddings = true, sliding_window = window,
    model_type = window and "mistral" or nil,
  }
  assert(model:save_pretrained(folder))
  M.write_tokenizer(folder)
end

return M
