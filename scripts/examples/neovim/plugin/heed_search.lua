-- :Heed and :HeedStop; lua/heed_search.lua is loaded by the first use.
local function command(name, about, options, run)
  options.desc = about
  vim.api.nvim_create_user_command(name, run, options)
end

command("Heed", "rank the lines of this buffer (with !: of all buffers) by meaning", { nargs = "*", bang = true },
  function(given) require("heed_search").search(given.args, { all = given.bang }) end)
command("HeedStop", "end the search that is running", {}, function() require("heed_search").stop() end)
