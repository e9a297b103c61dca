-- expect: stack overflow
local function f(x) return 1 + f(x) end
return f(heed.ones(1))
