-- Bad arguments of the modules that are written in Lua, of nn.functional and of nn.init; and what a golden set cannot
-- say.
local heed = require "heed"
local nn, F, init = heed.nn, heed.nn.functional, heed.nn.init

local fails = require "tests.fails"
local raises = require "tests.raises"
local tensors = require "tests.tensors"
local int64 = tensors.int64

describe("a module of PyTorch", function()
  it("accepts its arguments by position and by name", function()
    local softplus = nn.Softplus(2, { threshold = 3 })
    assert.are.same({ 2, 3 }, { softplus.beta, softplus.threshold })
    assert.are.equal(4, nn.BatchNorm1d { num_features = 4 }.num_features)
    assert.are.equal(6, nn.MultiheadAttention { embed_dim = 6, num_heads = 2, vdim = 5 }.embed_dim)
    assert.is_true(nn.TransformerEncoderLayer(4, 2, { norm_first = true }).norm_first)
    assert.are.equal("sum", nn.MSELoss("sum").reduction)
    assert.are.equal("BatchNorm1d(6, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)",
      tostring(nn.BatchNorm1d(12 / 2))) -- a float since Lua 5.3
  end)

  it("is applied to one tensor", function()
    raises("Tanh: x is nil; it must be a tensor", function()
      nn.Tanh()()
      return
    end)
    fails("LeakyReLU: the second argument is a tensor of shape [2] and dtype float32; there must be only one " ..
      "tensor, the input x", nn.LeakyReLU(), heed.ones(2), heed.ones(2))
    fails("Tanh: there is no option 'dim'; it has none", nn.Tanh(), heed.ones(2), { dim = 1 })
    fails("Flatten: x is the number 3; it must be a tensor", nn.Flatten(), 3)
    fails("MSELoss: 3 arguments are given; it takes input and target", nn.MSELoss(), heed.ones(2), heed.ones(2), 1)
  end)

  it("says what is wrong with an argument", function()
    fails("Softmax: dim is nil; it must be an integer: the dimension along which to normalize, such as -1", nn.Softmax)
    fails("Softmax: dim is the number 1.5; it must be an integer", nn.Softmax, 1.5)
    fails("Unflatten: unflattened_size is the number 2; it must be a list of sizes", nn.Unflatten, 1, 2)
    fails("Unflatten: dim is 4 and x has 2 dimensions", nn.Unflatten(4, { 1, 2 }), heed.ones(2, 2))
    fails("SwiGLU: hidden_features is nil; it must be an integer, at least 1", nn.SwiGLU, 4)
    fails("BatchNorm1d: num_features is the number 0; it must be an integer, at least 1", nn.BatchNorm1d, 0)
    fails("BatchNorm1d: x is a tensor of shape [2, 3] and dtype float32; it must be [n, 4] or [n, 4, length]",
      nn.BatchNorm1d(4), heed.ones(2, 3))
    fails("glu: input has 3 elements along dim -1; it must be an even number", nn.GLU(), heed.ones(2, 3))
    fails("KLDivLoss: reduction is a string ('avg'); it must be 'none', 'batchmean', 'sum' or 'mean'", nn.KLDivLoss,
      "avg")
  end)

  it("writes the result into x with inplace", function()
    local x = heed.tensor { -1, 2 }
    assert.are.equal(x, nn.LeakyReLU(0.5, true)(x))
    assert.are.same({ -0.5, 2 }, x:tolist())
    assert.are.equal("LeakyReLU(negative_slope=0.5, inplace=True)", tostring(nn.LeakyReLU(0.5, true)))
    assert.are.same({ 0, 2 }, F.relu(x, { inplace = true }):tolist())
    assert.are.same({ 0, 2 }, x:tolist())
  end)

  it("splits dimensions with Unflatten", function()
    assert.are.equal("heed.Size([2, 2, 3])", tostring(nn.Unflatten(2, { 2, -1 })(heed.ones(2, 6)).shape))
    assert.are.equal("heed.Size([2, 3, 2])", tostring(nn.Unflatten(-2, { 2, 3 })(heed.ones(6, 2)).shape))
    assert.are.equal("Unflatten(dim=2, unflattened_size=(2, 3))", tostring(nn.Unflatten(2, { 2, 3 })))
    assert.are.equal("Unflatten(dim=2, unflattened_size=(6,))", tostring(nn.Unflatten(2, { 6 })))
  end)

  it("computes Llama's feed-forward part with SwiGLU", function()
    local m, x = nn.SwiGLU(4, 6, 3, true), heed.randn(2, 4)
    local wanted = m.w2(m.w1(x):silu() * m.w3(x))
    assert.is_true(m(x):equal(wanted))
    assert.are.equal("w1.weight w1.bias w2.weight w2.bias w3.weight w3.bias", tensors.names_of(m:named_parameters()))
    assert.is_nil(nn.SwiGLU(4, 6).w1.bias)
  end)

  it("refuses a batch of one value for each channel in training", function()
    local m = nn.BatchNorm1d(2)
    fails("batch_norm: input is a tensor of shape [1, 2] and dtype float32; it must be a tensor " ..
      "of several values for each channel in training; use m:eval() for one", m, heed.ones(1, 2))
    assert.are.equal(0, m.num_batches_tracked:item())
    assert.are.same({ 0, 0 }, m.running_mean:tolist())
    m:eval()(heed.ones(1, 2))
  end)
end)

