-- expect: would pass the limit of
local heed = heed
return heed.zeros(1000000, 1000000)
