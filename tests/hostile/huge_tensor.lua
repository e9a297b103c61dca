-- expect: memory limit exceeded
local heed = heed
return heed.zeros(1000000, 1000000)
