--- Ways to divide models among ranks, which heed.distributed has as functions. Each is loaded when it is first called.

local FILES = {
  tensor_parallel = "tensor_parallel", Heads = "styles", ColwiseParallel = "styles", RowwiseParallel = "styles",
  data_parallel = "data_parallel", no_sync = "data_parallel",
  pipeline = "pipeline", pipeline_step = "pipeline",
  load = "load", full_state_dict = "full_state", clip_grad_norm_ = "clip_grad",
  context_parallel = "context", context_cache = "context",
}

local parallel = {}

for name, file in pairs(FILES) do
  parallel[name] = function(...) return require("heed.parallel." .. file)[name](...) end
end

return parallel
