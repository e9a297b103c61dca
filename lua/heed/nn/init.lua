--- heed.nn: the modules. The built-in ones are in C (src/binding/lconstruct.c); the rest is made here, on the same
--- methods.

return require("heed").nn
