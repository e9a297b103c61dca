--- heed.nn: the built-in modules, written in C (src/binding/lconstruct.c), and those of this folder.

return require("heed").nn
