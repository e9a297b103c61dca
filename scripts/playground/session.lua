-- Runs in each new state of the playground before the reader's script. Charts without a file are shown between the
-- lines of the output: as an escape sequence (OSC), which the worker takes out of the text again.
local write = io.write
local preload = package.preload
local open = preload["heed.plot"]

preload["heed.plot"] = function(...)
  local plot = open(...)
  plot.display = function(content, format, title)
    title = (title or ""):gsub("[%c;]", " ")
    write("\27]", format, ";", title, ";", content, "\7")
  end
  return plot
end
