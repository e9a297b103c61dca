--- heed.nn: the built-in modules, written in C (src/binding/lnn.c), and those of this folder.

return require("heed").nn
