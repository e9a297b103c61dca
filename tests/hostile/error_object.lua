-- expect: without a message
error(setmetatable({}, { __tostring = error }))
