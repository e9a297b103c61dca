"""ONNX Runtime as a contender, with its CPU provider: small models made in memory, with bound inputs and outputs, so
that a run copies nothing. If several operators compute the same, each is a contender and the table shows the best."""

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from rows import added

name = "ONNX Runtime"
MICROSOFT = "com.microsoft"
KINDS = {np.float32: TensorProto.FLOAT, np.int32: TensorProto.INT32, np.bool_: TensorProto.BOOL}


def version():
    return f"ONNX Runtime {ort.__version__}"


class Model:
    """A graph under construction: feed adds an input with its data, weight a constant, node an operator."""

    def __init__(self):
        self.nodes, self.inputs, self.outputs, self.weights, self.values = [], [], [], [], {}

    def feed(self, name, array):
        kind = KINDS[array.dtype.type]
        self.inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
        self.values[name] = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
        return name

    def weight(self, name, array):
        self.weights.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, op, inputs, outputs, domain="", **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def output(self, name, shape, value=None):
        """value: an existing buffer, for operators that work in place."""
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        self.values[name] = value or ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32)

    def contender(self, threads, variants=None, turn=None):
        """(run, read). variants: for each turn, buffers that replace inputs and outputs."""
        graph = helper.make_graph(self.nodes, "bench", self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", 24), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=11)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        bindings = []
        for replaced in variants or [{}]:
            values, binding = self.values | replaced, session.io_binding()
            for value in self.inputs:
                binding.bind_ortvalue_input(value.name, values[value.name])
            for value in self.outputs:
                binding.bind_ortvalue_output(value.name, values[value.name])
            bindings.append(binding)
        first = self.outputs[0].name

        def run():
            session.run_with_iobinding(bindings[next(turn) if turn else 0])

        def read():
            run()
            return self.values[first].numpy()

        return run, read


def contenders(row, threads):
    yield from globals()[row.op](row, threads, **row.inputs)


def tokens_first(x):
    """[heads, n, d] as [1, n, heads · d], the layout of the contributed operators."""
    return np.ascontiguousarray(x.transpose(1, 0, 2)).reshape(1, x.shape[1], -1)


def heads_first(row, read):
    """The result in the layout [heads, n, d]."""
    return lambda: read().reshape(row.n, row.heads, row.d).transpose(1, 0, 2)


def value_of(x):
    return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(x))


def group_query(m, batch, total, past):
    """The length inputs of GroupQueryAttention; past: [batch, heads, past, d]."""
    m.feed("past_key", past)
    m.feed("past_value", past)
    m.feed("lengths", np.full(batch, total - 1, np.int32))
    m.feed("total", np.array([total], np.int32))


def decode_contender(row, threads, q, k, v):
    """GroupQueryAttention with a cache that it appends to in place: the last key and value belong to the new token."""
    m, shape = Model(), k[:1].shape
    m.feed("q", tokens_first(q))
    m.feed("k", tokens_first(k[0][:, -1:]))
    m.feed("v", tokens_first(v[0][:, -1:]))
    group_query(m, 1, row.s, k[:1])
    m.node("GroupQueryAttention", ["q", "k", "v", "past_key", "past_value", "lengths", "total"],
           ["y", "present_key", "present_value"], MICROSOFT, num_heads=row.heads, kv_num_heads=row.heads)
    m.output("y", [1, 1, row.heads * row.d])
    variants = []
    for i in range(row.sets):
        keys, values = value_of(k[i:i + 1]), value_of(v[i:i + 1])
        variants.append(dict(past_key=keys, present_key=keys, past_value=values, present_value=values))
    m.output("present_key", shape, variants[0]["present_key"])
    m.output("present_value", shape, variants[0]["present_value"])
    run, read = m.contender(threads, variants, row.turn)
    return "ONNX Runtime, GroupQueryAttention", run, heads_first(row, read)


def attention(row, threads, q, k, v, mask=None):
    if row.n == 1:
        yield decode_contender(row, threads, q, k, v)
        return
    hidden = row.heads * row.d
    if row.causal:
        m = Model()
        m.feed("q", tokens_first(q)), m.feed("k", tokens_first(k[0])), m.feed("v", tokens_first(v[0]))
        group_query(m, 1, row.n, np.empty((1, row.heads, 0, row.d), np.float32))
        m.node("GroupQueryAttention", ["q", "k", "v", "past_key", "past_value", "lengths", "total"],
               ["y", "present_key", "present_value"], MICROSOFT, num_heads=row.heads, kv_num_heads=row.heads)
        m.output("y", [1, row.n, hidden])
        m.output("present_key", [1, row.heads, row.n, row.d])
        m.output("present_value", [1, row.heads, row.n, row.d])
        run, read = m.contender(threads)
        yield "ONNX Runtime, GroupQueryAttention", run, heads_first(row, read)
    if not row.softcap:  # this operator has no soft cap
        m = Model()
        m.feed("q", tokens_first(q)), m.feed("k", tokens_first(k[0])), m.feed("v", tokens_first(v[0]))
        bias = [] if mask is None else ["", "", m.feed("bias", added(mask)[None, None])]
        m.node("MultiHeadAttention", ["q", "k", "v", *bias], ["y"], MICROSOFT, num_heads=row.heads,
               unidirectional=int(row.causal))
        m.output("y", [1, row.n, hidden])
        run, read = m.contender(threads)
        yield "ONNX Runtime, MultiHeadAttention", run, heads_first(row, read)
    m = Model()
    m.feed("q", q[None]), m.feed("k", k[:1]), m.feed("v", v[:1])
    masks = [] if mask is None else [m.feed("mask", mask)]
    m.node("Attention", ["q", "k", "v", *masks], ["y"], is_causal=int(row.causal), softcap=row.softcap)
    m.output("y", [1, row.heads, row.n, row.d])
    run, read = m.contender(threads)
    yield "ONNX Runtime, Attention", run, lambda: read()[0]


