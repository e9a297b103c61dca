---@meta heed.plot

---Charts. Without `file` and `to` they are printed, in what the terminal can show: true colour, 256 or 16 colours, or
---characters (NO_COLOR, TERM, COLORTERM; files and pipes get characters).
---@class heed.plot
---@field display false|fun(content: string, format: "svg"|"html", title?: string) set by hosts that can show pictures: receives what would be printed
local plot = {}

---@class heed.PlotOptions
---@field title? string above the chart
---@field file? string a path that ends in .svg, .png, .html or .txt: the chart is written there
---@field format? "svg"|"png"|"html"|"txt" instead of the path's ending
---@field to? "string" returns the chart
---@field width? integer of a text in columns, else in pixels (of PNG: half)
---@field height? integer of a line chart's text in lines, else in pixels (of PNG: half)
---@field range? number[] {lowest, highest}, instead of those of the values

---@class heed.HeatmapOptions: heed.PlotOptions
---@field labels? string[] of rows and columns
---@field row_labels? string[] of the rows alone
---@field column_labels? string[] of the columns alone
---@field names? string[] of several maps
---@field values? boolean writes numbers into the cells
---@field colours? "viridis"|"cividis"|"diverging"|"grey" diverging: around 0

---@class heed.LineOptions: heed.PlotOptions
---@field x? heed.Tensor|number[] 1 to n without it
---@field names? string[] of the series

---@class heed.BarsOptions: heed.PlotOptions
---@field labels? string[] one for each bar

---@class heed.HistOptions: heed.PlotOptions
---@field bins? integer of equal width, default 10; range is that of the bins

---A heat map of x [rows, columns], of several [maps, rows, columns], or of one row [columns].
---@param x heed.Tensor|table [rows, columns], [maps, rows, columns] or [columns]
---@param options? heed.HeatmapOptions
---@return string|boolean|nil result the chart (`to`), true if it was written (`file`), or nil
---@return string? problem why the file could not be written
function plot.heatmap(x, options) end

---Lines of y [n] or [series, n], or of a list of series; nan and inf leave gaps.
---@param y heed.Tensor|table [n] or [series, n]
---@param options? heed.LineOptions
---@return string|boolean|nil result
---@return string? problem
function plot.line(y, options) end

---One bar for each value of y [n].
---@param y heed.Tensor|number[] [n]
---@param options? heed.BarsOptions
---@return string|boolean|nil result
---@return string? problem
function plot.bars(y, options) end

---A histogram of all values of x, counted as numpy.histogram does; nan and inf are left out.
---@param x heed.Tensor|table any numbers
---@param options? heed.HistOptions
---@return string|boolean|nil result
---@return string? problem
function plot.hist(x, options) end

---@class heed.AttentionPageOptions
---@field file? string a path that ends in .html (the page) or .txt (the strongest links)
---@field title? string the text by default
---@field full? boolean the page keeps all weights, however large it becomes; false by default: it stays under 2 MB
---@field top? integer so many weights of each row, at most 255, instead of as many as fit; in text 3 by default
---@field labels? (string|number)[]|heed.AttentionLabels of the tokens, for models that are given ids
---@field head? integer[] {layer, head}: the page opens with it, and text shows it instead of the mean of all heads
---@field format? "html"|"txt" instead of the path's ending
---@field to? "string" returns the page or the text

---The labels of cross attention.
---@class heed.AttentionLabels
---@field queries (string|number)[] labels of the rows
---@field keys (string|number)[] labels of the columns

---The attention of all layers and heads as one HTML page that needs no network, or without `file`, as text: the
---strongest links of each token. Weights of exactly 0 are hidden places.
---@param source heed.Module|heed.Tensor|heed.Tensor[] a model, or the weights of its layers, each [heads, queries, keys]
---@param given? string|heed.Indices|heed.Tensor|heed.AttentionLabels for a model with a tokenizer a text, for others their input; for weights the labels
---@param options? heed.AttentionPageOptions
---@return string|boolean|nil result the page (`to`), true if it was written (`file`), or nil
---@return string? problem why the file could not be written
function plot.attention(source, given, options) end

return plot
