-- expect: ended by the system
-- ends only at the time limit
table.insert(setmetatable({}, { __len = function() return 1 << 53 end }), 1, 0)
