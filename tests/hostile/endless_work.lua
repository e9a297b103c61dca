-- expect: time limit exceeded
-- only time ends it
local x = heed.rand(500, 500)
while true do x = heed.matmul(x, x):softmax(-1) end
