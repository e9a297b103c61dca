---@meta heed.tokenizers.wordpiece

---@class heed.wordpiece
local wordpiece = {}

---Makes a tokenizer from a vocabulary: a text file with one piece on each line.
---@param path string of the file
---@param options? heed.WordPieceOptions
---@return heed.WordPiece? tokenizer nil if the file is missing or not a vocabulary
---@return string? problem
function wordpiece.load(path, options) end

return wordpiece
