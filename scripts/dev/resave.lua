-- For check_files.py: loads files and saves their contents under other names.
--   build/heed scripts/dev/resave.lua     answers each line IN <tab> OUT of standard input with "ok" or the error
local heed = require "heed"

for line in io.lines() do
  local from, to = line:match "^(.-)\t(.*)$"
  local what, metadata = heed.load(from)
  local done, message = what ~= nil, metadata
  if done then
    if to:find "%.gguf$" then metadata = what.metadata end
    local with = not to:find "%.np[yz]$" and next(metadata or {}) and { metadata = metadata } or {}
    local fine, result, problem = pcall(heed.save, to, what, with) -- an error: a tensor that heed cannot use
    done, message = fine and result, fine and problem or tostring(result):gsub("^.-:%d+: ", "", 1)
  end
  print(done and "ok" or message)
end
