-- Trains the small models of the examples: build/heed scripts/dev/make_toys.lua
-- scripts/examples/induction: two layers that continue repeated text. It takes some minutes. The same version of heed
-- gives the same weights on every processor of one kind, whatever the number of threads.
local script = "scripts/examples/train_induction.lua"
rawset(_G, "arg", { [0] = script, "--steps", "3000", "--seed", "24", "--out", "scripts/examples/induction" })
dofile(script)
-- scripts/examples/names_llama: a Llama that invents names.
rawset(_G, "arg", { [0] = "scripts/dev/make_names_llama.lua" })
dofile "scripts/dev/make_names_llama.lua"