describe("MultiheadAttention", function()
  local m, x = nn.MultiheadAttention(4, 2, { batch_first = true }), heed.randn(2, 3, 4)

  it("says how to write self-attention", function()
    fails("MultiheadAttention: key is nil; it must be a tensor; for self-attention, write m(x, x, x)", m, x)
  end)

  it("checks sizes, shapes and masks", function()
    fails("MultiheadAttention: embed_dim is 5 and num_heads is 2; embed_dim must be a multiple of num_heads",
      nn.MultiheadAttention, 5, 2)
    fails("MultiheadAttention: dropout is the number 2; it must be a number from 0 to 1", nn.MultiheadAttention, 4,
      2, 2)
    fails("MultiheadAttention: query is a tensor of shape [3] and dtype float32; it must be [b, l, 4] or [l, " ..
      "4]", m, heed.ones(3), x, x)
    fails("MultiheadAttention: value is a tensor of shape [2, 3, 5] and dtype float32; it must be a " ..
      "tensor whose last size is 4", m, x, x, heed.ones(2, 3, 5))
    fails("MultiheadAttention: key is a tensor of shape [1, 3, 4] and dtype float32; it must be of the batch of " ..
      "query, 2", m, x, heed.ones(1, 3, 4),
      x)
    fails("MultiheadAttention: attn_mask is a tensor of shape [3, 4] and dtype bool; it must be [3, 3] " ..
      "(queries, keys) or [4, 3, 3] (batch · " ..
      "heads, queries, keys)", m, x, x, x, { attn_mask = heed.ones(3, 4):bool() })
    fails("MultiheadAttention: key_padding_mask is a tensor of shape [3, 3] and dtype bool; it must be [2, 3] " ..
      "(batch, keys)", m, x, x, x,
      { key_padding_mask = heed.ones(3, 3):bool() })
    fails("MultiheadAttention: there is no option 'mask'; the options are key_padding_mask, need_weights, " ..
      "attn_mask, " ..
      "average_attn_weights, is_causal, lengths, key_lengths; did you mean 'attn_mask'?", m, x, x, x, { mask = x })
  end)

  it("hides where its masks are true", function()
    local hidden = heed.tensor { { false, true, true }, { false, false, true }, { false, false, false } }
    local y, weights = m(x, x, x, { attn_mask = hidden })
    assert.are.equal(0, weights:masked_select(hidden:expand(2, 3, 3)):abs():max():item())
    tensors.close(y, (m(x, x, x, { is_causal = true })))
    tensors.close(y, (m(x, x, x, { attn_mask = hidden, is_causal = true, need_weights = false })))
  end)

  it("returns no weights if they are not needed", function()
    local y, weights = m(x, x, x, { need_weights = false })
    assert.is_nil(weights)
    tensors.close(y, (m(x, x, x)))
    assert.are.equal("heed.Size([2, 2, 3, 3])",
      tostring(select(2, m(x, x, x, { average_attn_weights = false })).shape))
  end)

  it("gives zeros to a query that sees no key", function()
    local all = heed.ones(3, 3):bool()
    local y, weights = m(x, x, x, { attn_mask = all })
    assert.are.equal(0, weights:abs():max():item())
    tensors.close(m.out_proj.bias:expand(2, 3, 4), y)
  end)

  it("never lets a hidden key reach the result, not even nan", function()
    local holes = x:clone()
    holes[{ {}, 3 }] = 0 / 0
    local padding = heed.tensor { { false, false, true }, { false, false, true } }
    for _, dtype in ipairs { "bool", "float32" } do
      local mask = dtype == "bool" and padding or heed.zeros(2, 3):masked_fill(padding, -math.huge)
      local y, weights = m(x, x, x, { key_padding_mask = mask })
      assert.are.equal(0, weights[{ {}, {}, 3 }]:abs():max():item())
      assert.is_false(y:isnan():any():item())
    end
    local y, weights = m(x, holes, holes, { key_padding_mask = padding })
    tensors.close((m(x, x, x, { key_padding_mask = padding })), y)
    assert.is_false(weights:isnan():any():item())
  end)

  it("returns the weights after dropout, with which it computes", function()
    local dropped = nn.MultiheadAttention(4, 1, 0.5)
    local values, state = heed.eye(4):unsqueeze(2), dropped:state_dict()
    dropped.in_proj_weight:narrow(1, 9, 4):copy_(heed.eye(4))
    dropped.out_proj.weight:copy_(heed.eye(4))
    assert.are.equal(4, #state)
    heed.manual_seed(1)
    local y, weights = dropped(values, values, values)
    assert.is_true(weights:eq(0):any():item())
    tensors.close(weights:squeeze(1), y:squeeze(2))
    heed.manual_seed(1)
    tensors.close(y, (dropped(values, values, values, { need_weights = false })))
  end)

  it("stores the weight of its out_proj in other dtypes", function()
    for _, name in ipairs { "to", "half", "bfloat16" } do
      local copy = m:clone()
      if name == "to" then copy:to "bfloat16" else copy[name](copy) end
      assert.are_not.equal("float32", copy.out_proj.weight.dtype)
      tensors.close((m(x, x, x)), (copy(x, x, x)), 0.05)
    end
  end)
end)

describe("Sequential", function()
  it("says how to make a module of a class", function()
    fails("Sequential: the appended value is the class Tanh; it must be a module; Tanh(…) makes one", nn.Sequential,
      nn.ReLU(), nn.Tanh)
  end)
end)

describe("a transformer", function()
  it("applies modules and functions as activation", function()
    heed.manual_seed(1)
    local a = nn.TransformerEncoderLayer(4, 2, 6, { dropout = 0, activation = "gelu" })
    heed.manual_seed(1)
    local b = nn.TransformerEncoderLayer(4, 2, 6, { dropout = 0, activation = nn.GELU() })
    heed.manual_seed(1)
    local c = nn.TransformerEncoderLayer(4, 2, 6, { dropout = 0, activation = heed.gelu })
    local x = heed.randn(3, 2, 4)
    assert.is_true(a(x):equal(b(x)))
    assert.is_true(a(x):equal(c(x)))
    assert.truthy(tostring(b):find("(activation): GELU(approximate='none')", 1, true))
  end)

  it("has layers of its own weights", function()
    local layer = nn.TransformerEncoderLayer(4, 2, 6)
    local m = nn.TransformerEncoder(layer, 2)
    assert.are.equal(2 * #layer:parameters(), #m:parameters())
    m.layers[1].linear1.weight:fill_(0)
    assert.are_not.equal(0, layer.linear1.weight:abs():max():item())
    assert.are_not.equal(0, m.layers[2].linear1.weight:abs():max():item())
  end)

  it("drops in training mode only", function()
    local m, x = nn.TransformerDecoderLayer(4, 2, 6), heed.randn(3, 1, 4)
    assert.is_false(m(x, x):equal(m(x, x)))
    m:eval()
    assert.is_true(m(x, x):equal(m(x, x)))
  end)

  it("makes causal masks", function()
    local mask = nn.Transformer.generate_square_subsequent_mask(3)
    assert.are.equal("tensor([[0., -inf, -inf],\n        [0., 0., -inf],\n        [0., 0., 0.]])", tostring(mask))
    local m = nn.TransformerEncoderLayer(4, 2, 6):eval()
    local x = heed.randn(3, 2, 4)
    tensors.close(m(x, { src_mask = mask }), m(x, { is_causal = true }))
  end)

  it("says what is wrong with an argument", function()
    fails("TransformerEncoderLayer: d_model is 5 and nhead is 2; d_model must be a multiple of nhead",
      nn.TransformerEncoderLayer, 5, 2)
    fails("TransformerEncoderLayer: activation is a string ('tanh'); it must be 'relu', 'gelu', a function or a " ..
      "module",
      nn.TransformerEncoderLayer, 4, 2, 6, { activation = "tanh" })
    fails("TransformerEncoder: encoder_layer is nil; it must be a module", nn.TransformerEncoder)
    fails("TransformerEncoder: num_layers is nil; it must be an integer, at least 1", nn.TransformerEncoder, nn.ReLU())
    fails("TransformerDecoderLayer: memory is nil; it must be a tensor", nn.TransformerDecoderLayer(4, 2, 6),
      heed.ones(3, 4))
  end)
end)

describe("a loss of classes", function()
  local x = heed.randn(3, 4)

  it("accepts a table, int64, or float32 with whole values", function()
    local wanted = F.cross_entropy(x, int64 { 1, 4, 2 })
    assert.is_true(wanted:equal(F.cross_entropy(x, { 1, 4, 2 })))
    assert.is_true(wanted:equal(F.cross_entropy(x, heed.tensor { 1, 4, 2 })))
    assert.is_true(wanted:equal(nn.CrossEntropyLoss()(x, { 1, 4, 2 })))
    assert.is_true(F.cross_entropy(x[1], 4):equal(F.cross_entropy(x[1], int64(4))))
  end)

  it("says what is wrong with the classes", function()
    local range = "classes must be from 1 to 4, the size of input's class dimension"
    fails("cross_entropy: target has the class 5; " .. range, F.cross_entropy, x, { 1, 5, 2 })
    fails("cross_entropy: target has the class 0; " .. range .. "; for classes that count from 0, use target + 1",
      F.cross_entropy, x, { 1, 0, 2 })
    fails("nll_loss: target has the class -7; " .. range, F.nll_loss, x, { 1, -7, 2 })
    fails("cross_entropy: target contains 1.5; it must have whole numbers: convert with x:long(), which drops " ..
      "fractions (element [2] of target)", F.cross_entropy, x, heed.tensor { 1, 1.5, 2 })
    fails("cross_entropy: input is [3, 4] and target is [2]; target must have the shape of input without " ..
      "dimension 2, " ..
      "the classes", F.cross_entropy, x, { 1, 2 })
    fails("cross_entropy: weight is a tensor of shape [3] and dtype float32; it must be [4], one for each " ..
      "class", F.cross_entropy, x, { 1, 2, 3 },
      { weight = heed.ones(3) })
    fails("cross_entropy: label_smoothing is the number 2; it must be a number from 0 to 1", F.cross_entropy, x,
      { 1, 2, 3 }, { label_smoothing = 2 })
    fails("cross_entropy: reduction is a string ('avg'); it must be 'none', 'mean' or 'sum'", F.cross_entropy, x,
      { 1, 2, 3 }, { reduction = "avg" })
  end)

  it("is nan if all targets are ignored", function()
    local loss = F.cross_entropy(x, { -100, -100, -100 }):item()
    assert.are_not.equal(loss, loss)
  end)

  it("keeps weights in the state dict", function()
    assert.are.equal("weight", tensors.names_of(heed.pairs(nn.CrossEntropyLoss(heed.ones(3)):state_dict())))
    assert.are.equal("pos_weight",
      tensors.names_of(heed.pairs(nn.BCEWithLogitsLoss({ pos_weight = heed.ones(3) }):state_dict())))
    assert.are.equal("CrossEntropyLoss()", tostring(nn.CrossEntropyLoss()))
  end)
end)

describe("a loss of probabilities", function()
  it("says what is wrong", function()
    fails("binary_cross_entropy: input is a tensor of shape [2] and dtype float32; it must be probabilities " ..
      "from 0 to 1; for scores, use " ..
      "binary_cross_entropy_with_logits", F.binary_cross_entropy, heed.tensor { 0.5, 2 }, heed.ones(2))
    fails("binary_cross_entropy: target is a tensor of shape [3] and dtype float32; it must be [2], the shape " ..
      "of input", F.binary_cross_entropy,
      heed.ones(2), heed.ones(3))
    fails("smooth_l1_loss: beta is the number -1; it must be a number, 0 or more", F.smooth_l1_loss, heed.ones(2),
      heed.ones(2), { beta = -1 })
    fails("l1_loss: input is [2, 3] and target is [4, 3]; the shapes must be equal, or broadcast", F.l1_loss,
      heed.ones(2, 3), heed.ones(4, 3))
    fails("mse_loss: target is nil; it must be a tensor", F.mse_loss, heed.ones(2))
  end)
end)

describe("nn.functional", function()
  it("takes a tensor's shape, as models in PyTorch pass it", function()
    local x, weight = heed.randn(2, 4), heed.randn(4)
    assert.is_true(F.layer_norm(x, weight.shape, weight, nil, 1e-5):equal(x:layer_norm(weight)))
  end)

  it("has the operations of tensors", function()
    local x = heed.randn(2, 4)
    assert.is_true(x:softmax(-1):equal(F.softmax(x, { dim = -1 })))
    assert.is_true(heed.dropout(x, 0):equal(F.dropout(x, 0)))
    assert.is_true(x:equal(F.dropout(x, 0.5, false)))
    assert.are.equal(3, F.pad(x, { 0, 0, 0, 1 }).shape[1])
    assert.are.same({ { 0, 1, 0 }, { 0, 0, 1 } }, F.one_hot({ 2, 3 }):tolist())
    assert.is_true(F.embedding({ 2, 1 }, x):equal(heed.cat { x[2]:unsqueeze(1), x[1]:unsqueeze(1) }))
  end)

  it("says what is wrong", function()
    fails("layer_norm: normalized_shape is 3 and input is [2, 4]; it must be the last sizes of input", F.layer_norm,
      heed.ones(2, 4), 3)
    fails("layer_norm: normalized_shape is [4, 2] and input is [2, 4]; it must be the last sizes of input",
      F.layer_norm, heed.ones(2, 4), { 4, 2 })
    fails("rms_norm: normalized_shape is a boolean (true); it must be an integer or a list of sizes", F.rms_norm,
      heed.ones(2, 4), true)
    fails("batch_norm: running_mean is nil; it must be a tensor, unless training is true", F.batch_norm, heed.ones(2,
      4))
    fails("batch_norm: weight is a tensor of shape [3] and dtype float32; it must be [4], the channels of " ..
      "input", F.batch_norm, heed.ones(2, 4),
      heed.ones(4), heed.ones(4), heed.ones(3))
    fails("softplus: beta is the number 0; it must be a number other than 0", F.softplus, heed.ones(2), 0)
    fails("relu: input is a string ('x'); it must be a tensor", F.relu, "x")
  end)
end)

describe("nn.init", function()
  it("says what is wrong", function()
    fails("xavier_uniform_: tensor is a tensor of shape [3] and dtype float32; it must be a tensor of at least " ..
      "2 dimensions, [out, in, …]",
      init.xavier_uniform_, heed.ones(3))
    fails("kaiming_normal_: mode is a string ('fan'); it must be 'fan_in' or 'fan_out'", init.kaiming_normal_,
      heed.ones(3, 3), { mode = "fan" })
    fails("calculate_gain: nonlinearity is a string ('gelu'); it must be 'linear', 'sigmoid', 'tanh', 'relu', " ..
      "'leaky_relu', 'selu' or 'conv1d' to 'conv3d'", init.calculate_gain, "gelu")
    fails("trunc_normal_: a is 9 and b is 8; a must be less than b", init.trunc_normal_, heed.ones(3), { a = 9, b = 8 })
    fails("trunc_normal_: std is the number 0; it must be a number above 0", init.trunc_normal_, heed.ones(3),
      { std = 0 })
    fails("constant_: val is nil; it must be a number", init.constant_, heed.ones(3))
  end)

  it("changes parameters in place, of built-in modules, too", function()
    local m = nn.Linear(4, 3)
    init.zeros_(m.bias)
    init.constant_(m.weight, 0.5)
    assert.are.same({ 2, 2, 2 }, m(heed.ones(4)):tolist())
  end)

  it("draws from the generator that it is given", function()
    local a = init.kaiming_uniform_(heed.ones(3, 4), { generator = heed.Generator(3) })
    assert.is_true(a:equal(init.kaiming_uniform_(heed.ones(3, 4), { generator = heed.Generator(3) })))
  end)
end)
