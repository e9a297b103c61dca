--- einsum: sums of products by Einstein's convention, contracted pair by pair with matmul.
--
-- A label stands for a dimension: a letter, or one of those that "..." covers ("...1" is the last of them, so that
-- operands with fewer dimensions there broadcast).

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"

local einsum = {}

local LONGEST = 4096 -- characters of an equation

-- ---- Reading the equation ----

local function fail_equation(equation, rule, ...) E.fail("einsum: equation is '%s'; " .. rule, equation, ...) end

--- The subscripts between two commas as a list of letters, with "..." at most once.
local function subscripts(equation, text)
  local list, i, has_dots = {}, 1, false
  while i <= #text do
    if text:sub(i, i + 2) == "..." then
      if has_dots then fail_equation(equation, "'...' must stand once in each operand and in the output") end
      list[#list + 1], has_dots, i = "...", true, i + 3
    elseif text:find("^%a", i) then
      list[#list + 1], i = text:sub(i, i), i + 1
    else
      fail_equation(equation, "it has '%s', and must be of letters, ',', '->' and '...'", text:sub(i, i))
    end
  end
  return list
end

--- The subscripts of each operand, and of the output (nil without an arrow).
local function parse(equation)
  local text = equation:gsub("%s", "")
  local arrow = text:find("->", 1, true)
  local inputs, output = arrow and text:sub(1, arrow - 1) or text, arrow and text:sub(arrow + 2)
  local operands = {}
  for part in (inputs .. ","):gmatch "([^,]*)," do operands[#operands + 1] = subscripts(equation, part) end
  return operands, output and subscripts(equation, output)
end

-- ---- Labels ----

--- The labels of an operand's dimensions: one for each letter, and those that "..." covers.
local function labels_of(list, ndim, number, x)
  local labels, letters = {}, 0
  for _, s in ipairs(list) do
    if s ~= "..." then letters = letters + 1 end
  end
  local covered = ndim - letters
  if covered < 0 or covered > 0 and letters == #list then
    E.fail("einsum: operand %d is %s and its subscripts are '%s'; it must have %s%s", number, A.text(A.sizes(x)),
      table.concat(list), letters == #list and "" or "at least ", E.count(letters, "dimension"))
  end
  for _, s in ipairs(list) do
    if s == "..." then
      for i = covered, 1, -1 do labels[#labels + 1] = "..." .. i end
    else
      labels[#labels + 1] = s
    end
  end
  return labels, covered
end

--- How a message names a label.
local function called(label) return #label > 1 and "a dimension of '...'" or ("letter '%s'"):format(label) end

--- x with the diagonal taken for each letter that it has several times. Changes labels.
local function diagonals(x, labels, number)
  local i = 1
  while i <= #labels do
    local j = i + 1
    while j <= #labels and labels[j] ~= labels[i] do j = j + 1 end
    if j > #labels then
      i = i + 1
    else
      local a, b = x.shape[i], x.shape[j]
      if a ~= b then
        E.fail("einsum: %s is %d and %d in operand %d; the sizes of a repeated letter must be equal",
          called(labels[i]), a, b, number)
      end
      x = x:diagonal(0, i, j) -- appended as the last dimension
      local label = table.remove(labels, j)
      table.remove(labels, i)
      labels[#labels + 1] = label
    end
  end
  return x
end

--- The output's labels: as the equation says, or "..." and then the letters that occur once, sorted.
local function output_labels(equation, output, counts, covered)
  local labels, named = {}, {}
  local function add_dots()
    for i = covered, 1, -1 do labels[#labels + 1] = "..." .. i end
  end
  if output then
    for _, s in ipairs(output) do
      if s == "..." then
        add_dots()
      elseif not counts[s] then
        fail_equation(equation, "letter '%s' of the output must be in an operand", s)
      elseif named[s] then
        fail_equation(equation, "letter '%s' must stand once in the output", s)
      else
        labels[#labels + 1], named[s] = s, true
      end
    end
    return labels
  end
  add_dots()
  local letters = {}
  for letter, count in pairs(counts) do
    if count == 1 then letters[#letters + 1] = letter end
  end
  table.sort(letters, function(a, b) return a:byte() < b:byte() end) -- not by the locale
  for _, letter in ipairs(letters) do labels[#labels + 1] = letter end
  return labels
end

-- ---- Contraction ----

local function set_of(list)
  local set = {}
  for i, label in ipairs(list) do set[label] = i end
  return set
end

--- x permuted to the order of `wanted`, with dimensions of size 1 for labels that it lacks.
local function aligned(x, labels, wanted)
  local at, order, shape, sizes = set_of(labels), {}, {}, x.shape
  for i, label in ipairs(wanted) do
    order[#order + 1] = at[label]
    shape[i] = at[label] and sizes[at[label]] or 1
  end
  x = x:permute(order)
  return #order == #wanted and x or x:reshape(shape)
end

--- x with one dimension for each group of labels.
local function grouped(x, labels, groups)
  local at, order, shape, sizes = set_of(labels), {}, {}, x.shape
  for i, group in ipairs(groups) do
    shape[i] = 1
    for _, label in ipairs(group) do
      order[#order + 1], shape[i] = at[label], shape[i] * sizes[at[label]]
    end
  end
  return x:permute(order):reshape(shape)
end

--- x with `remove` applied to the dimensions whose labels `drops` names; and the other labels.
local function without(x, labels, remove, drops)
  local dims, left = {}, {}
  for i, label in ipairs(labels) do
    local list = drops(label, i) and dims or left
    list[#list + 1] = list == dims and i or label
  end
  return #dims > 0 and x[remove](x, dims) or x, left
end

--- Both without the dimensions that the product does not have, or has once: what only one of them has and nobody needs
--- is summed, and what has size 1 in one of them and another in the other broadcasts.
local function simplified(a, a_labels, b, b_labels, is_needed)
  for _ = 1, 2 do -- each beside the other
    local other, shape, sizes = set_of(b_labels), b.shape, a.shape
    a, a_labels = without(a, a_labels, "squeeze", function(label, i)
      return other[label] and sizes[i] == 1 and shape[other[label]] ~= 1
    end)
    a, a_labels, b, b_labels = b, b_labels, a, a_labels
  end
  for _ = 1, 2 do
    local other = set_of(b_labels)
    a, a_labels = without(a, a_labels, "sum", function(label) return not other[label] and not is_needed(label) end)
    a, a_labels, b, b_labels = b, b_labels, a, a_labels
  end
  return a, a_labels, b, b_labels
end

--- The product of a and b, summed over the labels that are not needed later; and its labels.
local function pair(a, a_labels, b, b_labels, is_needed)
  a, a_labels, b, b_labels = simplified(a, a_labels, b, b_labels, is_needed)
  local in_a, in_b = set_of(a_labels), set_of(b_labels)
  local batch, left, right, inner = {}, {}, {}, {}
  for _, label in ipairs(a_labels) do
    local group = not in_b[label] and left or is_needed(label) and batch or inner
    group[#group + 1] = label
  end
  for _, label in ipairs(b_labels) do
    if not in_a[label] then right[#right + 1] = label end
  end
  local labels, shape = {}, {}
  for _, group in ipairs { batch, left, right } do
    for _, label in ipairs(group) do
      labels[#labels + 1] = label
      shape[#labels] = in_a[label] and a.shape[in_a[label]] or b.shape[in_b[label]]
    end
  end
  if #inner == 0 then return aligned(a, a_labels, labels) * aligned(b, b_labels, labels), labels end
  local rows, columns = {}, {}
  for i, label in ipairs(batch) do rows[i], columns[i] = { label }, { label } end
  rows[#batch + 1], rows[#batch + 2] = left, inner
  columns[#batch + 1], columns[#batch + 2] = inner, right
  return grouped(a, a_labels, rows):matmul(grouped(b, b_labels, columns)):reshape(shape), labels
end

-- ---- The whole ----

local function check_operands(equation, operands, tensors, count)
  if #operands ~= count then
    fail_equation(equation, "it has %s and %d %s given; there must be as many", E.count(#operands, "operand"), count,
      count == 1 and "tensor is" or "tensors are")
  end
  for i = 1, count do
    E.check_operand(tensors[i], "einsum", ("operands[%d]"):format(i))
    if count > 1 and tensors[i].dtype == "bool" then
      E.fail("einsum: operands[%d] is bool; it must be float32 or int64: convert with operands[%d]:float()", i, i)
    end
  end
end

--- einsum(equation, operands…): the sum over all letters that the output lacks.
function einsum.einsum(equation, ...)
  if type(equation) ~= "string" then E.reject("einsum", "equation", equation, "a string such as 'ij,jk->ik'") end
  if #equation > LONGEST then
    E.fail("einsum: equation has %d characters; it must have at most %d", #equation, LONGEST)
  end
  local tensors, count = A.tensors({ n = select("#", ...), ... }, "einsum", "operands")
  local operands, output = parse(equation)
  check_operands(equation, operands, tensors, count)

  local labels, counts, sizes, found_in, last, most = {}, {}, {}, {}, {}, 0
  for i, list in ipairs(operands) do
    local x = tensors[i]
    local covered
    for _, s in ipairs(list) do
      if s ~= "..." then counts[s] = (counts[s] or 0) + 1 end
    end
    labels[i], covered = labels_of(list, x.ndim, i, x)
    most = math.max(most, covered)
    tensors[i] = diagonals(x, labels[i], i)
    local shape = tensors[i].shape
    for d, label in ipairs(labels[i]) do
      local size = shape[d]
      if sizes[label] and sizes[label] ~= size and sizes[label] ~= 1 and size ~= 1 then
        E.fail("einsum: %s is %d in operand %d and %d in operand %d; the sizes must be equal, or one of them 1",
          called(label), sizes[label], found_in[label], size, i)
      end
      if not sizes[label] or sizes[label] == 1 then sizes[label], found_in[label] = size, i end
      last[label] = i
    end
  end

  local wanted = output_labels(equation, output, counts, most)
  local in_output = set_of(wanted)
  local result, own = tensors[1], labels[1]
  for i = 2, count do
    local function is_needed(label) return in_output[label] or last[label] > i end
    result, own = pair(result, own, tensors[i], labels[i], is_needed)
  end
  result, own = without(result, own, "sum", function(label) return not in_output[label] end)
  return aligned(result, own, wanted)
end

return E.with_frames(einsum)
