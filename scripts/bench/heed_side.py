"""heed as a contender: libheed.so through ctypes. The structs are those of src/heed.h."""

import ctypes
import itertools
from ctypes import byref, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p

import numpy as np

BOOL, INT64, FLOAT32, DTYPES = 0, 1, 2, dict(bfloat16=3, float16=4)


class Window(ctypes.Structure):
    _fields_ = [("has_left", c_bool), ("has_right", c_bool), ("left", c_int64), ("right", c_int64)]


class Sized(ctypes.Structure):
    """A struct of heed.h that begins with its size."""

    _fields_ = [("size", c_size_t)]

    def __init__(self, **fields):
        super().__init__(size=ctypes.sizeof(self), **fields)


class AttentionOptions(Sized):
    _fields_ = [("attn_mask", c_void_p), ("is_causal", c_bool), ("window", Window), ("scale", c_double),
                ("softcap", c_double), ("dropout_p", c_double), ("generator", c_void_p), ("kv_lengths", c_void_p),
                ("past_key", c_void_p), ("past_value", c_void_p), ("alibi_slopes", c_void_p), ("sinks", c_void_p),
                ("wanted", c_void_p), ("mask", c_void_p)]


class BackwardOptions(Sized):
    _fields_ = [("retain_graph", c_bool), ("detect_anomaly", c_bool)]


class AttentionConfig(Sized):
    _fields_ = [("d_in", c_int64), ("d_out", c_int64), ("context_length", c_int64), ("dropout", c_double),
                ("num_heads", c_int64), ("qkv_bias", c_bool), ("softmax_dim", c_int), ("causal", c_bool),
                ("num_kv_heads", c_int64), ("head_dim", c_int64), ("out_proj", c_bool), ("out_bias", c_bool),
                ("scale", c_double), ("kdim", c_int64), ("vdim", c_int64), ("window", Window), ("softcap", c_double),
                ("alibi", c_bool), ("sinks", c_bool), ("qk_norm", c_bool), ("qk_norm_eps", c_double),
                ("rope", c_void_p)]


class Entry(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("kind", c_int), ("parameter", c_void_p), ("module", c_void_p)]


class Information(Sized):
    _fields_ = [("version", c_char_p), ("processor", ctypes.c_char * 64), ("kernels", c_char_p), ("blas", c_char_p),
                ("blas_core", c_char_p), ("threads", c_int), ("memory_in_use", c_size_t), ("memory_peak", c_size_t)]


