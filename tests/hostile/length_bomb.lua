-- expect: ended by the system
-- only time ends it
table.insert(setmetatable({}, { __len = function() return 1 << 53 end }), 1, 0)
