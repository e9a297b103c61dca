---@meta _
-- heed.utils.progress: a progress bar for loops.

---@class heed.utils
local Utils = {}

---@class heed.ProgressOptions
---@field name? string what is counted; "step" by default
---@field unit? string of the amounts, for a rate such as "51.2 k tokens/s"; none by default
---@field first? integer this many are done already; 0 by default
---@field parts? integer how many lines to write where the output is not a terminal; 20 by default
---@field write? fun(text: string) writes the text; to standard output by default
---@field columns? integer|false the width of the terminal, false for none; that of standard output by default

---A line that is redrawn on a terminal, with a bar and the time left; elsewhere a line every few percent.
---@class heed.Progress
local Progress = {}

---Makes a progress bar, which update draws.
---@param total integer how many there are
---@param options? heed.ProgressOptions
---@return heed.Progress
---@nodiscard
function Utils.progress(total, options) end

---`done` of all are done.
---@param done integer how many
---@param text? string shown beside, such as "loss 1.23"; the last one by default
---@param amount? number how many units were processed since the last call
---@return heed.Progress self
function Progress:update(done, text, amount) end

---Writes a line above the bar.
---@param line any what to write
---@return heed.Progress self
function Progress:print(line) end

---Ends the line of the bar. Nothing is drawn afterwards unless update is called.
function Progress:finish() end
