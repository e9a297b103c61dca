-- expect: time limit exceeded
-- ends only at the time limit
local x = heed.rand(500, 500)
while true do x = heed.matmul(x, x):softmax(-1) end
