--- Analyses that need gradients.

local E = require "heed.nn.entries"

local gradients = {}

for _, name in ipairs { "attribution_patching", "integrated_gradients" } do
  gradients[name] = function()
    E.fail("%s: it needs gradients, which heed does not have yet; use activation_patching", name)
  end
end

return gradients
