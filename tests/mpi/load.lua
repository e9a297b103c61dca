-- load: models of which each rank reads its own part of the file. full_state_dict: the parts of all ranks together.
local heed = require "heed"
local cases = require "tests.decoder_cases"
local ranks = require "tests.ranks"
local support = require "tests.support"
local assert = require "luassert"
local tensors = require "tests.tensors"
local dist, rank, size, nn = ranks.dist, ranks.rank, ranks.size, heed.nn
local describe, it, with, message_of = ranks.describe, ranks.it, ranks.with, ranks.message_of

-- A folder that all ranks know; rank 1 makes it.
local function new_folder()
  local folder = rank == 1 and support.new_folder() or ""
  local bytes = heed.zeros(256, { dtype = "int64" })
  for i = 1, #folder do bytes[i] = folder:byte(i) end
  dist.broadcast(bytes, 1)
  local text = {}
  for i, byte in ipairs(bytes:tolist()) do text[i] = byte > 0 and string.char(byte) or nil end
  return table.concat(text)
end

local function with_folder(f)
  local folder = new_folder()
  f(folder)
  dist.barrier()
  if rank == 1 then support.remove_folder(folder) end
end

local function saved(Class, config, folder)
  heed.manual_seed(2)
  local model = Class(config):eval()
  if rank == 1 then assert(model:save_pretrained(folder)) end
  dist.barrier()
  return model
end

local gpt2, llama, bert = require "heed.models.gpt2", require "heed.models.llama", require "heed.models.bert"

local CASES = {
  { "gpt2", gpt2, { vocab_size = 50, n_embd = 24, n_layer = 5, n_head = 12, n_positions = 64 } },
  { "llama", llama, {
    vocab_size = 50, hidden_size = 24, intermediate_size = 70, num_hidden_layers = 5, num_attention_heads = 12,
    max_position_embeddings = 64, attention_bias = true,
  } },
}

local function tensor_parallel(model) return dist.tensor_parallel(model) end
local function pipeline(model) return dist.pipeline(model) end

