-- Shared by the specs of files: a temporary folder for each test, and writing files there.
local assert = require "luassert"
local support = require "tests.support"

local files = {}

local folder -- of the current test

--- To be called in a `describe`: creates a folder before each test and removes it afterwards.
function files.in_folders(before_each, after_each)
  before_each(function() folder = support.new_folder() end)
  after_each(function() support.remove_folder(folder) end)
end

function files.folder() return folder end

function files.path(name) return folder .. "/" .. name end

--- Writes a file and returns its path.
function files.file(name, text)
  support.write(files.path(name), text)
  return files.path(name)
end

function files.count() return tonumber(support.run("ls -A " .. support.quote(folder) .. " | wc -l").out) end

--- The results of a call must be nil and `message`.
function files.fails(message, got, text)
  assert.is_nil(got)
  assert.are.equal(message, text)
end

--- The contents of a .safetensors file with this header and data.
function files.safetensors(header, data) return string.pack("<s8", header) .. (data or "") end

return files
