-- What the specs of files share: a folder for each test, and what is written there.
local assert = require "luassert"
local support = require "tests.support"

local files = {}

local folder -- of the test

--- Between `describe` and the tests: makes the folder, and takes it away.
function files.in_folders(before_each, after_each)
  before_each(function() folder = support.new_folder() end)
  after_each(function() support.remove_folder(folder) end)
end

function files.folder() return folder end

function files.path(name) return folder .. "/" .. name end

--- Writes a file and gives its path.
function files.file(name, text)
  support.write(files.path(name), text)
  return files.path(name)
end

function files.count() return tonumber(support.run("ls -A " .. support.quote(folder) .. " | wc -l").out) end

--- What a call gave must be nil and that message.
function files.fails(message, got, text)
  assert.is_nil(got)
  assert.are.equal(message, text)
end

--- The header and the data as a .safetensors file.
function files.safetensors(header, data) return string.pack("<s8", header) .. (data or "") end

return files
