-- expect: survived
local x = heed.ones(2, 2)
local meta = getmetatable(x)
pcall(function() meta.__gc(x) end)
pcall(function() meta.__index = error end)
pcall(setmetatable, x, {})
local m = heed.nn.Linear(2, 2)
pcall(function() getmetatable(m).__call = nil end)
local bad = setmetatable({}, { __index = function() error "no" end, __len = function() return -5 end,
  __tostring = function() return 5 end })
for _, f in pairs(heed) do
  if type(f) == "function" then
    pcall(f, bad)
    pcall(f, x, bad)
  end
end
ipairs, pairs, setmetatable, tostring, type = nil, nil, nil, nil, nil
assert(heed.ones(2, 2):sum():item() == 4)
m:state_dict()
error "survived"
