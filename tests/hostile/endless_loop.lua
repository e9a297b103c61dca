-- expect: time was up
-- only time ends it
while true do end
