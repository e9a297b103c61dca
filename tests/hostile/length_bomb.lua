-- expect: ended by the system
table.insert(setmetatable({}, { __len = function() return 1 << 53 end }), 1, 0)
