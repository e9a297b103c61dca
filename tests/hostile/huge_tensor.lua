-- expect: memory could not be had
local heed = heed
return heed.zeros(1000000, 1000000)
