--- The generator of dropout whose weights are divided among ranks: each rank draws its part of all of them.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local object = require "heed.utils.data.object"

local draws = {}

--- The generator for dropout with probability p, the default one for nil. Raises, as the function `name`, unless its
--- numbers depend on the weight alone. divided, instead: parts of that message.
function draws.generator(generator, p, name, divided, instead)
  if generator == nil then return draws.generator(core.default_generator, p, name, divided, instead) end
  object.check_generator(generator, name)
  if generator:kind() == "philox" then return generator end
  E.fail("%s: dropout is %g%s, but the generator is of the kind \"mt19937\", whose numbers have an order; call "
    .. "heed.manual_seed(seed, \"philox\") on all ranks, or %s", name, p, divided, instead)
end

--- Moves a generator behind one draw.
function draws.move_on(generator) generator:set_offset(compat.divide(generator:get_offset() + 3, 4) * 4 + 4) end

return draws
