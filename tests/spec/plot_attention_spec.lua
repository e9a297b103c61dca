-- plot.attention: the page's packed weights, its text, its labels, and the strongest links as text.
local heed = require "heed"
local plot = require "heed.plot"
local data = require "heed.plot.attention_data"

local ROOM = 1900000

local function softmax(shape, sharpness) return (heed.randn(shape) * (sharpness or 1)):softmax(-1) end

-- ---- A reader of the packed forms, from their description ---------------------------------------

local DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local function from_base64(text)
  local values, parts, bits, count = {}, {}, 0, 0
  for i = 1, 64 do values[DIGITS:sub(i, i)] = i - 1 end
  for c in text:gmatch "[^=]" do
    bits, count = bits * 64 + values[c], count + 6
    if count >= 8 then
      count = count - 8
      local byte = math.floor(bits / 2 ^ count)
      parts[#parts + 1] = string.char(byte)
      bits = bits - byte * 2 ^ count
    end
  end
  return table.concat(parts)
end

-- A function that gives the next byte, and one that gives the next distance.
local function reader(bytes)
  local at = 0
  local function byte()
    at = at + 1
    return bytes:byte(at)
  end
  local function distance()
    local d, b = 0, byte()
    while b == 255 do d, b = d + 255, byte() end
    return d + b
  end
  return byte, distance, function() return at == #bytes end
end

-- Visits every weight kept: visit(row of all, key, level), and every rest: rest(row, level).
local function read_sparse(bytes, rows, visit, rest)
  local byte, distance, at_end = reader(bytes)
  for row = 1, rows do
    local count, key = byte(), 0
    rest(row, byte())
    for _ = 1, count do
      key = key + distance() + 1
      visit(row, key, byte())
    end
  end
  assert.is_true(at_end())
end

describe("base64", function()
  it("is that of RFC 4648", function()
    for text, expected in pairs { [""] = "", f = "Zg==", fo = "Zm8=", foo = "Zm9v", foob = "Zm9vYg==",
      foobar = "Zm9vYmFy", ["\0\255\16"] = "AP8Q" } do
      assert.are.equal(expected, data.base64(text))
    end
  end)
end)

describe("packed weights", function()
  it("are all there, to half of 1/65534, if they fit", function()
    heed.manual_seed(1)
    local layers = { softmax { 2, 5, 7 }, softmax { 3, 5, 7 } }
    local packed = data.pack(layers, { bytes = ROOM })
    assert.are.equal("dense", packed.form)
    local byte, _, at_end = reader(packed.bytes)
    for _, layer in ipairs(layers) do
      for _, head in ipairs(layer:tolist()) do
        for _, row in ipairs(head) do
          for _, weight in ipairs(row) do
            local low = byte()
            assert.is_true(math.abs((low + 256 * byte()) / 65534 - weight) <= 0.51 / 65534)
          end
        end
      end
    end
    assert.is_true(at_end())
  end)

  it("name hidden places", function()
    local packed = data.pack({ heed.tensor { { { 1, 0 }, { 0.5, 0.5 } } } }, { bytes = ROOM })
    assert.are.equal("\254\255\255\255\255\127\255\127", packed.bytes)
  end)

  it("keep the strongest of each row otherwise, and the sum of the others", function()
    heed.manual_seed(2)
    local w = softmax({ 3, 40, 300 }, 2)
    local rows = w:reshape(-1, 300):tolist()
    local packed = data.pack({ w }, { bytes = ROOM, top = 6 })
    assert.are.equal("sparse", packed.form)
    local seen, kept_sum, rests = {}, 0, {}
    read_sparse(packed.bytes, #rows, function(row, key, level)
      local weight = rows[row][key]
      assert.is_true(math.abs((level / 255) ^ 2 - weight) <= 1 / 255)
      assert.is_true(math.abs(level / 255 - math.sqrt(weight)) <= 0.501 / 255)
      seen[row] = seen[row] or {}
      table.insert(seen[row], weight)
      kept_sum = kept_sum + weight
    end, function(row, level) rests[row] = level / 255 end)
    for i, row in ipairs(rows) do
      table.sort(row, function(a, b) return a > b end)
      table.sort(seen[i], function(a, b) return a > b end)
      local sum = 0
      for j = 1, 6 do
        assert.are.equal(row[j], seen[i][j])
        sum = sum + row[j]
      end
      assert.are.equal(6, #seen[i])
      assert.is_true(math.abs(rests[i] - (1 - sum)) <= 0.51 / 255)
    end
    assert.is_true(math.abs(packed.share - kept_sum / #rows) < 1e-4)
  end)

  it("keep the mask of heads once", function()
    heed.manual_seed(3)
    local hidden = heed.ones(300, 300):triu(1):eq(1)
    local causal = heed.randn(2, 300, 300):masked_fill(hidden, -math.huge):softmax(-1)
    local packed = data.pack({ causal, softmax { 1, 300, 300 }, causal }, { bytes = ROOM, top = 4 })
    assert.are.same({ 1, 1, 0, 1, 1 }, packed.mask_of)
    local _, distance, at_end = reader(packed.masks)
    for q = 1, 300 do
      assert.are.equal(q, distance())
      if q < 300 then assert.are.equal(300 - q, distance()) end
    end
    assert.is_true(at_end())
  end)

  it("drop masks that would need too much room", function()
    heed.manual_seed(4)
    local w = heed.randn(8, 64, 64):relu()
    local packed = data.pack({ w / w:sum(-1, true) }, { bytes = 16000 })
    assert.is_nil(packed.mask_of)
    assert.is_true(#packed.bytes <= 12000)
  end)

  it("keep more of peaked weights than of flat ones in the same room", function()
    heed.manual_seed(5)
    local flat = data.pack({ softmax { 12, 128, 128 } }, { bytes = 60000 })
    local peaked = data.pack({ softmax({ 12, 128, 128 }, 20) }, { bytes = 60000 })
    assert.is_true(peaked.kept > flat.kept)
    assert.is_true(peaked.share > 0.99)
    assert.is_true(#peaked.bytes <= 45000 and #flat.bytes <= 45000)
  end)

  it("are scaled down if dropout scaled them up", function()
    local packed = data.pack({ heed.tensor { { { 2, 0.5 } } } }, { bytes = ROOM })
    assert.are.equal(2.5, packed.scale)
    local byte = reader(packed.bytes)
    local low = byte()
    assert.is_true(math.abs((low + 256 * byte()) / 65534 * 2.5 - 2) < 1e-4)
  end)

  it("that cannot fit are refused", function()
    assert.has_error(function() data.pack({ softmax { 4, 100, 100 } }, { bytes = 800 }) end,
      "attention: weights have 400 rows; a page of 2 MB has no room for them: give fewer layers, or top = 4 or "
        .. "full = true, which make a larger page")
  end)
end)

describe("the page", function()
  local function page(weights, labels, options)
    options = options or {}
    options.to, options.format = "string", "html"
    return plot.attention(weights, labels, options)
  end

  for _, case in ipairs { { "flat", 1 }, { "peaked", 10 } } do
    it("of 12 x 12 heads x 512 tokens stays under 2 MB for " .. case[1] .. " weights", function()
      heed.manual_seed(6)
      local layers, layer = {}, softmax({ 12, 512, 512 }, case[2])
      for i = 1, 12 do layers[i] = layer end
      local text = page(layers)
      assert.is_true(#text < 2000000)
      assert.is_truthy(text:find("strongest weights of each row", 1, true))
      assert.is_truthy(text:find("others are summed for each row", 1, true))
    end)
  end

  it("has the weights, and no markup of labels or titles", function()
    local w = heed.tensor { { { 1, 0, 0 }, { 0.5, 0.5, 0 }, { 0.25, 0.25, 0.5 } } }
    local text = page({ w }, { "</script><b>", "\"&'", "##ing" }, { title = "<i>@DATA@</i>" })
    assert.is_nil(text:find("<b>", 1, true))
    assert.is_nil(text:find("<i>", 1, true))
    assert.is_truthy(text:find("<title>&lt;i&gt;@DATA@&lt;/i&gt;</title>", 1, true))
    assert.is_truthy(text:find([["\u003c/script\u003e\u003cb\u003e","\u0022\u0026'","##ing"]], 1, true))
    local stored = from_base64(text:match '<script type="text/plain" id="weights">([%w+/=]*)</script>')
    assert.are.equal(data.pack({ w }, { bytes = ROOM }).bytes, stored)
  end)

  it("asks for nothing from the network", function()
    local text = page(heed.eye(3):unsqueeze(1))
    assert.is_truthy(text:find("default-src 'none'", 1, true))
    assert.is_nil(text:gsub("http://www.w3.org/2000/svg", ""):find "https?://")
    assert.is_nil(text:find "@%u+@")
  end)

  it("keeps all weights if full is set", function()
    local w = softmax({ 1, 8, 8 })
    local text = page({ w }, nil, { full = true })
    assert.is_truthy(text:find("holds all weights", 1, true))
  end)

  it("replaces invalid bytes of labels, cuts long ones and takes empty and right-to-left ones", function()
    local text = page({ heed.eye(4) }, { "a\255", ("x"):rep(5000), "", "\215\169\215\156" })
    local cut = ("x"):rep(99) .. "\226\128\166"
    assert.is_truthy(text:find('["a\239\191\189","' .. cut .. '","","\215\169\215\156"]', 1, true))
  end)

  it("takes queries and keys with labels of their own", function()
    local text = page({ softmax { 2, 2, 3 } }, { queries = { "q1", "q2" }, keys = { "k1", "k2", "k3" } })
    assert.is_truthy(text:find('"queries":["q1","q2"]', 1, true))
    assert.is_truthy(text:find('"keys":["k1","k2","k3"]', 1, true))
  end)
end)

describe("the strongest links", function()
  local w = heed.tensor { { { 1, 0, 0 }, { 0.25, 0.75, 0 }, { 0.125, 0.25, 0.625 } } }

  it("of a head are text", function()
    assert.are.equal("layer 1, head 1\n the \226\134\146 the 1.00\n cat \226\134\146 cat 0.75, the 0.25\n"
      .. "sits \226\134\146 sits 0.62, cat 0.25\n",
      (plot.attention({ w }, { "the", "cat", "sits" }, { head = { 1, 1 }, top = 2, to = "string" })
        :gsub("0%.63", "0.62")))
  end)

  it("of all heads are those of their mean", function()
    assert.is_truthy(plot.attention({ w, w }, { "a", "b", "c" }, { to = "string" })
      :find("mean of all heads\na \226\134\146 a 1.00\n", 1, true))
  end)

  it("are 'nothing' for a token that sees nothing", function()
    local text = plot.attention({ heed.zeros(2, 2) }, nil, { to = "string" })
    assert.is_truthy(text:find("1 \226\134\146 nothing", 1, true))
  end)
end)

describe("models", function()
  local GPT2 = require "heed.models.gpt2"
  local model = GPT2 { vocab_size = 11, n_embd = 8, n_layer = 2, n_head = 2, n_positions = 16 }:eval()

  it("are given ids and labels", function()
    local text = plot.attention(model, { 3, 4, 5 }, { labels = { "a", "b", "c" }, to = "string", format = "html" })
    local _, info = model({ 3, 4, 5 }, { need_weights = { "weights" } })
    local layers = { info.layers[1].weights, info.layers[2].weights }
    for i, layer in ipairs(layers) do
      if layer.ndim == 4 then layers[i] = layer:select(1, 1) end
    end
    local stored = from_base64(text:match '<script type="text/plain" id="weights">([%w+/=]*)</script>')
    assert.are.equal(data.pack(layers, { bytes = ROOM }).bytes, stored)
  end)

  it("of attention alone are given a tensor", function()
    local mha = heed.nn.MultiHeadAttention { d_in = 8, d_out = 8, num_heads = 2, context_length = 8, dropout = 0 }
    local text = plot.attention(mha, heed.randn(1, 4, 8), { head = { 1, 2 }, to = "string" })
    assert.is_truthy(text:find("layer 1, head 2\n1 \226\134\146 1 1.00\n", 1, true))
  end)

  it("without a tokenizer need ids", function()
    assert.has_error(function() plot.attention(model, "a text") end,
      "attention: GPT2 has no tokenizer; the second argument must be the ids of tokens, with labels = {…}")
  end)

  it("without weights are refused", function()
    assert.has_error(function() plot.attention(heed.nn.Identity(), heed.randn(2, 2)) end)
  end)
end)

describe("plot.attention refuses", function()
  local w = { heed.eye(2) }
  for name, case in pairs {
    ["too few labels"] = { { w, { "a" } },
      "attention: the second argument has 1 label; there must be 2, one for each token" },
    ["labels that are no strings"] = { { w, { "a", {} } },
      "attention: the second argument[2] is a table; it must be a string" },
    ["one list for cross attention"] = { { { heed.ones(2, 3) }, { "a", "b" } },
      "attention: the second argument is one list for 2 queries and 3 keys; it must be {queries = {…}, keys = {…}}" },
    ["negative weights"] = { { { heed.eye(2) * -1 } },
      "attention: weights[1] has numbers that are negative, nan or infinite; it must be weights, after softmax" },
    ["nan"] = { { { heed.eye(2) / 0 } },
      "attention: weights[1] has numbers that are negative, nan or infinite; it must be weights, after softmax" },
    ["layers of different sizes"] = { { { heed.eye(2), heed.eye(3) } },
      "attention: the weights of layer 2 are [1, 3, 3] and those of layer 1 [1, 2, 2]; all must have the same numbers "
        .. "of queries and keys" },
    ["batches"] = { { { heed.ones(2, 1, 2, 2) } },
      "attention: weights[1] is [2, 1, 2, 2], a batch of 2; it must be one text: w[1] takes the first" },
    ["no weights"] = { { {} },
      "attention: the first argument is a table; it must be a model, or a list of layers' weights "
        .. "[heads, queries, keys]" },
    ["heads that are not there"] = { { w, nil, { head = { 1, 2 } } },
      "attention: head[2] is 2; it must be a head from 1 to 1" },
    ["layers that are not there"] = { { w, nil, { head = { 2, 1 } } },
      "attention: head[1] is 2; it must be a layer from 1 to 1" },
    ["other endings"] = { { w, nil, { file = "x.pdf" } },
      "attention: file is a string ('x.pdf'); it must be a path that ends in .html or .txt; or give format = 'html'" },
    ["full with top"] = { { w, nil, { full = true, top = 2 } },
      "attention: full and top are both given; at most one of them must be" },
    ["labels given twice"] = { { w, { "a", "b" }, { labels = { "a", "b" } } },
      "attention: the labels are given twice; they must be the second argument or labels = {…}" },
  } do
    it(name, function()
      assert.has_error(function() plot.attention(case[1][1], case[1][2], case[1][3]) end, case[2])
    end)
  end
end)

describe("files", function()
  it("are written whole, or the message says why not", function()
    local path = os.tmpname() .. ".html"
    assert.is_true(plot.attention({ heed.eye(2) }, nil, { file = path }))
    local file = assert(io.open(path, "rb"))
    assert.is_truthy(file:read("*a"):find "</html>\n$")
    file:close()
    os.remove(path)
    local written, problem = plot.attention({ heed.eye(2) }, nil, { file = "/nowhere/at/all.html" })
    assert.is_nil(written)
    assert.are.equal("string", type(problem))
  end)
end)

describe("labels", function()
  it("are the texts of tokens, for every tokenizer of a model", function()
    local model = assert(heed.models.load "scripts/examples/names_llama")
    local text = plot.attention(model, "Ada", { to = "string" })
    assert.truthy(text:find "^Ada\nmean of all heads\n%. → %. 1%.00\nA → [^\n]+\nd → [^\n]+\na → [^\n]+\n$")
    assert.are.equal(text:gsub("^Ada\n", ""), (plot.attention(model, model.tokenizer:encode "Ada", { to = "string" })))
  end)
end)

describe("plot.display", function()
  after_each(function() plot.display = false end)

  it("receives what would be printed, as a picture or a page", function()
    local shown = {}
    plot.display = function(...) shown[#shown + 1] = { ... } end
    plot.heatmap(heed.eye(2), { title = "Identity" })
    plot.line { 1, 2 }
    plot.attention({ heed.eye(2) }, { "a", "b" })
    assert.are.equal(3, #shown)
    assert.truthy(shown[1][1]:find "^<svg .*Identity")
    assert.are.same({ "svg", "Identity" }, { shown[1][2], shown[1][3] })
    assert.truthy(shown[2][1]:find "^<svg ")
    assert.truthy(shown[3][1]:find "</html>\n$")
    assert.are.equal("html", shown[3][2])
  end)

  it("receives nothing with a file, a format or to = 'string'", function()
    plot.display = function() error "called" end
    local path = os.tmpname() .. ".svg"
    assert.is_true(plot.bars({ 1, 2 }, { file = path }))
    os.remove(path)
    assert.truthy(plot.bars({ 1, 2 }, { to = "string" }):find "^1 ")
    assert.truthy(plot.attention({ heed.eye(2) }, nil, { to = "string" }):find "^mean of all heads")
  end)
end)

describe("limits", function()
  it("stop the packing, and files = false the writing", function()
    local w = softmax { 12, 300, 300 }
    heed.limit { seconds = 0.02 }
    local ok, message = pcall(plot.attention, { w, w, w, w }, nil, { to = "string", format = "html", full = true })
    heed.limit { seconds = math.huge, files = false }
    local written, result, problem = pcall(plot.attention, { heed.eye(2) }, nil, { file = "x.html" })
    heed.limit { files = true }
    assert.is_false(ok)
    assert.is_truthy(tostring(message):find("time limit exceeded", 1, true), message)
    assert.is_false(written and result == true)
    assert.is_truthy(tostring(problem or result):find("files", 1, true))
  end)
end)
