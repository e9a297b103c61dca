-- expect: .
return setmetatable({}, { __tostring = function() return {} end })