describe("load", function()
  for _, case in ipairs(CASES) do
    it("reads each rank's heads, columns and rows of " .. case[1], function()
      with_folder(function(folder)
        local model = saved(case[2], case[3], folder)
        local t = assert(dist.load(case[2], folder, tensor_parallel))
        local wanted = dist.tensor_parallel(model:clone()):state_dict()
        local got = t:state_dict()
        assert.are.equal(#wanted, #got)
        for name, tensor in heed.pairs(wanted) do assert.is_true(tensor:equal(got[name]), name) end
        local ids = tensors.int64 { 1, 20, 50, 7 }
        tensors.close(model(ids), t(ids), 2e-6)
      end)
    end)

    it("reads each rank's layers of " .. case[1], function()
      with_folder(function(folder)
        local model = saved(case[2], case[3], folder)
        local p = assert(dist.load(case[2], folder, pipeline))
        local ids = tensors.int64 { 1, 20, 50, 7 }
        assert.is_true(model(ids):equal(p(ids)))
        local function loss_of(y, targets) return nn.functional.cross_entropy(y, targets) end
        dist.pipeline_step(p, ids, ids, loss_of)
        heed.enable_grad(function() loss_of(model(ids), ids):backward() end)
        for name, parameter in p:named_parameters() do
          tensors.close(model:get_parameter(name).grad, parameter.grad, 2e-6)
        end
      end)
    end)
  end

  it("divides layers and their heads at the same time", function()
    if size ~= 4 then return end
    local mesh = dist.init_device_mesh({ 2, 2 }, { "pp", "tp" })
    with_folder(function(folder)
      local model = saved(llama, CASES[2][3], folder)
      local both = assert(dist.load(llama, folder, function(m)
        return dist.pipeline(dist.tensor_parallel(m, mesh.tp), mesh.pp)
      end))
      local ids = tensors.int64 { 1, 20, 50, 7 }
      tensors.close(model(ids), both(ids), 2e-6)
    end)
  end)

  it("reads sentence encoders, too", function()
    if 3 % size ~= 0 then return end -- heads
    local path = "tests/golden/tiny_bert"
    local model, t = assert(bert.load(path)), assert(dist.load(bert, path, tensor_parallel))
    tensors.close(model(tensors.int64 { 2, 3, 4 }), t(tensors.int64 { 2, 3, 4 }), 1e-5)
  end)

  it("takes a config", function()
    local case = cases.golden.llama
    if not case or case.config.num_key_value_heads % size ~= 0 then return end
    local path = cases.top .. case.file
    local model, t = cases.load "llama", assert(dist.load(llama, path, tensor_parallel, case.config))
    tensors.close(model(tensors.int64 { 2, 3, 4 }), t(tensors.int64 { 2, 3, 4 }), 1e-5)
  end)

  -- What the process holds of the heap and of changed pages; pages of files that are only read are not counted.
  local function resident()
    collectgarbage()
    collectgarbage()
    local bytes = 0
    local file = io.open "/proc/self/smaps_rollup"
    if not file then return nil end
    for line in file:lines() do
      local count = line:match "^Rss:%s+(%d+)"
      bytes = count and tonumber(count) * 1024 or bytes
    end
    file:close()
    return bytes
  end

  with(2, "keeps a rank's share of the weights in memory, and no more than 3 MiB else", function()
    if not resident() then return end
    for _, case in ipairs {
      { gpt2, { vocab_size = 50, n_embd = 768, n_layer = 3, n_head = 12, n_positions = 64 } },
      { llama, {
        vocab_size = 50, hidden_size = 768, intermediate_size = 2304, num_hidden_layers = 3, num_attention_heads = 12,
        max_position_embeddings = 64,
      } },
    } do
      with_folder(function(folder)
        local share = 0
        for _, parameter in ipairs(saved(case[1], case[2], folder):parameters()) do
          share = share + parameter:numel() * 4 / size
        end
        local before = resident()
        local t = assert(dist.load(case[1], folder, tensor_parallel))
        local used = resident() - before
        assert.is_true(used <= share + 3 * 2 ^ 20, ("%g MiB; the share is %g"):format(used / 2 ^ 20, share / 2 ^ 20))
        assert.is_false(t.training)
      end)
    end
  end)

  it("refuses what it cannot load", function()
    assert.are.equal("load: Class is the class Linear; it must be a class of models with a function load, such as "
      .. "heed.models.llama", message_of(dist.load, nn.Module.class "Linear", "", tensor_parallel))
    assert.are.equal("load: divide is nil; it must be a function", message_of(dist.load, llama, "none"))
    local model, message = dist.load(llama, "no such folder", tensor_parallel)
    assert.is_nil(model)
    assert.are.equal("Llama.load: no such file or folder: 'no such folder'", message)
    with_folder(function(folder)
      saved(llama, CASES[2][3], folder)
      assert.are.equal("load: divide gave another model; it must change the one that it gets",
        message_of(dist.load, llama, folder, function(m) return m:clone() end))
    end)
  end)
end)

describe("full_state_dict", function()
  local function same_state(wanted, got)
    local names = {}
    for name, tensor in heed.pairs(wanted:state_dict()) do
      assert.are.equal(tensor.dtype, got[name] and got[name].dtype, name)
      assert.is_true(tensor:float():equal(got[name]:float()), name)
      names[name] = true
    end
    for name in heed.pairs(got) do assert.is_true(names[name], name) end
  end

  for _, case in ipairs(CASES) do
    it("joins the parts of " .. case[1] .. ", which can then be loaded anywhere", function()
      heed.manual_seed(2)
      local model = case[2](case[3])
      local t, p = dist.tensor_parallel(model:clone()), dist.pipeline(model:clone())
      same_state(model, dist.full_state_dict(t))
      same_state(model, dist.full_state_dict(t:clone()))
      same_state(model, dist.full_state_dict(p))
      local other = case[2](case[3])
      other:load_state_dict(dist.full_state_dict(t))
      same_state(model, other:state_dict())
    end)
  end

  it("joins parts of all kinds, and low-precision weights", function()
    heed.manual_seed(2)
    local m = nn.MultiHeadAttention {
      d_in = 24, d_out = 24, context_length = 8, dropout = 0, num_heads = 12, sinks = true, qk_norm = {},
    }
    same_state(m, dist.full_state_dict(dist.tensor_parallel(m)))
    m:to "bfloat16"
    same_state(m, dist.full_state_dict(dist.tensor_parallel(m)))
    local list = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 5))
    same_state(list, dist.full_state_dict(dist.tensor_parallel(list:clone(), nil, {
      ["0"] = dist.ColwiseParallel(), ["1"] = dist.RowwiseParallel(),
    })))
  end)

  it("joins heads and layers on a mesh of two dimensions", function()
    if size ~= 4 then return end
    local mesh = dist.init_device_mesh({ 2, 2 }, { "pp", "tp" })
    heed.manual_seed(2)
    local model = llama(CASES[2][3])
    same_state(model, dist.full_state_dict(dist.pipeline(dist.tensor_parallel(model:clone(), mesh.tp), mesh.pp)))
  end)

  it("is the state dict of a model that is not divided", function()
    local m = nn.Linear(2, 2)
    same_state(m, dist.full_state_dict(m))
    assert.are.equal("full_state_dict: model is a string ('m'); it must be a module",
      message_of(dist.full_state_dict, "m"))
  end)
end)

ranks.finish()
