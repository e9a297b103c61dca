-- expect: took too long
while true do end
