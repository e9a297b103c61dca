-- For specs: a message without what heed.suggest and the binding add to it, unless `expected` has that, too. What they
-- add is tested in suggest_spec.lua and first_mistakes_spec.lua.
local HINTS = {
  "^; did you mean '.-'%?$",
  "^; call it as x:[%w_]+%(%.%.%.%), with a colon, or as heed%.[%w_]+%(x, %.%.%.%)$",
  '^; write "[%w]+"$',
  "^; heed.tensor makes one from a table$",
  "^; heed computes on the processor: leave it out$",
  "^: convert with [%w_]+:bool%(%), or compare, as x:gt%(0%) does$",
  "^; it must be an integer; name the dtype: .*$",
}

return function(got, expected)
  if got:sub(1, #expected) ~= expected then return got end
  local rest = got:sub(#expected + 1)
  for _, hint in ipairs(HINTS) do
    if rest:find(hint) then return expected end
  end
  return got
end
