-- What a mask value prints: its rule and a picture.
local heed = require "heed"

local mask = heed.mask

describe("the text of a mask", function()
  it("is its rule and a picture of blocks", function()
    assert.equal([[
heed.mask.documents(2) & causal(), 5 x 5, 64.00% hidden
██········
████······
····██····
····████··
····██████]], tostring(mask.documents { 2, 3 }:both(mask.causal())))
    assert.equal([[
heed.mask.documents(2), 32 x 32, 37.50% hidden, in blocks of 2
]] .. ("████████████████████████········\n"):rep(12) .. ("························████████\n"):rep(3)
      .. "························████████", tostring(mask.documents { 24, 8 }))
    assert.truthy(tostring(mask.causal()):find("^heed%.mask%.causal%(%), 16 x 16, 46%.88%% hidden\n██··"))
    assert.truthy(tostring(mask.window(20)):find "window%(20%), 80 x 80")
    assert.truthy(tostring(mask.prefix(30)):find "prefix%(30%), 60 x 60")
    assert.truthy(tostring(mask.tree {}):find "tree%(0%), ")
    assert.truthy(tostring(mask.documents { 3, 3, 10, 10 }):find("░░", 1, true))
    assert.truthy(tostring(mask.prefix(2 ^ 40)):find "^heed%.mask%.prefix%(1099511627776%), 131072 x 131072, 0%.00%%")
  end)

  it("shows fewer queries than keys as the last ones, as with a cache", function()
    local ranges, documents = mask.intervals { { { 1, 5 } }, { { 2, 5 } } }, mask.documents { 2, 3 }
    assert.equal([[
heed.mask.intervals(2 x 1) & documents(2), 2 x 5, 40.00% hidden
····██████
····██████]], tostring(ranges:both(documents)))
    assert.equal([[
heed.mask.documents(2) & intervals(2 x 1) & causal(), 2 x 5, 50.00% hidden
····████··
····██████]], tostring(documents:both(ranges):both(mask.causal())))
    assert.equal([[
heed.mask.tree(2) & documents(2), 2 x 4, 37.50% hidden
··████··
··██████]], tostring(mask.tree({ 0, 1 }):both(mask.documents { 1, 3 })))
    assert.equal("[2, 5]", tostring(documents:both(ranges):dense().shape):match "%[.*%]")
  end)

  it("says that conditions for different sizes fit nothing", function()
    assert.equal("heed.mask.documents(1) & documents(1), which are for different sizes",
      tostring(mask.documents({ 3 }):both(mask.documents { 4 })))
    assert.equal("heed.mask.tree(2) & tree(1), which are for different sizes",
      tostring(mask.tree({ 0, 1 }):both(mask.tree { 0 })))
    assert.equal("heed.mask.tree(3) & documents(1), which are for different sizes",
      tostring(mask.tree({ 0, 1, 1 }):both(mask.documents { 2 })))
  end)
end)
