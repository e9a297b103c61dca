-- expect: time was up
while true do end
