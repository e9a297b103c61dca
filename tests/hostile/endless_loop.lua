-- expect: time was up
-- ends only at the time limit
while true do end
