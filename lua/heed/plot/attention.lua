--- plot.attention(model or weights, text or tokens, options): attention as one HTML page of all layers and heads, or as
--- the strongest links of each token in text.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local terminal = require "heed.plot.terminal"
local text = require "heed.plot.text"
local primitives = core.modules

local METHOD = "attention"
local PAGE_BYTES = 2000000
local LABEL_WIDTH = 100
local OPTIONS = { "file", "title", "full", "top", "labels", "head", "format", "to" }
local FORMATS = { "html", "txt" }

-- ---- Options ------------------------------------------------------------------------------------

local function read_options(...)
  local options, values = {}, { primitives.options(METHOD, OPTIONS, 3, ...) }
  for i, name in ipairs(OPTIONS) do options[name] = values[i] end
  for _, name in ipairs { "file", "title" } do
    if options[name] ~= nil then E.check_type(options[name], "string", METHOD, name) end
  end
  if options.to ~= nil and options.to ~= "string" then E.reject(METHOD, "to", options.to, "'string' or nil") end
  if options.to and options.file then E.fail "attention: file and to are both given; at most one of them must be" end
  options.full = E.boolean(options.full, false, METHOD, "full")
  options.top = options.top ~= nil and E.size(options.top, nil, METHOD, "top") or nil
  if (options.top or 0) > 255 then E.reject(METHOD, "top", options.top, "at most 255; full = true keeps all") end
  if options.full and options.top then E.fail "attention: full and top are both given; at most one of them must be" end
  if options.format ~= nil then
    E.check_choice(options.format, FORMATS, METHOD, "format")
  elseif options.file then
    local ending = options.file:lower():match "%.(%w+)$"
    if ending == "htm" then ending = "html" end
    if ending ~= "html" and ending ~= "txt" then
      E.reject(METHOD, "file", options.file, "a path that ends in .html or .txt; or give format = 'html'")
    end
    options.format = ending
  end
  if options.head ~= nil then
    E.check_type(options.head, "table", METHOD, "head")
    local layer, head = options.head[1], options.head[2]
    options.head = { E.size(layer, nil, METHOD, "head[1], the layer,"), E.size(head, nil, METHOD, "head[2]") }
  end
  return options
end

-- ---- Weights ------------------------------------------------------------------------------------

local function is_tensor(x)
  local kind = E.kind(x)
  return kind == "tensor" or kind == "parameter"
end

local function describe(shape) return "[" .. table.concat(shape, ", ") .. "]" end

-- The weights of a layer as [heads, l, s].
local function as_heads(x, name)
  if type(x) == "table" and not E.is_module(x) then x = core.tensor(x) end
  if not is_tensor(x) then E.reject(METHOD, name, x, "a tensor [heads, queries, keys]") end
  x = x:float()
  if x.ndim == 2 then x = x:unsqueeze(1) end
  if x.ndim == 4 then
    if x.shape[1] ~= 1 then
      E.fail("attention: %s is %s, a batch of %d; it must be one text: w[1] takes the first", name,
        describe(x.shape), x.shape[1])
    end
    x = x:select(1, 1)
  end
  if x.ndim ~= 3 or x.shape[1] == 0 or x.shape[2] == 0 or x.shape[3] == 0 then
    E.reject(METHOD, name, x, "a tensor [heads, queries, keys]")
  end
  if not (x:ge(0):all():item() and not x:isinf():any():item()) then
    E.fail("attention: %s has numbers that are negative, nan or infinite; it must be weights, after softmax", name)
  end
  return x
end

local function check_layers(layers)
  local first = layers[1].shape
  for i, layer in ipairs(layers) do
    local shape = layer.shape
    if shape[2] ~= first[2] or shape[3] ~= first[3] then
      E.fail("attention: the weights of layer %d are %s and those of layer 1 %s; all must have the same numbers of "
        .. "queries and keys", i, describe(shape), describe(first))
    end
  end
  return layers
end

