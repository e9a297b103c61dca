-- The check of object files finds what it should, and nothing else.
local check = dofile "scripts/dev/check_objects.lua"

-- The problems of files given as { "ops/rows", defined = { … }, used = { … } }, and the largest cycle of the binding.
local function problems_of(files)
  local lines = {}
  for _, file in ipairs(files) do
    local begin = ("build/obj/src/%s.o: "):format(file[1])
    for _, symbol in ipairs(file.defined or {}) do lines[#lines + 1] = begin .. symbol .. " T 0 8" end
    for _, symbol in ipairs(file.used or {}) do lines[#lines + 1] = begin .. symbol .. " U" end
  end
  local i = 0
  local problems, largest = check(function()
    i = i + 1
    return lines[i]
  end)
  return problems, largest.binding
end

-- Files of the binding, each using the next one, and the last one the first.
local function ring(count)
  local files = {}
  for i = 1, count do
    files[i] = { "binding/l" .. i, defined = { "f" .. i }, used = { "f" .. i % count + 1, "printf" } }
  end
  return files
end

describe("the object check", function()
  it("lets a file use the layers below it", function()
    assert.are.same({}, problems_of {
      { "core/tensor", defined = { "heed__new" }, used = { "memcpy" } },
      { "ops/rows", defined = { "heed_sum" }, used = { "heed__new" } },
      { "kernels/isa/avx2", defined = { "heed__avx2" } },
      { "binding/lops", used = { "heed_sum", "heed__new", "heed__avx2" } },
    })
  end)

  it("refuses the symbol of a layer above, and names both files", function()
    assert.are.same({ "src/core/tensor.c: uses heed_sum of src/ops/rows.c: ops is not below core" }, problems_of {
      { "core/tensor", used = { "heed_sum" } },
      { "ops/rows", defined = { "heed_sum" } },
    })
  end)

  it("finds the largest cycle of the binding", function()
    local problems, largest = problems_of(ring(4))
    assert.are.same({}, problems)
    assert.are.equal(4, largest)
    assert.are.equal(1, select(2, problems_of { { "binding/l1", defined = { "f" }, used = { "f" } } }))
  end)

  it("refuses a cycle of more than 4 files in the binding, and names them", function()
    assert.are.same({
      "src/binding: 5 files depend on each other in a cycle; it must be at most 4: binding/l1 binding/l2 binding/l3 "
        .. "binding/l4 binding/l5",
    }, (problems_of(ring(5))))
  end)

  it("counts files once that several cycles share", function()
    local files = ring(3)
    files[1].used[3] = "f4"
    files[4] = { "binding/l4", defined = { "f4" }, used = { "f1" } }
    assert.are.equal(4, select(2, problems_of(files)))
  end)
end)
