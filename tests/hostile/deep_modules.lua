-- expect: .
-- ends only at the time limit
local m = heed.nn.Linear(2, 2)
for _ = 1, 100000 do m = heed.nn.Sequential(m) end
return tostring(m)
