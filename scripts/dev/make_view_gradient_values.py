#!/usr/bin/env python3
"""Makes tests/golden/view_gradients.lua: gradients of views, copies, indexing, joining, products and writes, and the
names of what computed them, by PyTorch in double precision. Needs PyTorch."""

import re

import torch
import torch.nn.functional as F  # noqa: F401, used by the cases

import golden

# Each case: statements in Lua, which end with y = …, and the same in Python. The inputs are made by the same formula in
# the spec: x [3, 4], z [2, 3, 4], v [4], w [5, 4], b [5], u [3, 4].
CASES = r"""
y = x:view(4, 3) || y = x.view(4, 3)
y = x:view(2, -1):view(12) || y = x.view(2, -1).view(12)
y = x:reshape(2, 6) || y = x.reshape(2, 6)
y = x.T:reshape(2, 6) || y = x.T.reshape(2, 6)
y = z:transpose(2, 3):reshape(2, 2, 2, 3) || y = z.transpose(1, 2).reshape(2, 2, 2, 3)
y = (x + 1):flatten(2, 2) || y = (x + 1).flatten(1, 1)
y = heed.nn.Flatten()(x:exp()) || y = torch.nn.Flatten()(x.exp())
y = x.T:flatten() || y = x.T.flatten()
y = z:flatten(2) || y = z.flatten(1)
y = x:unsqueeze(2) || y = x.unsqueeze(1)
y = x:unsqueeze(1):squeeze() || y = x.unsqueeze(0).squeeze()
y = x:unsqueeze(1):squeeze(1) || y = x.unsqueeze(0).squeeze(0)
y = x:unsqueeze(1):squeeze { dim = { 1, 2 } } || y = x.unsqueeze(0).squeeze((0, 1))
y = x:expand(2, 3, 4) || y = x.expand(2, 3, 4)
y = x:unsqueeze(2):expand(3, 5, 4) || y = x.unsqueeze(1).expand(3, 5, 4)
y = v:expand(2, 3, 4):permute(2, 1, 3) || y = v.expand(2, 3, 4).permute(1, 0, 2)
y = z:transpose(1, 3) || y = z.transpose(0, 2)
y = z:permute(3, 1, 2) || y = z.permute(2, 0, 1)
y = x.T || y = x.T
y = z.mT || y = z.mT
y = x:t() || y = x.t()
y = x:select(2, -1) || y = x.select(1, -1)
y = x:narrow(2, 2, 2) || y = x.narrow(1, 1, 2)
y = x:narrow(2, 2, 0) || y = x.narrow(1, 1, 0)
y = x:diagonal() || y = x.diagonal()
y = z:diagonal(1, 3, 1) || y = z.diagonal(1, 2, 0)
y = x:diagonal(-2) || y = x.diagonal(-2)
y = x:unfold(2, 3, 1) || y = x.unfold(1, 3, 1)
y = z:unfold(2, 2, 1):unfold(3, 2, 2) || y = z.unfold(1, 2, 1).unfold(2, 2, 2)
y = z:unfold(1, 1, 5) || y = z.unfold(0, 1, 5)
y = x[2] || y = x[1]
y = x[-1] * x[-1] || y = x[-1] * x[-1]
y = z[2][3] || y = z[1][2]
y = z[{ 1, {}, 2 }] || y = z[0, :, 1]
y = z[{ {}, { 2, 3 }, { 1, 4, 2 } }] || y = z[:, 1:3, 0:4:2]
y = z[{ {}, 2 }] || y = z[:, 1]
y = z[{ "...", 2 }] || y = z[..., 1]
y = z[{ 2, heed.newaxis, "...", { 2, 3 } }] || y = z[1, None, ..., 1:3]
y = x[{ {}, heed.newaxis }] || y = x[:, None]
y = x[{ {}, { 3, 2 } }] || y = x[:, 2:2]
y = x:clone() || y = x.clone()
y = x.T:contiguous() || y = x.T.contiguous()
y = x:flip(1) || y = x.flip(0)
y = z:flip(1, 3) || y = z.flip(0, 2)
y = heed.ones(3, 4):copy_(x) || y = torch.ones(3, 4, dtype=x.dtype).copy_(x)
y = (x * 1):copy_(v) || y = (x * 1).copy_(v)
y = x:index_select(2, I { 1, 1, -1 }) || y = x.index_select(1, I(0, 0, 3))
y = x:gather(2, I { { 1, 1 }, { -1, 2 } }) || y = x.gather(1, I((0, 0), (3, 1)))
y = x:gather(1, I { { 1, -1, 2, 2 } }) || y = x.gather(0, I((0, 2, 1, 1)).reshape(1, 4))
y = x:take_along_dim(I { { 1, 4, 1 }, { 2, 2, 2 }, { 3, 1, 4 } }, 2) || y = x.take_along_dim(I((0, 3, 0), (1, 1, 1), (2, 0, 3)), 1)
y = x:masked_select(x:gt(0)) || y = x.masked_select(x > 0)
y = x[x:gt(0)] || y = x[x > 0]
y = x[x:gt(100)] || y = x[x > 100]
y = x[x:gt(0)] * x[x:gt(0)] || y = x[x > 0] * x[x > 0]
y = x[I { 1, 1, -1 }] || y = x[I(0, 0, 2)]
y = x[I { { 1, 2 }, { 2, 2 } }] || y = x[I((0, 1), (1, 1))]
y = z[{ {}, I { 1, 3, 1 }, { 2, 3 } }] || y = z[:, I(0, 2, 0), 1:3]
y = z[{ I { 1, 2 }, {}, I { 2, 2 } }] || y = z[I(0, 1), :, I(1, 1)]
y = z[{ 2, I { 1, 1 }, I { 4, 4 } }] || y = z[1, I(0, 0), I(3, 3)]
y = z[{ 1, x:gt(0) }] || y = z[0, x > 0]
y = x[{ {}, v:gt(0) }] || y = x[:, v > 0]
y = x:repeat_interleave(2) || y = x.repeat_interleave(2)
y = z:repeat_interleave(3, 2) || y = z.repeat_interleave(3, 1)
y = x:repeat_interleave({ 2, 0, 3 }, 1) || y = x.repeat_interleave(I(2, 0, 3), 0)
y = heed.cat({ x, u, x }, 2) || y = torch.cat([x, u, x], 1)
y = heed.cat({ x[1], v, x[3] }) || y = torch.cat([x[0], v, x[2]])
y = heed.stack({ x, x, u }, 3) || y = torch.stack([x, x, u], 2)
y = heed.stack({ x, x * 2 }) || y = torch.stack([x, x * 2])
y = heed.hstack { x, u } || y = torch.hstack([x, u])
y = heed.vstack { x, v } || y = torch.vstack([x, v])
y = heed.dstack { x, u } || y = torch.dstack([x, u])
y = heed.column_stack { x, x } || y = torch.column_stack([x, x])
y = x:split(3, 2)[1] * 2 || y = x.split(3, 1)[0] * 2
local p = x:split({ 1, 2, 1 }, 2) y = p[1] * p[3] + p[2] || p = x.split([1, 2, 1], 1); y = p[0] * p[2] + p[1]
local p = x:chunk(3) y = p[3] - p[1] || p = x.chunk(3); y = p[2] - p[0]
local p = z:unbind(2) y = p[3] * p[1] || p = z.unbind(1); y = p[2] * p[0]
local s = 0 for i, row in x:iter() do s = s + row * i end y = s * 1 || s = 0; exec("for i, row in enumerate(x): s = s + row * (i + 1)"); y = s * 1
y = heed.matmul(x, w.T) || y = x @ w.T
y = heed.matmul(x, v) || y = x @ v
y = heed.matmul(v, w.T) || y = v @ w.T
y = heed.matmul(v, v) || y = v @ v
y = heed.dot(v, v * 2) || y = torch.dot(v, v * 2)
y = heed.matmul(z, w.T) || y = z @ w.T
y = heed.matmul(z, v) || y = z @ v
y = heed.matmul(v, z.mT) || y = v @ z.mT
y = heed.matmul(w, z.mT) || y = w @ z.mT
y = heed.matmul(z, z.mT) || y = z @ z.mT
y = heed.matmul(z:transpose(1, 2), w.T) || y = z.transpose(0, 1) @ w.T
y = heed.matmul(z:unsqueeze(2), z.mT) || y = z.unsqueeze(1) @ z.mT
y = heed.matmul(z, heed.ones(1, 4, 2)) || y = z @ torch.ones(1, 4, 2, dtype=x.dtype)
y = heed.matmul(x:expand(2, 3, 4), w.T) || y = x.expand(2, 3, 4) @ w.T
y = heed.matmul(x:narrow(1, 1, 0), w.T) || y = x.narrow(0, 0, 0) @ w.T
y = heed.matmul(x:narrow(2, 1, 0), w.T:narrow(1, 1, 0)) || y = x.narrow(1, 0, 0) @ w.T.narrow(0, 0, 0)
y = heed.linear(x, w) || y = F.linear(x, w)
y = heed.linear(x, w, b) || y = F.linear(x, w, b)
y = heed.linear(z, w) || y = F.linear(z, w)
y = heed.linear(z, w, b) || y = F.linear(z, w, b)
y = heed.linear(v, w) || y = F.linear(v, w)
y = heed.linear(v, w, b) || y = F.linear(v, w, b)
y = heed.linear(z:transpose(1, 2), w, b) || y = F.linear(z.transpose(0, 1), w, b)
y = heed.linear(z[{ {}, { 2, 3 } }], w, b) || y = F.linear(z[:, 1:3], w, b)
y = heed.linear(x.T:contiguous().T, w, b) || y = F.linear(x.T.contiguous().T, w, b)
y = heed.linear(x, w:detach(), b) || y = F.linear(x, w.detach(), b)
y = heed.linear(x:detach(), w * 2, b) || y = F.linear(x.detach(), w * 2, b)
y = heed.linear(x:narrow(1, 1, 0), w, b) || y = F.linear(x.narrow(0, 0, 0), w, b)
y = heed.embedding(I { { 1, 5 }, { 5, 5 } }, w) || y = F.embedding(I((0, 4), (4, 4)), w)
y = heed.embedding(I { 2 }, w[{ { 2, 4 } }]) || y = F.embedding(I(1), w[1:4])
y = v:outer(b) || y = torch.outer(v, b)
y = x:mv(v) || y = x.mv(v)
y = x:inner(u) || y = torch.inner(x, u)
y = z:bmm(z.mT) || y = z.bmm(z.mT)
y = x:matmul(x.T):addmm(x, u.T, { beta = 2, alpha = 3 }) || y = torch.addmm(x @ x.T, x, u.T, beta=2, alpha=3)
y = v:narrow(1, 1, 3):addmv(x, v) || y = torch.addmv(v[:3], x, v)
y = z:bmm(z.mT):baddbmm(z, z.mT) || y = torch.baddbmm(z.bmm(z.mT), z, z.mT)
y = x:tensordot(w, { dims = { { 2 }, { 2 } } }) || y = torch.tensordot(x, w, dims=([1], [1]))
y = x[{ {}, { 1, 3 } }]:cross(u[{ {}, { 2, 4 } }], 2) || y = torch.cross(x[:, :3], u[:, 1:], dim=1)
y = heed.einsum("ij,kj->ik", x, w) || y = torch.einsum("ij,kj->ik", x, w)
y = heed.einsum("bij,bkj->bik", z, z) || y = torch.einsum("bij,bkj->bik", z, z)
y = heed.einsum("ij->j", x) || y = torch.einsum("ij->j", x)
y = heed.einsum("ij,ij->", x, u) || y = torch.einsum("ij,ij->", x, u)
y = x:roll(1) || y = x.roll(1)
y = z:roll({ 1, -1 }, { 1, 3 }) || y = z.roll((1, -1), (0, 2))
y = x:tile(2, 3) || y = x.tile(2, 3)
y = x["repeat"](x, 2, 1, 2) || y = x.repeat(2, 1, 2)
y = z:movedim(1, 3) || y = z.movedim(0, 2)
y = z:swapaxes(1, 2) || y = z.swapaxes(0, 1)
y = v:expand_as(x) || y = v.expand_as(x)
y = x:view_as(x.T:contiguous()) || y = x.view_as(x.T.contiguous())
y = x:unflatten(2, { 2, 2 }) || y = x.unflatten(1, (2, 2))
y = x:pad({ 1, 2 }) || y = F.pad(x, (1, 2))
y = x:pad({ 1, -1, 2, 0 }, { value = 3 }) || y = F.pad(x, (1, -1, 2, 0), value=3)
y = v:diag() || y = v.diag()
y = x:diag(1) || y = x.diag(1)
y = x:diag_embed() || y = torch.diag_embed(x)
y = v:diagflat() || y = v.diagflat()
y = x[{ {}, { 1, 3 } }]:trace() || y = x[:, :3].trace()
y = heed.block_diag(x, v) || y = torch.block_diag(x, v)
local p = { heed.meshgrid(v, b) } p = #p == 1 and p[1] or p y = p[1] * p[2] || p = torch.meshgrid(v, b, indexing="ij"); y = p[0] * p[1]
y = x:logsumexp(1) || y = x.logsumexp(0)
y = (x:median()) || y = x.median()
y = x:quantile({ 0.3, 0.5 }, 2) || y = x.quantile(torch.tensor([0.3, 0.5], dtype=x.dtype), 1)
y = x:quantile(0.3) || y = x.quantile(0.3)
y = heed.zeros(3, 4); for i = 1, 3 do y[i] = x[i] * 2 end || y = torch.zeros(3, 4, dtype=x.dtype); y[0] = x[0] * 2; y[1] = x[1] * 2; y[2] = x[2] * 2
y = x * 1; y[2] = v || y = x * 1; y[1] = v
y = x * 1; y[2] = 3 || y = x * 1; y[1] = 3
y = x * 1; y[2] = x[1] * x[3] || y = x * 1; y[1] = x[0] * x[2]
y = x * 1; y[{ 2, 3 }] = 0 || y = x * 1; y[1, 2] = 0
y = x * 1; y[{ 2, 3 }] = v:sum() || y = x * 1; y[1, 2] = v.sum()
y = z * 1; y[{ {}, { 2, 3 }, 1 }] = v[{ { 1, 2 } }] || y = z * 1; y[:, 1:3, 0] = v[:2]
y = z * 1; y[{ "...", { 1, 4, 2 } }] = z[{ {}, {}, { 2, 3 } }] || y = z * 1; y[..., 0:4:2] = z[:, :, 1:3]
y = z * 1; y[{ 1, heed.newaxis, { 1, 2 } }] = v:view(1, 1, 4) || y = z * 1; y[0, None, 0:2] = v.view(1, 1, 4)
y = z * 1; y[{ {}, heed.newaxis }] = x:view(3, 4) || y = z * 1; y[:, None] = x.view(3, 4)
y = x * 1; y[I { 1, 3 }] = v || y = x * 1; y[I(0, 2)] = v
y = x * 1; y[{ { 2, 3 }, I { 1, -1 } }] = v[{ { 1, 2 } }] || y = x * 1; y[1:3, I(0, 3)] = v[:2]
y = z * 1; y[{ 2, x:gt(0) }] = 0 || y = z * 1; y[1, x > 0] = 0
y = x * 1; y[x:gt(0)] = -1 || y = x * 1; y[x > 0] = -1
y = x * 1; y[x:gt(0)] = v:sum() || y = x * 1; y[x > 0] = v.sum()
y = x * 1; y[u:gt(0)] = u[u:gt(0)] * 3 || y = x * 1; y[u > 0] = u[u > 0] * 3
y = x * 1; y[I { 1, 0 + 2 }] = 5 || y = x * 1; y[I(0, 1)] = 5
y = x * 1; y:index_put_({ I { 1, 1 }, I { 2, 2 } }, v[{ { 1, 2 } }], true) || y = x * 1; y.index_put_((I(0, 0), I(1, 1)), v[:2], accumulate=True)
y = x * 1; y:scatter_(2, I { { 1, 3 }, { 2, 4 } }, u[{ { 1, 2 }, { 1, 2 } }]) || y = x * 1; y.scatter_(1, I((0, 2), (1, 3)), u[:2, :2])
y = x * 1; y:scatter_(2, I { { 1, 3 } }, 5) || y = x * 1; y.scatter_(1, I((0, 2)).reshape(1, 2), 5)
y = (x * 1):scatter_add_(2, I { { 1, 1, -1 } }, u[{ { 1, 1 }, { 2, 4 } }]) || y = (x * 1).scatter_add_(1, I(0, 0, 3).reshape(1, 3), u[:1, 1:])
y = (x * 1):index_add_(1, I { 1, 1, 2 }, u) || y = (x * 1).index_add_(0, I(0, 0, 1), u)
y = (x * 1):index_add_(1, I { 3, 1, 3 }, u, { alpha = 2 }) || y = (x * 1).index_add_(0, I(2, 0, 2), u, alpha=2)
y = (x * 1):index_copy_(2, I { 4, 2 }, u[{ {}, { 1, 2 } }]) || y = (x * 1).index_copy_(1, I(3, 1), u[:, :2])
y = (x * 1):index_fill_(2, I { -1, 1 }, 3) || y = (x * 1).index_fill_(1, I(3, 0), 3)
y = (x * 1):index_fill_(2, I { -1, 1, 1 }, v:sum()) || y = (x * 1).index_fill_(1, I(3, 0, 0), v.sum())
y = x:index_fill(1, I { 3 }, b:select(1, 1) * 2) || y = x.index_fill(0, I(2), b[0] * 2)
y = x:index_fill(2, I { 2 }, 3) || y = x.index_fill(1, I(1), 3)
y = x:index_copy(2, I { 4, 2 }, u[{ {}, { 1, 2 } }]) || y = x.index_copy(1, I(3, 1), u[:, :2])
y = x:index_add(1, I { 3, 1, 3 }, u, { alpha = 2 }) || y = x.index_add(0, I(2, 0, 2), u, alpha=2)
y = x:index_put({ I { 3, 1 } }, v) || y = x.index_put((I(2, 0),), v)
y = x:index_put({ I { 1, 1 }, I { 2, 2 } }, v[{ { 1, 2 } }], true) || y = x.index_put((I(0, 0), I(1, 1)), v[:2], accumulate=True)
y = x:scatter(2, I { { 1, 3 }, { 2, 4 } }, u[{ { 1, 2 }, { 1, 2 } }]) || y = x.scatter(1, I((0, 2), (1, 3)), u[:2, :2])
y = x:scatter(2, I { { 1, 3 } }, 5) || y = x.scatter(1, I((0, 2)).reshape(1, 2), 5)
y = x:scatter_add(2, I { { 1, 1, -1 } }, u[{ { 1, 1 }, { 2, 4 } }]) || y = x.scatter_add(1, I(0, 0, 3).reshape(1, 3), u[:1, 1:])
y = x:masked_fill(u:gt(0), v:sum()) || y = x.masked_fill(u > 0, v.sum())
y = (x * 1):masked_fill_(v:gt(0), b:select(1, 2)) || y = (x * 1).masked_fill_(v > 0, b[1])
y = heed.zeros(3, 4):masked_fill(u:gt(0), b:select(1, 2)) || y = torch.zeros(3, 4, dtype=x.dtype).masked_fill(u > 0, b[1])
y = heed.zeros(3, 4):index_add_(1, I { 2 }, v:view(1, 4)) || y = torch.zeros(3, 4, dtype=x.dtype).index_add_(0, I(1), v.view(1, 4))
y = x * 1; y:mul_(u:detach()); y[1] = y[2]; y:add_(v) || y = x * 1; y.mul_(u.detach()); y[0] = y[1].clone(); y.add_(v)
y = heed.scaled_dot_product_attention(x, u, u) || y = F.scaled_dot_product_attention(x, u, u)
y = heed.scaled_dot_product_attention(z, z, z, { is_causal = true }) || y = F.scaled_dot_product_attention(z, z, z, is_causal=True)
local q = z:unsqueeze(1); y = heed.scaled_dot_product_attention(q, q, q) || q = z[None]; y = F.scaled_dot_product_attention(q, q, q)
local q = z:unsqueeze(1); y = heed.scaled_dot_product_attention(q, q, q, { attn_mask = x[{ {}, { 1, 3 } }] }) || q = z[None]; y = F.scaled_dot_product_attention(q, q, q, x[:, :3])
local q = z:unsqueeze(1); y = heed.scaled_dot_product_attention(q, q, q, { attn_mask = x:detach()[{ {}, { 1, 3 } }] }) || q = z[None]; y = F.scaled_dot_product_attention(q, q, q, x.detach()[:, :3])
local q = z:unsqueeze(1); y = heed.scaled_dot_product_attention(q, q, q:narrow(4, 1, 3)) || q = z[None]; y = F.scaled_dot_product_attention(q, q, q[..., :3])
y = heed.nn.Dropout(0.5):eval()(x:exp()) || y = F.dropout(x.exp(), 0.5, False)
y = x:unsqueeze(1):matmul(z:transpose(2, 3)) || y = x[None] @ z.transpose(1, 2)
y = x[{ { 1, 1 } }]:matmul(z:transpose(2, 3)) || y = x[:1] @ z.transpose(1, 2)
y = x:sub(u, { alpha = 2 }) || y = x.sub(u, alpha=2)
y = x:round(1) + x || y = x.round(decimals=1) + x
y = z:transpose(1, 2):flatten(2):narrow(2, 2, 5).T:unsqueeze(2):expand(5, 2, 3) || y = z.transpose(0, 1).flatten(1).narrow(1, 1, 5).T.unsqueeze(1).expand(5, 2, 3)
"""

