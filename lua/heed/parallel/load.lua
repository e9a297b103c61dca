--- load(Class, path, divide, config): loads a model of which each rank reads its own part only.

local E = require "heed.nn.entries"

local METHOD = "load"

--- Class.load(path, config), where divide(model) gets the model before its weights are read, and leaves it the parts of
--- this rank: function(model) return tensor_parallel(model, mesh.tp) end. Returns the model in evaluation mode, or nil
--- and a message. Rows stay in the mapped file; columns and transposed weights are copied, and no other pages are kept.
local function load(Class, path, divide, config)
  local record = E.record(Class)
  if not (record and record.metatable) or type(Class.load) ~= "function" then
    E.reject(METHOD, "Class", Class, "a class of models with a function load, such as heed.models.llama")
  end
  E.check_type(path, "string", METHOD, "path")
  E.check_type(divide, "function", METHOD, "divide")
  return Class.load(path, config, divide)
end

return E.with_frames({ load = load }, "load")
