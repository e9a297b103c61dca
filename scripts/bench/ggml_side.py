"""ggml as a contender, through the shared library of the package libggml-python: a graph for each row, computed by a
thread pool that does not spin. ggml's sizes have the reverse order: ne[0] is the last dimension."""

import ctypes
import importlib.metadata
import importlib.util
import math
from ctypes import POINTER, byref, c_bool, c_float, c_int, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path

import numpy as np

from rows import added

name = "ggml"
F32, F16, Q8_0, BF16 = 0, 1, 8, 30


# The structs of the package's ggml.h and ggml-cpu.h.
class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]


class Plan(ctypes.Structure):
    _fields_ = [("work_size", c_size_t), ("work_data", c_void_p), ("n_threads", c_int), ("threadpool", c_void_p),
                ("abort_callback", c_void_p), ("abort_callback_data", c_void_p), ("use_ref", c_bool)]


class PoolParams(ctypes.Structure):
    _fields_ = [("cpumask", c_bool * 512), ("n_threads", c_int), ("prio", c_int), ("poll", c_uint32),
                ("strict_cpu", c_bool), ("paused", c_bool)]


def libraries():
    folder = Path(importlib.util.find_spec("libggml").submodule_search_locations[0])
    found = []
    for part in "ggml-base", "ggml-cpu":
        path = next(path for path in folder.glob("lib*/*") if path.name.startswith(f"lib{part}.") and not path.is_dir())
        found.append(ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL))
    return found


base, cpu = libraries()


def declare(library, result, arguments, *names):
    for name in names:
        getattr(library, name).restype, getattr(library, name).argtypes = result, arguments


declare(base, c_void_p, [InitParams], "ggml_init")
declare(base, None, [c_void_p], "ggml_free")
declare(base, c_void_p, [c_void_p], "ggml_new_graph", "ggml_get_data")
declare(base, None, [c_void_p, c_void_p], "ggml_build_forward_expand")
declare(base, c_void_p, [c_void_p, c_int] + [c_int64] * 4, "ggml_new_tensor_4d")
declare(base, c_void_p, [c_void_p, c_void_p] + [c_int64] * 4, "ggml_reshape_4d")
declare(base, c_void_p, [c_void_p, c_void_p] + [c_int] * 4, "ggml_permute")
declare(base, c_void_p, [c_void_p] * 5 + [c_float] * 3, "ggml_flash_attn_ext")
declare(base, c_void_p, [c_void_p] * 3, "ggml_mul_mat", "ggml_add", "ggml_mul")
declare(base, c_void_p, [c_void_p] * 2, "ggml_cont", "ggml_soft_max", "ggml_log", "ggml_gelu_erf", "ggml_silu",
        "ggml_transpose", "ggml_sum_rows")
declare(base, c_void_p, [c_void_p, c_void_p, c_float], "ggml_norm", "ggml_rms_norm")
declare(base, PoolParams, [c_int], "ggml_threadpool_params_default")
declare(cpu, c_void_p, [POINTER(PoolParams)], "ggml_threadpool_new")
declare(cpu, None, [c_void_p], "ggml_threadpool_free")
declare(cpu, Plan, [c_void_p, c_int, c_void_p], "ggml_graph_plan")
declare(cpu, c_int, [c_void_p, POINTER(Plan)], "ggml_graph_compute")
cpu.ggml_cpu_init()


def version():
    sets = [s for s in ("avx512", "avx2", "neon") if getattr(cpu, f"ggml_cpu_has_{s}")()]
    return f"ggml {importlib.metadata.version('libggml-python')} (built for {sets[0] if sets else 'any processor'})"


class Graph:
    """A context with tensors and a graph; they are freed with the object."""

    def __init__(self, threads, bytes):
        self.context = base.ggml_init(InitParams(bytes + (32 << 20), None, False))
        params = base.ggml_threadpool_params_default(threads)
        params.poll = 0
        self.pool, self.threads = cpu.ggml_threadpool_new(byref(params)), threads

    def __del__(self):
        cpu.ggml_threadpool_free(self.pool)
        base.ggml_free(self.context)

    def tensor(self, array):
        sizes = (array.shape[::-1] + (1, 1, 1))[:4]
        tensor = base.ggml_new_tensor_4d(self.context, F16 if array.dtype == np.float16 else F32, *sizes)
        array = np.ascontiguousarray(array)
        ctypes.memmove(base.ggml_get_data(tensor), array.ctypes.data, array.nbytes)
        return tensor

    def weight(self, kind, w):
        """A matrix as a tensor of that type."""
        tensor, data = base.ggml_new_tensor_4d(self.context, kind, *w.shape[::-1], 1, 1), stored(kind, w)
        ctypes.memmove(base.ggml_get_data(tensor), data.ctypes.data, data.nbytes)
        return tensor

    def __getattr__(self, op):
        return lambda *arguments: getattr(base, f"ggml_{op}")(self.context, *arguments)

    def compute(self, results, shape, turn=None):
        """(run, read) of graphs that end in these tensors, one for each turn."""
        self.jobs, self.work = [], None
        for result in results:
            graph = base.ggml_new_graph(self.context)
            base.ggml_build_forward_expand(graph, result)
            plan = cpu.ggml_graph_plan(graph, self.threads, self.pool)
            self.work = self.work or ctypes.create_string_buffer(plan.work_size + 64)  # all graphs need the same size
            plan.work_data = ctypes.addressof(self.work)
            self.jobs.append((graph, byref(plan)))

        def run():
            i = next(turn) if turn else 0
            if cpu.ggml_graph_compute(*self.jobs[i]) != 0:
                raise RuntimeError("ggml_graph_compute failed")
            return results[i]

        def read():
            data = (c_float * int(np.prod(shape))).from_address(base.ggml_get_data(run()))
            return np.frombuffer(data, np.float32).reshape(shape).copy()

        return run, read


