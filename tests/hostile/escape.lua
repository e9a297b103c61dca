-- expect: nothing is there
for _, name in ipairs { "io", "os", "debug", "package", "require", "load", "loadfile", "dofile" } do
  assert(_G[name] == nil, name)
end
assert(not pcall(string.dump or error, function() end))
error "nothing is there"
