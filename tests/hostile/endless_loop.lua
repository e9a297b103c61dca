-- expect: time limit exceeded
-- only time ends it
while true do end
