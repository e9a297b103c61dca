--- Modules of one's own as parts of the built-in attention modules: `mha.W_query = Lora(mha.W_query)`.

local core = require "heed.core"
local E = require "heed.nn.entries"
local protocol = require "heed.nn.protocol"
local primitives = core.modules

local own = {}

--- m[name] = value, for a module written in Lua or one that holds such modules.
function own.set(m, name, value)
  local class_name, written = E.class_name(m), E.record(value)
  if not E.is_module(value) then
    E.reject(class_name, name, value, "a module: nn.%s or one of your own", name == "dropout" and "Dropout" or "Linear")
  end
  E.walk(value, "", class_name, {}, function(each)
    if each == m then
      E.fail("%s: %s is a module that contains this one; it must be a module that does not", class_name, name)
    end
  end)
  if written then
    written.inside = true
    primitives.set_own(m, name, value, E.class_name(value))
  else
    primitives.set_part(m, name, value)
  end
end

--- The forward pass of a module with such parts. They are called from here, so that they may yield.
function own.forward(m, x, ...)
  if E.class_name(m) == "MultiHeadAttentionWrapper" then return primitives.forward(m, x, ...) end
  local pass, wanted = primitives.own_pass(m, x, ...)
  local part, input = primitives.own_next(pass)
  while part do
    local y = part(input)
    part, input = primitives.own_next(pass, y)
  end
  return primitives.own_result(pass, wanted)
end

function own.train(m, mode) protocol.train(m, mode) end

return E.with_frames(own, "forward", "set", "train")
