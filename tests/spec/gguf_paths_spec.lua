-- Which files are read and written as GGUF, and what loading says about files that hold no model.
local heed = require "heed"
local files = dofile "tests/files.lua"
local support = require "tests.support"

local DECODERS = "tests/golden/decoders/"

describe("a GGUF file", function()
  files.in_folders(before_each, after_each)
  local folder = files.path

  it("is known by its ending in any case", function()
    local model, path = assert(heed.models.load(DECODERS .. "llama")), folder "model.GGUF"
    assert(model:save_pretrained(path, { dtype = "q8_0" }))
    assert.equal("GGUF", support.read(path):sub(1, 4))
    assert.equal("q8_0", assert(heed.models.load(path)).layers[1].gate.weight.dtype)
    local state = assert(heed.load(path))
    assert.equal("llama", state.metadata["general.architecture"])
    assert(heed.save(folder "copy.Gguf", state, { metadata = state.metadata }))
    assert.equal("llama", assert(heed.load(folder "copy.Gguf")).metadata["general.architecture"])
    support.write(folder "tokens.GGUF", support.read "tests/golden/tokenizers/smollm.gguf")
    assert.equal("{{ messages[0].content }}", assert(heed.tokenizers.load(folder "tokens.GGUF")).chat_template)
  end)

  it("is known by its first bytes under any other name", function()
    local model, path = assert(heed.models.load(DECODERS .. "llama")), folder "x.gguf"
    assert(model:save_pretrained(path))
    support.write(folder "sha256-1234", support.read(path))
    assert.equal(61, assert(heed.models.load(folder "sha256-1234")).config.vocab_size)
    assert(require("heed.models.llama").load(folder "sha256-1234"))
    support.write(folder "tokens", support.read "tests/golden/tokenizers/smollm.gguf")
    assert.equal("<|begin|>", assert(heed.tokenizers.load(folder "tokens")).bos_token)
  end)
end)

describe("loading what is no model says so", function()
  files.in_folders(before_each, after_each)
  local folder = files.path
  local load, fails = heed.models.load, files.fails

  it("of a file of another kind, for every class", function()
    local path = files.file("passwd", "root:x:0:0:root:/root:/bin/sh\n")
    local message = ("load: '%s': its format is unknown; it must be .safetensors, .safetensors.index.json, .npz, .npy, "
      .. ".pt or .gguf, by the ending or the first bytes"):format(path)
    for _, name in ipairs { "bert", "gpt2", "llama", "roberta" } do
      fails(message, require("heed.models." .. name).load(path))
    end
    fails(message, load(path))
  end)

  it("of a folder whose files have other names", function()
    files.file("some.gguf", "GGUF")
    fails(("models.load: the folder '%s' has none of model.safetensors, model.safetensors.index.json, "
      .. "pytorch_model.bin, model.gguf; give the path of the file if it has another name, such as a .gguf")
      :format(files.folder()), load(files.folder()))
  end)

  it("of a GGUF file of another class", function()
    local path = folder "x.gguf"
    assert(assert(load(DECODERS .. "llama")):save_pretrained(path))
    fails("Bert.load: unsupported configuration: general.architecture is a string ('llama'); it must be 'bert' here; "
      .. "heed.models.load finds the class of a file", require("heed.models.bert").load(path))
    fails(("Roberta.load: '%s' is a GGUF file, whose encoders are of the class Bert; use heed.models.load")
      :format(path), require("heed.models.roberta").load(path))
    fails(("GPT2.load: '%s': GGUF files of gpt2 are not supported"):format(path),
      require("heed.models.gpt2").load(path))
    fails("Qwen2.load: unsupported configuration: general.architecture is a string ('llama'); it must be 'qwen2' here; "
      .. "heed.models.load finds the class of a file", require("heed.models.qwen2").load(path))
  end)
end)

it("the ending of a path counts in any case for every format", function()
  support.with_file(function(path)
    for _, ending in ipairs { ".SAFETENSORS", ".Npz", ".NPY" } do
      local x = heed.ones(2, 3)
      assert(heed.save(path .. ending, ending == ".NPY" and x or { x = x }))
      local loaded = assert(heed.load(path .. ending))
      assert.is_true(x:equal(ending == ".NPY" and loaded or loaded.x))
      os.remove(path .. ending)
    end
  end)
end)
