--- Sliding windows in some of the layers, as Qwen's models have them.

local windows = {}

--- Rules for the settings of windows, with those in `more`.
function windows.settings(more)
  more.use_sliding_window = { kind = "boolean", default = false }
  more.sliding_window = { kind = "size", optional = true }
  more.max_window_layers = { kind = "number", default = 28 }
  more.layer_types = { kind = "table", optional = true }
  return more
end

--- Without use_sliding_window, sliding_window has no meaning; with it, its default is 4096.
function windows.adjust(c) c.sliding_window = c.use_sliding_window and (c.sliding_window or 4096) or nil end

function windows.slides(c, i) return c.sliding_window and i > c.max_window_layers end

--- The window of layer i, or nil.
function windows.of(c, i) return c.layer_types[i] == "sliding_attention" and c.sliding_window or nil end

return windows