local function given_layers(x)
  local list = {}
  if is_tensor(x) then
    if x.ndim ~= 4 then return { as_heads(x, "weights") } end
    for i = 1, x.shape[1] do list[i] = x:select(1, i) end
  elseif E.is_list(x) then
    for i, layer in compat.ipairs(x) do list[i] = layer end
  end
  if #list == 0 then
    E.reject(METHOD, "the first argument", x, "a model, or a list of layers' weights [heads, queries, keys]")
  end
  for i, layer in ipairs(list) do list[i] = as_heads(layer, ("weights[%d]"):format(i)) end
  return list
end

local function weights_of_model(model, input)
  local _, info = model(input, { need_weights = { "weights" } })
  local layers = type(info) == "table" and info.layers
  if type(info) == "table" and not layers and info.weights then layers = { info } end
  local list = {}
  for i, layer in compat.ipairs(type(layers) == "table" and layers or {}) do
    list[i] = type(layer) == "table" and layer.weights or nil
  end
  if #list == 0 then
    E.fail("attention: %s gives no weights; it must take need_weights and return info.layers[i].weights, as heed's "
      .. "models do", E.class_name(model))
  end
  for i, layer in ipairs(list) do list[i] = as_heads(layer, ("the weights of layer %d"):format(i)) end
  return list
end

-- ---- Labels -------------------------------------------------------------------------------------

