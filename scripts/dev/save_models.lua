-- For check_files.py: loads models and saves them as GGUF files.
--   build/heed scripts/dev/save_models.lua     answers each line IN <tab> OUT <tab> DTYPE of standard input with "ok"
--                                              or the error; DTYPE may be empty
local heed = require "heed"

for line in io.lines() do
  local from, to, dtype = line:match "^(.-)\t(.-)\t(.*)$"
  local model, problem = heed.models.load(from)
  local done = model
  if model then done, problem = model:save_pretrained(to, { dtype = dtype ~= "" and dtype or nil }) end
  print(done and "ok" or problem)
end