def module(row, threads, x, wq, wk, wv, wo, bo):
    for op in "GroupQueryAttention", "MultiHeadAttention":
        m = Model()
        m.feed("x", x)
        q, k, v = (m.node("MatMul", ["x", m.weight("w" + n, w.T)], [n]) for n, w in (("q", wq), ("k", wk), ("v", wv)))
        if op == "GroupQueryAttention":
            head = row.d_out // row.heads
            group_query(m, row.b, row.n, np.empty((row.b, row.heads, 0, head), np.float32))
            m.node(op, [q, k, v, "past_key", "past_value", "lengths", "total"],
                   ["seen", "present_key", "present_value"], MICROSOFT, num_heads=row.heads, kv_num_heads=row.heads)
        else:
            m.node(op, [q, k, v], ["seen"], MICROSOFT, num_heads=row.heads, unidirectional=1)
        m.node("MatMul", ["seen", m.weight("wo", wo.T)], ["projected"])
        m.node("Add", ["projected", m.weight("bo", bo)], ["y"])
        m.output("y", [row.b, row.n, row.d_out])
        if op == "GroupQueryAttention":
            m.output("present_key", [row.b, row.heads, row.n, head])
            m.output("present_value", [row.b, row.heads, row.n, head])
        yield f"ONNX Runtime, {op}", *m.contender(threads)


def single(row, threads, op, shape, fed, weights=(), **attributes):
    """A model of one operator. fed: its inputs; weights: constants after them."""
    m = Model()
    names = [m.feed(f"x{i}", x) for i, x in enumerate(fed)]
    names += [m.weight(f"w{i}", w) for i, w in enumerate(weights)]
    m.node(op, names, ["y"], **attributes)
    m.output("y", shape)
    yield f"ONNX Runtime, {op}", *m.contender(threads)


def matmul(row, threads, a, b):
    return single(row, threads, "MatMul", [a.shape[0], b.shape[1]], [a, b])


def linear(row, threads, x, w, bias):
    return single(row, threads, "Gemm", [x.shape[0], w.shape[0]], [x], [w, bias], transB=1)


def matrix_vector(row, threads, x, w):
    if row.dtype != "float32":
        raise NotImplementedError(f"no product of float32 with weights stored as {row.dtype}")
    m = Model()
    m.node("Gemm", [m.feed("x", x), m.feed("w", w)], ["y"], transB=1)
    m.output("y", [1, w.shape[0]])
    copies = [{"w": ort.OrtValue.ortvalue_from_numpy(w.copy())} for _ in range(row.sets)]
    yield "ONNX Runtime, Gemm", *m.contender(threads, copies, row.turn)


def softmax(row, threads, x, **_):
    return single(row, threads, "Softmax", x.shape, [x], axis=-1)


def log_softmax(row, threads, x, **_):
    return single(row, threads, "LogSoftmax", x.shape, [x], axis=-1)


def layer_norm(row, threads, x, weight, bias):
    return single(row, threads, "LayerNormalization", x.shape, [x], [weight, bias], axis=-1, epsilon=1e-5)


def rms_norm(row, threads, x, weight, bias):
    return single(row, threads, "SimplifiedLayerNormalization", x.shape, [x], [weight], axis=-1, epsilon=1e-5)


def gelu(row, threads, x, **_):
    return single(row, threads, "Gelu", x.shape, [x])


def silu(row, threads, x, **_):
    return single(row, threads, "QuickGelu", x.shape, [x], alpha=1.0, domain=MICROSOFT)


def transpose(row, threads, x, **_):
    return single(row, threads, "Transpose", x.T.shape, [x], perm=[1, 0])


def add(row, threads, x, other):
    return single(row, threads, "Add", x.shape, [x, other])


def add_transposed(row, threads, x, other):
    m = Model()
    m.node("Transpose", [m.feed("other", other)], ["transposed"], perm=[1, 0])
    m.node("Add", [m.feed("x", x), "transposed"], ["y"])
    m.output("y", x.shape)
    yield "ONNX Runtime, Transpose and Add", *m.contender(threads)


def sum_rows(row, threads, x, **_):
    return single(row, threads, "ReduceSum", x.shape[1:], [x], [np.array([0])], keepdims=0)