def stored(kind, w):
    """The elements of a matrix in ggml's format; Q8_0 has a float16 scale before each 32 bytes."""
    if kind == BF16:
        bits = w.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    if kind == Q8_0:
        blocks = w.reshape(-1, 32)
        scales = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
        whole = np.rint(blocks / np.maximum(scales.astype(np.float32), 1e-30)).clip(-127, 127).astype(np.int8)
        return np.ascontiguousarray(np.concatenate([scales.view(np.int8), whole], 1))
    return np.ascontiguousarray(w.astype(np.float16 if kind == F16 else np.float32))


def contenders(row, threads):
    run, read = globals()[row.op](row, threads, **row.inputs)
    yield "ggml", run, read


def causal_mask(n):
    mask = np.zeros((n, n), np.float16)
    mask[np.triu_indices(n, 1)] = -np.inf
    return mask


def attention(row, threads, q, k, v, mask=None):
    mask = causal_mask(row.n) if row.causal else None if mask is None else added(mask).astype(np.float16)
    g = Graph(threads, 2 * q.nbytes + k.nbytes + v.nbytes + (0 if mask is None else mask.nbytes))
    queries, mask = g.tensor(q), None if mask is None else g.tensor(mask)
    results = [g.flash_attn_ext(queries, g.tensor(k[i]), g.tensor(v[i]), mask, 1 / math.sqrt(row.d), 0,
                                 row.softcap)
               for i in range(row.sets)]
    run, read = g.compute(results, (row.n, row.heads, row.d), row.turn)
    return run, lambda: read().transpose(1, 0, 2)


def module(row, threads, x, wq, wk, wv, wo, bo):
    g = Graph(threads, 12 * x.nbytes + 4 * wq.nbytes + 16 * row.n * row.d_out * row.b * 4 + 2 * row.n**2)
    x, head = g.tensor(x), row.d_out // row.heads

    def project(w):
        heads = g.reshape_4d(g.mul_mat(g.tensor(w), x), head, row.heads, row.n, row.b)
        return g.permute(heads, 0, 2, 1, 3)

    mask = g.tensor(causal_mask(row.n))
    seen = g.flash_attn_ext(project(wq), project(wk), project(wv), mask, 1 / math.sqrt(head), 0, 0)
    seen = g.reshape_4d(seen, row.d_out, row.n, row.b, 1)
    return g.compute([g.add(g.mul_mat(g.tensor(wo), seen), g.tensor(bo))], (row.b, row.n, row.d_out))


def graph_of(row, threads, shape, make, **inputs):
    g = Graph(threads, 4 * sum(x.nbytes for x in inputs.values()) + 16 * int(np.prod(shape)))
    tensors = {name: g.tensor(x) for name, x in inputs.items()}
    return g.compute([make(g, **tensors)], shape)


def matmul(row, threads, a, b):
    # ggml's product needs the right side transposed, like weights
    return graph_of(row, threads, (a.shape[0], b.shape[1]), lambda g, a, b: g.mul_mat(b, a), a=a, b=b.T)


def linear(row, threads, x, w, bias):
    return graph_of(row, threads, (x.shape[0], w.shape[0]), lambda g, x, w, bias: g.add(g.mul_mat(w, x), bias), x=x,
                    w=w, bias=bias)


def matrix_vector(row, threads, x, w):
    kind = dict(float32=F32, bfloat16=BF16, float16=F16, int8=Q8_0)[row.dtype]
    g = Graph(threads, row.sets * (row.bytes + w.shape[0] * w.shape[1] // 16) + 16 * x.nbytes)
    vector = g.tensor(x)
    results = [g.mul_mat(g.weight(kind, w), vector) for _ in range(row.sets)]
    return g.compute(results, (1, w.shape[0]), row.turn)


def softmax(row, threads, x, **_):
    return graph_of(row, threads, x.shape, lambda g, x: g.soft_max(x), x=x)


def log_softmax(row, threads, x, **_):
    return graph_of(row, threads, x.shape, lambda g, x: g.log(g.soft_max(x)), x=x)


def layer_norm(row, threads, x, weight, bias):
    return graph_of(row, threads, x.shape, lambda g, x, w, b: g.add(g.mul(g.norm(x, 1e-5), w), b), x=x, w=weight,
                    b=bias)


def rms_norm(row, threads, x, weight, bias):
    return graph_of(row, threads, x.shape, lambda g, x, w: g.mul(g.rms_norm(x, 1e-5), w), x=x, w=weight)


def gelu(row, threads, x, **_):
    return graph_of(row, threads, x.shape, lambda g, x: g.gelu_erf(x), x=x)


def silu(row, threads, x, **_):
    return graph_of(row, threads, x.shape, lambda g, x: g.silu(x), x=x)


def transpose(row, threads, x, **_):
    return graph_of(row, threads, x.T.shape, lambda g, x: g.cont(g.transpose(x)), x=x)


def add(row, threads, x, other):
    return graph_of(row, threads, x.shape, lambda g, x, other: g.add(x, other), x=x, other=other)


def add_transposed(row, threads, x, other):
    return graph_of(row, threads, x.shape, lambda g, x, other: g.add(x, g.cont(g.transpose(other))), x=x, other=other)


def sum_rows(row, threads, x, **_):
    # ggml sums along rows only
    return graph_of(row, threads, x.shape[1:], lambda g, x: g.sum_rows(g.cont(g.transpose(x))), x=x)
