-- expect: time limit exceeded
-- only time ends it
while true do pcall(function() while true do end end) end