# What heed composes of other operations: its name is that of the last one.
COMPOSED = re.compile(r"[.:]einsum\b")

SHAPES = {"x": (3, 4), "z": (2, 3, 4), "v": (4,), "w": (5, 4), "b": (5,), "u": (3, 4)}


def numbers(shape, seed, divisor):
    """The formula of the spec: exact in float32."""
    count = 1
    for size in shape:
        count *= size
    return ((torch.arange(count, dtype=torch.float64) * (2 * seed + 5) + seed) % 23 - 11).reshape(shape) / divisor


def index(*values):
    return torch.tensor(values)


def run(code):
    inputs = {}
    for seed, (name, shape) in enumerate(SHAPES.items(), 1):
        inputs[name] = numbers(shape, seed, 8).requires_grad_()
    scope = dict(inputs, torch=torch, F=F, I=index)
    exec(code.strip(), scope)  # the cases are above
    y = scope["y"]
    name = type(y.grad_fn).__name__
    (y * numbers(y.shape, 7, 16)).sum().backward()
    gradients = {name: t.grad.flatten().tolist() for name, t in inputs.items() if t.grad is not None}
    return name, gradients


def main():
    cases = []
    for line in CASES.strip().splitlines():
        lua, python = line.split(" || ")
        name, gradients = run(python)
        cases.append({"code": lua, "name": None if COMPOSED.search(lua) else name, "grads": gradients})
    golden.write(golden.folder() / "view_gradients.lua", "Gradients of views, indexing, joining, products and writes. "
                 "Made by scripts/dev/make_view_gradient_values.py.", cases)


if __name__ == "__main__":
    main()
