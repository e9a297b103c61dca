-- expect: time limit exceeded
-- ends only at the time limit
local co = coroutine.create(function() while true do end end)
while true do coroutine.resume(co) end