local function read_labels(labels, count, argument, counted)
  E.check_type(labels, "table", METHOD, argument)
  local list = {}
  for i, label in compat.ipairs(labels) do
    if i % 256 == 0 then E.check_cancel(METHOD) end
    if type(label) == "number" then label = tostring(label) end
    if type(label) ~= "string" then E.reject(METHOD, ("%s[%d]"):format(argument, i), label, "a string") end
    list[i] = text.cut(label:sub(1, 4 * LABEL_WIDTH + 4), LABEL_WIDTH)
  end
  if #list ~= count then
    E.fail("attention: %s has %s; there must be %d, one for each %s", argument, E.count(#list, "label"), count, counted)
  end
  return list
end

-- The labels of queries and keys.
local function labels_for(labels, argument, layer)
  local queries, keys = layer.shape[2], layer.shape[3]
  if labels == nil then
    labels = { queries = {}, keys = {} }
    for i = 1, queries do labels.queries[i] = tostring(i) end
    for i = 1, keys do labels.keys[i] = tostring(i) end
  end
  E.check_type(labels, "table", METHOD, argument)
  local of_queries, of_keys = labels.queries, labels.keys
  if of_queries ~= nil or of_keys ~= nil then
    return read_labels(of_queries, queries, argument .. ".queries", "query"),
      read_labels(of_keys, keys, argument .. ".keys", "key")
  end
  if queries ~= keys then
    E.fail("attention: %s is one list for %d queries and %d keys; it must be {queries = {…}, keys = {…}}", argument,
      queries, keys)
  end
  local list = read_labels(labels, keys, argument, "token")
  return list, list
end

-- What stands for a token: its piece of the vocabulary of WordPiece, the text of other tokens, or the id.
local function token_label(tokenizer, id)
  if not compat.is_integer(id) then return tostring(id) end
  if tokenizer.vocabulary then return tokenizer.vocabulary:piece(id) end
  return tokenizer:token(id) and tokenizer:decode { id } or tostring(id)
end

-- The input of a model and the labels that follow from it.
local function read_input(model, given)
  local own = E.record(model) -- built-in modules have no such field, and say so
  local tokenizer = own and model.tokenizer
  if type(given) ~= "string" then
    if is_tensor(given) then
      if given.ndim == 2 and given.dtype == "int64" and given.shape[1] == 1 then given = given:select(1, 1) end
      if not tokenizer or given.dtype ~= "int64" or given.ndim ~= 1 then return given end
    elseif type(given) ~= "table" then
      E.reject(METHOD, "the second argument", given, "a text, or the ids of tokens")
    end
    local ids = is_tensor(given) and given:tolist() or given
    if not tokenizer then return given end
    local pieces = {}
    for i, id in compat.ipairs(ids) do pieces[i] = token_label(tokenizer, id) end
    return given, pieces
  end
  if not tokenizer then
    E.fail("attention: %s has no tokenizer; the second argument must be the ids of tokens, with labels = {…}",
      E.class_name(model))
  end
  -- Sentence encoders cut long texts off; decoders refuse them.
  local ids, pieces = tokenizer:encode(given, { max_length = model.max_seq_length }), {}
  for i, id in ipairs(ids) do pieces[i] = token_label(tokenizer, id) end
  return ids, pieces
end

-- ---- Text ---------------------------------------------------------------------------------------

-- The strongest links of each token, of one head or of the mean of all; on a terminal, as many as a line has room for.
local function links(chart, top, on_terminal)
  local device = on_terminal and core.files.terminal() and terminal.detect() or { unicode = true }
  local arrow, mark = device.unicode and " \226\134\146 " or " -> ", device.unicode and "\226\128\166" or "..."
  local most = math.min(24, math.max(4, math.floor((device.width or 80) / 3))) -- columns of a label
  local head, w = chart.head, nil
  if head then
    w = chart.layers[head[1]]:select(1, head[2])
  else
    local heads = 0
    for _, layer in ipairs(chart.layers) do
      w, heads = w and w + layer:sum(1) or layer:sum(1), heads + layer.shape[1]
    end
    w = w / heads
  end
  local values, indices = w:topk(math.min(top or 3, w.shape[2]), -1)
  values, indices = values:tolist(), indices:tolist()
  local width = 0
  for _, label in ipairs(chart.queries) do width = math.max(width, math.min(most, text.width(label))) end
  local lines = { head and ("layer %d, head %d"):format(head[1], head[2]) or "mean of all heads" }
  if chart.title then table.insert(lines, 1, text.clean(chart.title)) end
  for q, label in ipairs(chart.queries) do
    E.check_cancel(METHOD)
    local line, found = text.fit(label, width, true, mark) .. arrow, 0
    for j, value in ipairs(values[q]) do
      if value > 0 then
        local number = ("%.2f"):format(value):gsub(",", ".") -- in some locales a comma
        local link = text.cut(chart.keys[indices[q][j]], most, mark) .. " " .. number
        local longer = line .. (found > 0 and ", " or "") .. link
        if found > 0 and device.width and text.width(longer) > device.width then break end
        line, found = longer, found + 1
      end
    end
    lines[#lines + 1] = found > 0 and line or line .. "nothing"
  end
  if device.width then
    for i, line in ipairs(lines) do lines[i] = text.cut(line, device.width, mark) end
  end
  return table.concat(lines, "\n") .. "\n"
end

-- ---- The function -------------------------------------------------------------------------------

local function attention(source, given, ...)
  local options = read_options(source, given, ...)
  local chart = { title = options.title, head = options.head }
  if E.is_module(source) then
    local input, pieces = read_input(source, given)
    chart.layers = check_layers(weights_of_model(source, input))
    if not chart.title and type(given) == "string" then chart.title = text.cut(given:sub(1, 400), 80) end
    local labels = options.labels
    if labels == nil then labels = pieces end
    chart.queries, chart.keys = labels_for(labels, "labels", chart.layers[1])
  else
    chart.layers = check_layers(given_layers(source))
    if given ~= nil and options.labels ~= nil then
      E.fail "attention: the labels are given twice; they must be the second argument or labels = {…}"
    end
    chart.queries, chart.keys = labels_for(given == nil and options.labels or given,
      given == nil and "labels" or "the second argument", chart.layers[1])
  end
  local head = chart.head
  if head then
    local layer = chart.layers[head[1]]
    if not layer then
      E.fail("attention: head[1] is %d; it must be a layer from 1 to %d", head[1], #chart.layers)
    elseif head[2] > layer.shape[1] then
      E.fail("attention: head[2] is %d; it must be a head from 1 to %d", head[2], layer.shape[1])
    end
  end
  local display = not options.format and not options.to and require "heed.plot".display
  local result
  if options.format == "html" or display then
    result = require "heed.plot.attention_page".render(chart, options, PAGE_BYTES)
  else
    result = links(chart, options.top, not options.to and not options.file)
  end
  if display then return display(result, "html", chart.title) end
  if options.to then return result end
  if options.file then return core.files.write(options.file, result) end
  if io then io.write(result) else print((result:gsub("\n$", ""))) end
end

return core.frame(attention)
