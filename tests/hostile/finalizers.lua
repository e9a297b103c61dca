-- expect: done
-- ends only at the time limit
for _ = 1, 100 do
  setmetatable({}, { __gc = function() heed.rand(100, 100) while true do end end })
end
error "done"
