--- A progress bar for loops: one line that is redrawn on a terminal, a line every few percent elsewhere.

local core = require "heed.core"
local E = require "heed.nn.entries"

local Progress = {}
Progress.__index = Progress

local OPTIONS = { "name", "unit", "first", "parts", "write", "columns" }
local REDRAW_SECONDS, RATE_SECONDS, LONGEST_BAR = 0.1, 3, 30

local function is_count(x) return x % 1 == 0 and x >= 0 end

local function default_write(text)
  if not io then return end -- a sandbox may lack it
  io.write(text)
  io.stdout:flush()
end

--- progress(total, {name = "step", unit =, first = 0, parts = 20, write =, columns =}): a bar for `total` steps, of
--- which `first` are done.
local function new(total, ...)
  local name, unit, first, parts, write, columns = core.modules.options("progress", OPTIONS, 2, total, ...)
  total = E.size(total, nil, "progress", "total")
  first = E.number(first, 0, "progress", "first", is_count, "an integer from 0 up")
  parts = E.size(parts, 20, "progress", "parts")
  for key, value in pairs { name = name, unit = unit } do E.check_type(value, "string", "progress", key) end
  if write ~= nil then E.check_type(write, "function", "progress", "write") end
  if columns ~= nil and columns ~= false then columns = E.size(columns, nil, "progress", "columns") end
  if columns == nil then columns = core.files.terminal() end
  local now = core.clock()
  return setmetatable({
    total = total, done = first, name = name or "step", unit = unit, parts = parts, text = "",
    write = write or default_write, columns = columns or nil, -- nil: not a terminal
    first = first, began = now, drawn_at = 0, said = math.floor(parts * first / total),
    amount = 0, mark = { time = now, amount = 0 }, rate = nil,
  }, Progress)
end

-- ---- Text ---------------------------------------------------------------------------------------

--- 75 seconds as 1:15.
local function duration(seconds)
  seconds = math.floor(seconds + 0.5)
  local minutes, hours = math.floor(seconds / 60), math.floor(seconds / 3600)
  if hours == 0 then return ("%.0f:%02.0f"):format(minutes, seconds % 60) end
  return ("%.0f:%02.0f:%02.0f"):format(hours, minutes % 60, seconds % 60)
end

--- 51234 as 51.2 k.
local function rounded(value)
  if value >= 999950 then return ("%.1f M"):format(value / 1e6) end
  if value >= 1000 then return ("%.1f k"):format(value / 1e3) end
  return value < 10 and ("%.1f"):format(value) or ("%.0f"):format(value)
end

--- The amount in a second, over the last seconds.
local function update_rate(self, now)
  local mark = self.mark
  if self.rate and now < mark.time + RATE_SECONDS then return end
  if now <= mark.time then return end
  self.rate = (self.amount - mark.amount) / (now - mark.time)
  self.mark = { time = now, amount = self.amount }
end

local function line_of(self, now)
  local parts = { ("%s %.0f/%.0f"):format(self.name, self.done, self.total) }
  if self.text ~= "" then parts[#parts + 1] = self.text end
  if self.unit and self.rate then parts[#parts + 1] = ("%s %s/s"):format(rounded(self.rate), self.unit) end
  local steps, seconds = self.done - self.first, now - self.began
  if self.done >= self.total then
    parts[#parts + 1] = duration(seconds)
  elseif steps > 0 then
    parts[#parts + 1] = duration(seconds / steps * (self.total - self.done)) .. " left"
  end
  return table.concat(parts, "  ")
end

local function draw(self, now)
  local line = line_of(self, now)
  if not self.columns then
    self.write(line .. "\n")
    return
  end
  local width = math.min(LONGEST_BAR, self.columns - #line - 5)
  if width >= 5 then
    local filled = math.floor(width * math.min(1, self.done / self.total) + 0.5)
    line = ("[%s%s] %s"):format(("#"):rep(filled), ("-"):rep(width - filled), line)
  end
  self.write("\r" .. line:sub(1, self.columns - 1) .. "\27[K")
end

-- ---- Methods ------------------------------------------------------------------------------------

--- update(done, text, amount): `done` steps are done; `text` is shown beside them; `amount` units more were processed.
function Progress:update(done, text, amount)
  self.done = E.number(done, nil, "update", "done", is_count, "an integer from 0 up")
  if text ~= nil then E.check_type(text, "string", "update", "text") end
  self.text = text or self.text
  self.amount = self.amount + E.number(amount, 0, "update", "amount")
  local now, part = core.clock(), math.floor(self.parts * done / self.total)
  local is_due = self.columns and (now >= self.drawn_at + REDRAW_SECONDS or done >= self.total)
  if is_due or not self.columns and part > self.said then
    update_rate(self, now)
    draw(self, now)
    self.drawn_at, self.said = now, part
  end
  return self
end

--- Writes a line above the bar.
function Progress:print(line)
  self.write(("%s%s\n"):format(self.columns and "\r\27[K" or "", tostring(line)))
  if self.columns then draw(self, core.clock()) end
  return self
end

--- Ends the line of the bar.
function Progress:finish()
  if self.columns and not self.finished then
    draw(self, core.clock())
    self.write "\n"
  end
  self.finished = true
end

E.with_frames(Progress, "update", "print", "finish")
return new