class Heed:
    """The library, a context, and its tensors."""

    name = "heed"

    def __init__(self, path):
        self.lib = lib = ctypes.CDLL(path)
        lib.heed_tensor_free.restype = None
        lib.heed_message.restype = c_char_p
        lib.heed_message.argtypes = [c_void_p]
        lib.heed_tensor_free.argtypes = [c_void_p]
        lib.heed_tensor_data.restype = c_void_p
        lib.heed_tensor_data.argtypes = [c_void_p]
        lib.heed_tensor_shape.restype = ctypes.POINTER(c_int64)
        lib.heed_tensor_shape.argtypes = [c_void_p]
        lib.heed_tensor_ndim.argtypes = [c_void_p]
        self.context, self.weights = c_void_p(), []
        if lib.heed_context_new(None, byref(self.context)) != 0:
            raise RuntimeError("heed_context_new failed; HEED_CPU may name kernels that this processor lacks")

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.heed_message(self.context).decode())

    def set_threads(self, count):
        self.check(self.lib.heed_set_num_threads(self.context, c_int64(count)))

    def info(self):
        """The texts of heed_info."""
        found = Information()
        self.check(self.lib.heed_info(self.context, byref(found)))
        names = "version", "processor", "kernels", "blas", "blas_core"
        return {name: getattr(found, name).decode() for name in names}

    def tensor(self, array):
        """A tensor on the memory of an array that lives as long, such as the row's inputs."""
        out = c_void_p()
        shape = (c_int64 * array.ndim)(*array.shape)
        dtype = {"bool": BOOL, "int64": INT64}.get(array.dtype.name, FLOAT32)
        self.check(self.lib.heed_tensor_from_memory(self.context, dtype, array.ndim, shape,
                                                    c_void_p(array.ctypes.data), None, None, byref(out)))
        return out

    def array(self, tensor):
        shape = self.lib.heed_tensor_shape(tensor)[:self.lib.heed_tensor_ndim(tensor)]
        data = (ctypes.c_float * int(np.prod(shape))).from_address(self.lib.heed_tensor_data(tensor))
        return np.frombuffer(data, np.float32).reshape(shape).copy()

    def call(self, function, arguments):
        """(run, read): a call with a new result each time, as in a host."""
        free, result = self.lib.heed_tensor_free, c_void_p()
        out = byref(result)
        next_arguments = arguments if callable(arguments) else lambda: arguments

        def run():
            self.check(function(*next_arguments(), out))
            free(result)
            result.value = None

        def read():
            self.check(function(*next_arguments(), out))
            array = self.array(result)
            free(result)
            result.value = None
            return array

        return run, read

    def contenders(self, row, threads):
        self.set_threads(threads)
        yield "heed", *getattr(self, row.op)(row)

    def attention(self, row):
        q = self.tensor(row.inputs["q"])
        keys = [self.tensor(x) for x in row.inputs["k"]]
        values = [self.tensor(x) for x in row.inputs["v"]]
        options = AttentionOptions(is_causal=row.causal, softcap=row.softcap)
        if row.rule:
            self.lengths, self.mask = np.full(row.n // row.documents, row.documents), c_void_p()
            lengths = self.tensor(self.lengths)
            self.check(self.lib.heed_mask_documents(self.context, lengths, byref(self.mask)))
            options.mask = self.mask
        elif "mask" in row.inputs:
            options.attn_mask = self.tensor(row.inputs["mask"])

        def arguments():
            i = next(row.turn)
            return self.context, q, keys[i], values[i], byref(options)

        def attend(*given):
            return self.lib.heed_scaled_dot_product_attention(*given, None)  # no taps

        return self.call(attend, arguments)

    def attention_gradients(self, row):
        q, k, v, dy = (self.tensor(row.inputs[name]) for name in ("q", "k", "v", "dy"))
        inputs, gradients = (c_void_p * 3)(q, k, v), (c_void_p * 3)()
        options, kept = AttentionOptions(is_causal=row.causal), c_void_p()
        backward = BackwardOptions(retain_graph=not row.forward)
        free = self.lib.heed_tensor_free
        for x in q, k, v:
            self.check(self.lib.heed_tensor_require_grad(x, c_bool(True)))

        def differentiate():
            if row.forward or not kept:
                free(kept)
                kept.value = None
                self.lib.heed_set_recording(self.context, c_bool(True))
                self.check(self.lib.heed_scaled_dot_product_attention(self.context, q, k, v, byref(options),
                                                                      byref(kept), None))
                self.lib.heed_set_recording(self.context, c_bool(False))
            self.check(self.lib.heed_grad(self.context, 1, byref(kept), byref(dy), 3, inputs, gradients,
                                          byref(backward)))

        def release():
            for i in range(3):
                free(gradients[i])
                gradients[i] = None

        def run():
            differentiate()
            release()

        def read():
            differentiate()
            result = np.stack([self.array(c_void_p(x)) for x in gradients])
            release()
            return result

        return run, read

    def new_module(self, row):
        config, module, entry = AttentionConfig(), c_void_p(), Entry()
        self.lib.heed_attention_config_init(byref(config), c_size_t(ctypes.sizeof(config)))
        config.d_in, config.d_out, config.context_length, config.num_heads = row.d_in, row.d_out, row.n, row.heads
        self.check(self.lib.heed_multi_head_attention_new(self.context, None, byref(config), byref(module)))
        parts, i = {}, 1
        self.lib.heed_module_entry.restype = c_bool
        while self.lib.heed_module_entry(module, i, byref(entry)):
            parts[entry.name], i = c_void_p(entry.module), i + 1
        for part, parameter, name in ((b"W_query", b"weight", "wq"), (b"W_key", b"weight", "wk"),
                                      (b"W_value", b"weight", "wv"), (b"out_proj", b"weight", "wo"),
                                      (b"out_proj", b"bias", "bo")):
            self.check(self.lib.heed_module_set_parameter(parts[part], parameter, self.tensor(row.inputs[name])))
        return module

    def module(self, row):
        self.module_and_input = self.new_module(row), self.tensor(row.inputs["x"])

        def forward(module, x, out):
            return self.lib.heed_module_forward(module, x, None, out, None)

        return self.call(forward, self.module_and_input)

    def of(self, function, row, *names, extra=()):
        tensors = [self.tensor(row.inputs[name]) for name in names]
        return self.call(function, (self.context, *tensors, *extra))

    def matmul(self, row):
        return self.of(self.lib.heed_matmul, row, "a", "b")

    def linear(self, row):
        return self.of(self.lib.heed_linear, row, "x", "w", "bias")

    def matrix_vector(self, row):
        for tensor in itertools.chain(*self.weights):  # of the previous row
            self.lib.heed_tensor_free(tensor)
        x, wide = self.tensor(row.inputs["x"]), self.tensor(row.inputs["w"])
        self.weights = weights = [self.stored(wide, row.dtype) for _ in range(row.sets)]

        def linear(x, weight, scale, out):
            if scale:
                return self.lib.heed_linear_int8(self.context, x, weight, scale, None, out)
            return self.lib.heed_linear(self.context, x, weight, None, out)

        return self.call(linear, lambda: (x, *weights[next(row.turn)]))

    def stored(self, wide, dtype):
        """A copy of a weight in that dtype, and its scales (NULL except for int8)."""
        weight, scale = c_void_p(), c_void_p()
        if dtype == "int8":
            self.check(self.lib.heed_quantize_int8(self.context, wide, byref(weight), byref(scale)))
        elif dtype == "float32":
            self.check(self.lib.heed_clone(self.context, wide, byref(weight)))
        else:
            self.check(self.lib.heed_to(self.context, wide, c_int(DTYPES[dtype]), byref(weight)))
        return weight, scale

    def softmax(self, row):
        return self.of(self.lib.heed_softmax, row, "x", extra=(c_int(-1),))

    def log_softmax(self, row):
        return self.of(self.lib.heed_log_softmax, row, "x", extra=(c_int(-1),))

    def layer_norm(self, row):
        return self.of(self.lib.heed_layer_norm, row, "x", "weight", "bias", extra=(c_double(1e-5),))

    def rms_norm(self, row):
        return self.of(self.lib.heed_rms_norm, row, "x", "weight", extra=(c_double(1e-5),))

    def gelu(self, row):
        return self.of(self.lib.heed_gelu, row, "x")

    def silu(self, row):
        return self.of(self.lib.heed_silu, row, "x")

    def transpose(self, row):
        return self.call(self.lib.heed_clone, (self.context, self.transposed(row.inputs["x"])))

    def transposed(self, array):
        view = c_void_p()
        self.check(self.lib.heed_transpose(self.context, self.tensor(array), 1, 2, byref(view)))
        return view

    def add(self, row):
        return self.of(self.lib.heed_add, row, "x", "other")

    def add_transposed(self, row):
        return self.call(self.lib.heed_add, (self.context, self.tensor(row.inputs["x"]),
                                             self.transposed(row.inputs["other"])))

    def sum_rows(self, row):
        return self.of(self.lib.heed_sum, row, "x", extra=(c_int(1), (c_int * 1)(1), c_bool(False)))
