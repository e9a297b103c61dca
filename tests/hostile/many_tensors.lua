-- expect: memory
local all = {}
for i = 1, math.huge do all[i] = heed.rand(100, 100) end
