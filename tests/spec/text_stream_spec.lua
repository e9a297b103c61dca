local stream = require "heed.tokenizers.stream"

--- A tokenizer whose ids are bytes + 1; bytes that are no UTF-8 become replacement characters, as in Hugging Face's.
--- With `spaces`, the first id loses a space, as in SentencePiece's.
local function bytes(spaces)
  local tok = {}
  function tok.decode(_, ids)
    local parts = {}
    for i, id in ipairs(ids) do
      if id > 256 then error("decode: id " .. id .. " is too large", 0) end
      parts[i] = string.char(id - 1)
    end
    local text = table.concat(parts)
    if spaces then text = text:gsub("^ ", "") end
    return (text:gsub("[\194-\244][\128-\191]*$", function(tail)
      local first = tail:byte()
      local size = first >= 0xF0 and 4 or first >= 0xE0 and 3 or 2
      return #tail < size and "\239\191\189" or tail
    end))
  end
  return tok
end

local function pieces_of(text, tok)
  local decoder, pieces = stream(tok or bytes()), {}
  for i = 1, #text do pieces[i] = decoder:add(text:byte(i) + 1) end
  pieces[#pieces + 1] = decoder:finish()
  return pieces
end

describe("a stream of tokens", function()
  it("gives whole characters, as soon as they are complete", function()
    assert.same({ "a", "", "é", "", "", "日", "", "", "", "🙂", "!", "" }, pieces_of "aé日🙂!")
  end)

  it("keeps spaces that decoders drop at the beginning of a text", function()
    assert.equal("a b  c", table.concat(pieces_of("a b  c", bytes(true))))
  end)

  it("gives what is left of an incomplete character at its end", function()
    assert.same({ "a", "", "", "\239\191\189" }, pieces_of "a\240\159")
  end)

  it("goes on after an id that the tokenizer refuses", function()
    local decoder = stream(bytes())
    assert.equal("a", decoder:add(98))
    assert.has_error(function() decoder:add(300) end)
    assert.equal("b", decoder:add(99))
  end)

  it("begins a new text after its end", function()
    local decoder = stream(bytes())
    decoder:add(98)
    assert.equal("", decoder:finish())
    assert.equal("b", decoder:add(99))
  end)
end)
