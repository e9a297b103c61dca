-- expect: time limit exceeded
-- ends only at the time limit
while true do end
