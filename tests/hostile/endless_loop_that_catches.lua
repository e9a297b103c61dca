-- expect: time limit exceeded
-- ends only at the time limit
while true do pcall(function() while true do end end) end
