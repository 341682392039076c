"""The public functions and PyTorch's equivalents, for tests of PyTorch's requirements."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.dispatch import ladders
from kernelwright.ops.random._keep import factor
from kernelwright.workbench.verify.candidate import copy_of

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
strict = pytest.mark.skipif(DEVICE == "cuda", reason="the emulator's checks, which a GPU lacks")


def randn(*shape, dtype=torch.float32, seed=0, device=DEVICE):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(device, dtype)


def leaf(*shape, **kwargs):
    return randn(*shape, **kwargs).requires_grad_()


def fullgraph(fn):
    """fn as traced by torch.compile in one graph, and run by PyTorch's own operators."""
    torch.compiler.reset()
    return torch.compile(fn, fullgraph=True, backend="aot_eager")


def torch_dropout(x, p):
    """Dropout's definition in plain PyTorch, drawing its seed as `kw.dropout` does."""
    seed = torch.randint(2**63 - 1, (1,), dtype=torch.int64, device=x.device)
    return x * factor(x.shape, seed, p).to(x.dtype)


def looked_up(weight, embedding):
    """The rows of a table (*, V, D) read as (rows, D), some of them twice."""
    weight = weight.reshape(-1, weight.shape[-1])
    if not len(weight):
        raise IndexError("a table without rows, at which a GPU's kernels stop")
    indices = torch.arange(weight.shape[0] + 3, device=weight.device).remainder(weight.shape[0])
    return embedding(indices.view(1, -1), weight)


def numbers(x):
    """Indices of elements of the last dimension, some of them twice."""
    return torch.arange(7, device=x.device).remainder(min(5, x.shape[-1]))


def dotted(x, dot):
    """The dot product of all elements of x with values computed from x."""
    return dot(x.reshape(-1), 1 - x.reshape(-1))


def torch_dot(x, other):
    """torch.dot, which adds in 16 bits on a CPU."""
    if x.is_cuda or x.itemsize > 2:
        return torch.dot(x, other)
    return torch.dot(x.float(), other.float()).to(x.dtype)


def added(x, index_add):
    """Elements computed from x, added to elements of the last dimension."""
    source = 1 - x.index_select(-1, numbers(x)).square()
    return index_add(x, -1, numbers(x), source.to(x.dtype), alpha=0.5)  # autocast widens squares


def apart(x):
    """x with the first elements of its rows raised by multiples of 16: no equal largest ones."""
    return x + 16 * (8 - torch.arange(x.shape[-1], device=x.device)).clamp_min(0)


def gathered(x, gather):
    """Elements of the last dimension, some of them twice."""
    return gather(x, -1, numbers(x).expand(*x.shape[:-1], -1))


def scattered(x, scatter_add):
    """Elements computed from x, added to elements of the last dimension."""
    index = numbers(x).expand(*x.shape[:-1], -1)
    return scatter_add(x, -1, index, 1 - x.gather(-1, index).square())


def grouped(x, group_norm, *parameters):
    """x (*, C) as samples of channels last, normalised in one group; one sample of one element,
    which has no variance, twice."""
    x = x.reshape(1, -1, x.shape[-1]).mT
    return group_norm(torch.cat((x, x), -1), 1, *parameters)


def planes(x):
    """x (*, H, W) as one image of many planes."""
    return x.reshape(1, -1, *x.shape[-2:])


def batched(batch_norm):
    """batch_norm in training without running statistics, called like group_norm with one group."""
    return lambda x, groups, *parameters: batch_norm(x, None, None, *parameters, training=True)


def inferred(batch_norm):
    """batch_norm with given statistics."""

    def call(x, groups, *parameters):
        wide = torch.promote_types(x.dtype, torch.float32)
        mean = torch.linspace(-1, 1, x.shape[1], dtype=wide, device=x.device)
        if batch_norm is F.batch_norm and x.dtype in (torch.float16, torch.bfloat16):
            # on a CPU PyTorch's statistics would only have the precision of x
            given = x if x.is_cuda else x.float()
            return batch_norm(given, mean, mean.square() + 0.5,
                              *(p.float() for p in parameters)).to(x.dtype)  # fmt: skip
        return batch_norm(x, mean, mean.square() + 0.5, *parameters)

    return call


def rotated(x, rope):
    """x (*, T, D) as the heads of q, and the first of them as k, rotated: one tensor. Heads of one
    element cannot be rotated; they are doubled."""
    x = torch.cat((x, x), -1) if x.shape[-1] == 1 else x
    q = x.reshape(1, -1, *x.shape[-2:])
    rotary = x.shape[-1] // 2 * 2
    angle = torch.arange(1.0, 1 + x.shape[-2] * rotary // 2, device=x.device)
    angle = angle.view(x.shape[-2], -1).repeat(1, 2).to(torch.promote_types(x.dtype, torch.float32))
    yq, yk = rope(q, q[:, :1], angle.cos(), angle.sin())
    return torch.cat((yq, yk), 1)


def torch_rope(q, k, cos, sin):
    """transformers' apply_rotary_pos_emb over the first dimensions, in the dtype of cos."""

    def one(x):
        x, rest = x[..., : cos.shape[-1]].to(cos.dtype), x[..., cos.shape[-1] :]
        a, b = x.chunk(2, -1)
        return torch.cat(((x * cos + torch.cat((-b, a), -1) * sin).to(rest.dtype), rest), -1)

    return one(q), one(k)


def attended(x, attention):
    """Attention of x (*, L, E) to itself."""
    return attention(0.5 * x, 0.5 * x, 1 - x, is_causal=True)


def classified(x, loss):
    """A loss of logits (N, C, *) with a made-up target."""
    shape = (*x.shape[:1], *x.shape[2:]) if x.ndim > 1 else ()
    target = torch.arange(math.prod(shape), device=x.device).remainder(x.shape[min(1, x.ndim - 1)])
    return loss(x, target.view(shape))


def torch_linear_cross_entropy(x, w, target):
    """F.linear and F.cross_entropy, whose classes are dimension 1."""
    logits = F.linear(x, w)
    return F.cross_entropy(logits.movedim(-1, 1) if x.ndim > 2 else logits, target)


def predicted(x, loss):
    """A loss of hidden states (*, H) with a made-up weight and target."""
    weight = torch.arange(7.0 * x.shape[-1], device=x.device).cos().view(7, -1).to(x.dtype)
    target = torch.arange(x.numel() // x.shape[-1], device=x.device).remainder(7)
    return loss(x, weight, target.view(x.shape[:-1]))


def torch_layer_norm(x, shape, w=None, b=None):
    """F.layer_norm with statistics in float32, which PyTorch keeps in 16 bits on a CPU."""
    if x.is_cuda or x.itemsize > 2:
        return F.layer_norm(x, shape, w, b)
    return F.layer_norm(x.float(), shape, *(p if p is None else p.float() for p in (w, b))).to(
        x.dtype
    )


def torch_add(norm, x, residual, *args):
    """A sum and its norm, as the fused operators return them."""
    h = x + residual
    return norm(h, *args), h


def torch_chain(x, residual, w, b):
    """gelu(dropout(layer_norm(x) + residual)), rounded once, as the fused operator does."""
    wide = torch.promote_types(x.dtype, torch.float32)
    normal = F.layer_norm(x.to(wide), w.shape, w.to(wide), b.to(wide))
    return F.gelu(torch_dropout(normal + residual, 0.5)).to(x.dtype)


@dataclass(frozen=True)
class Public:
    """A public function, and PyTorch's equivalent.

    Attributes:
        more: shapes of further tensors; "columns" stands for the first one's last dimension.
        rest: other arguments.
        composed: PyTorch has no function of this name. Under autocast its parts may each choose a
            dtype; ours keeps that of its input.
    """

    ours: Callable
    torch: Callable
    more: tuple = ()
    rest: tuple = ()
    composed: bool = False

    def call(self, fn, *tensors):
        torch.manual_seed(3)
        return fn(*tensors, *self.rest)

    def kw(self, *tensors):
        return self.call(self.ours, *tensors)

    def pytorch(self, *tensors):
        return self.call(self.torch, *tensors)

    def tensors(self, shape=(4, 6, 33), dtype=torch.float32, grad=False):
        more = (("columns",) if m == "columns" else m for m in self.more)
        shapes = (shape, *(tuple(shape[-1] if n == "columns" else n for n in m) for m in more))
        made = [randn(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes)]
        return [t.requires_grad_() for t in made] if grad else made


PUBLIC = {
    "softmax": Public(kw.softmax, F.softmax, rest=(-1,)),
    "softmax dim 1": Public(lambda x: kw.softmax(x, 1), lambda x: F.softmax(x, 1)),
    "gelu": Public(kw.gelu, F.gelu),
    "gelu tanh": Public(
        lambda x: kw.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh")
    ),
    "add": Public(kw.add, torch.add, more=("columns",)),
    "mul": Public(kw.mul, torch.mul, more=("columns",)),
    "relu": Public(kw.relu, torch.relu),
    "squared_relu": Public(kw.squared_relu, lambda x: torch.relu(x).square(), composed=True),
    "silu": Public(kw.silu, F.silu),
    "sigmoid": Public(kw.sigmoid, torch.sigmoid),
    "tanh": Public(kw.tanh, torch.tanh),
    "swiglu": Public(lambda x: kw.swiglu(x, 1 - x), lambda x: F.silu(x) * (1 - x)),
    "geglu": Public(lambda x: kw.geglu(x, 1 - x), lambda x: F.gelu(x) * (1 - x)),
    "bias_gelu": Public(kw.bias_gelu, lambda x, b: F.gelu(x + b), more=("columns",)),
    "sum": Public(kw.sum, torch.sum),
    "dot": Public(lambda x: dotted(x, kw.dot), lambda x: dotted(x, torch_dot)),
    "sum dims": Public(lambda x: kw.sum(x, (0, -1)), lambda x: torch.sum(x, (0, -1))),
    "sum keepdim": Public(
        lambda x: kw.sum(x, 1, keepdim=True), lambda x: torch.sum(x, 1, keepdim=True)
    ),
    "layer_norm": Public(
        lambda x, w, b: kw.layer_norm(x, w.shape, w, b),
        lambda x, w, b: torch_layer_norm(x, w.shape, w, b),
        more=("columns", "columns"),
    ),
    "layer_norm without weight": Public(
        lambda x: kw.layer_norm(x, x.shape[-1:]), lambda x: torch_layer_norm(x, x.shape[-1:])
    ),
    "add_layer_norm": Public(
        lambda x, w, b: torch.stack(kw.add_layer_norm(x, 1 - x * x, w.shape, w, b)),
        lambda x, w, b: torch.stack(torch_add(torch_layer_norm, x, 1 - x * x, w.shape, w, b)),
        more=("columns", "columns"),
        composed=True,
    ),
    "add_rms_norm": Public(
        lambda x, w: torch.stack(kw.add_rms_norm(x, 1 - x * x, w.shape, w)),
        lambda x, w: torch.stack(torch_add(F.rms_norm, x, 1 - x * x, w.shape, w)),
        more=("columns",),
        composed=True,
    ),
    "rms_norm": Public(
        lambda x, w: kw.rms_norm(x, w.shape, w),
        lambda x, w: F.rms_norm(x, w.shape, w),
        more=("columns",),
    ),
    "rms_norm without weight": Public(
        lambda x: kw.rms_norm(x, x.shape[-1:]), lambda x: F.rms_norm(x, x.shape[-1:])
    ),
    "embedding": Public(lambda w: looked_up(w, kw.embedding), lambda w: looked_up(w, F.embedding)),
    "rope": Public(lambda x: rotated(x, kw.rope), lambda x: rotated(x, torch_rope)),
    "cross_entropy": Public(
        lambda x: classified(x, kw.cross_entropy), lambda x: classified(x, F.cross_entropy)
    ),
    "linear_cross_entropy": Public(
        lambda x: predicted(x, kw.linear_cross_entropy),
        lambda x: predicted(x, torch_linear_cross_entropy),
    ),
    "matmul": Public(kw.matmul, torch.matmul, more=(("columns", 7),)),
    "matmul by a vector": Public(kw.matmul, torch.matmul, more=("columns",)),
    "linear": Public(kw.linear, F.linear, more=((7, "columns"), (7,))),
    "linear gated": Public(
        lambda x, w, b: kw.linear(x, w, b, activation="silu", gate=kw.linear(x, w)),
        lambda x, w, b: F.silu(F.linear(x, w, b)) * F.linear(x, w),
        more=((7, "columns"), (7,)),
    ),
    "group_norm": Public(
        lambda x, w, b: grouped(x, kw.group_norm, w, b),
        lambda x, w, b: grouped(x, F.group_norm, w, b),
        more=("columns", "columns"),
    ),
    "group_norm with silu": Public(
        lambda x: grouped(x, partial(kw.group_norm, silu=True)),
        lambda x: F.silu(grouped(x, F.group_norm)),
    ),
    "batch_norm": Public(
        lambda x, w, b: grouped(x, batched(kw.batch_norm), w, b),
        lambda x, w, b: grouped(x, batched(F.batch_norm), w, b),
        more=("columns", "columns"),
    ),
    "batch_norm in inference": Public(
        lambda x, w, b: grouped(x, inferred(kw.batch_norm), w, b),
        lambda x, w, b: grouped(x, inferred(F.batch_norm), w, b),
        more=("columns", "columns"),
    ),
    "cumsum": Public(kw.cumsum, torch.cumsum, rest=(-1,)),
    "cumsum dim 1": Public(lambda x: kw.cumsum(x, 1), lambda x: torch.cumsum(x, 1)),
    "msort": Public(kw.msort, lambda x: torch.sort(x, stable=True, dim=0).values),
    "sort": Public(lambda x: kw.sort(x).values, lambda x: torch.sort(x, stable=True).values),
    "topk": Public(
        lambda x: kw.topk(apart(x), min(3, x.shape[-1])).values,
        lambda x: torch.topk(apart(x), min(3, x.shape[-1])).values,
    ),
    "transpose_copy": Public(kw.transpose_copy, torch.transpose_copy, rest=(-1, 0)),
    "permute_copy": Public(
        lambda x: kw.permute_copy(x, range(-1, -1 - x.ndim, -1)),
        lambda x: torch.permute_copy(x, [*range(-1, -1 - x.ndim, -1)]),
    ),
    "cat": Public(lambda x: kw.cat((x, 1 - x), -1), lambda x: torch.cat((x, 1 - x), -1)),
    "pad": Public(
        lambda x: kw.pad(x, (1, 2, 3, 0), value=0.5), lambda x: F.pad(x, (1, 2, 3, 0), value=0.5)
    ),
    "upsample_nearest2d": Public(
        lambda x: kw.upsample_nearest2d(planes(x), scale_factor=2),
        lambda x: F.interpolate(planes(x), scale_factor=2),
    ),
    "max_pool2d": Public(
        lambda x: kw.max_pool2d(planes(x), 3, 2, 1), lambda x: F.max_pool2d(planes(x), 3, 2, 1)
    ),
    "avg_pool2d": Public(
        lambda x: kw.avg_pool2d(planes(x), 3, 2, 1), lambda x: F.avg_pool2d(planes(x), 3, 2, 1)
    ),
    "interpolate": Public(
        lambda x: kw.interpolate(planes(x), scale_factor=2, mode="bilinear"),
        lambda x: F.interpolate(planes(x), scale_factor=2, mode="bilinear"),
    ),
    "index_add": Public(lambda x: added(x, kw.index_add), lambda x: added(x, torch.index_add)),
    "gather": Public(lambda x: gathered(x, kw.gather), lambda x: gathered(x, torch.gather)),
    "scatter_add": Public(
        lambda x: scattered(x, kw.scatter_add), lambda x: scattered(x, torch.scatter_add)
    ),
    "index_select": Public(
        lambda x: kw.index_select(x, -1, numbers(x)), lambda x: x.index_select(-1, numbers(x))
    ),
    "cumprod": Public(lambda x: kw.cumprod(1 + x / 8, -1), lambda x: torch.cumprod(1 + x / 8, -1)),
    "scaled_dot_product_attention": Public(
        lambda x: attended(x, kw.scaled_dot_product_attention),
        lambda x: attended(x, F.scaled_dot_product_attention),
    ),
    "dropout": Public(kw.dropout, torch_dropout, rest=(0.4,)),
    "dropout_with_mask": Public(
        lambda x: kw.dropout_with_mask(x, 0.5)[0], lambda x: torch_dropout(x, 0.5)
    ),
    "bias_dropout_add": Public(
        lambda x, b: kw.bias_dropout_add(x, b, 1 - x, 0.5),
        lambda x, b: torch_dropout(x + b, 0.5) + (1 - x),
        more=("columns",),
    ),
    "bias_dropout_add_with_mask": Public(
        lambda x, b: kw.bias_dropout_add(x, b, 1 - x, 0.5, keep_mask=True),
        lambda x, b: torch_dropout(x + b, 0.5) + (1 - x),
        more=("columns",),
    ),
    "layer_norm_residual_dropout_gelu": Public(
        lambda x, w, b: kw.layer_norm_residual_dropout_gelu(x, 1 - x, w.shape, w, b, 0.5),
        lambda x, w, b: torch_chain(x, 1 - x, w, b),
        more=("columns", "columns"),
    ),
}
# no vmap over a random operator without saying how samples draw; adamw changes its arguments
MAPPED = {k: v for k, v in PUBLIC.items() if "dropout" not in k}
publics = pytest.mark.parametrize("public", PUBLIC.values(), ids=PUBLIC)
mapped = pytest.mark.parametrize("public", MAPPED.values(), ids=MAPPED)
dtypes = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str
)
LAYOUT = {
    "transposed": lambda t: t.mT.contiguous().mT,
    "sliced": lambda t: torch.cat([t, t], -1)[..., : t.shape[-1]],
    "permuted": lambda t: t.permute(2, 0, 1).contiguous().permute(1, 2, 0),
    "expanded": lambda t: t[:1].expand(t.shape),
}


def with_gradients(fn, tensors, grad=None):
    """(result, gradients) of a function of tensors."""
    leaves = [copy_of(t.detach()).requires_grad_() for t in tensors]
    y = fn(*leaves)
    if grad is None:
        grad = randn(*y.shape, dtype=y.dtype, seed=9)
    return y, torch.autograd.grad(y, leaves, grad)


def agree(ours, theirs, dtype, slack=0.0):
    tolerance = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3}
    t = tolerance.get(dtype, 2e-2)
    torch.testing.assert_close(ours, theirs, rtol=t, atol=t + slack)


def agree_with_exact(call, public, tensors, dtype):
    """Like `agree`, but against float64: our error may also contain twice PyTorch's own.

    Args:
        call: `call(fn, tensors)` returns the results of a public function.
    """
    exact = call(public.pytorch, [t.double() for t in tensors])
    ours, theirs = (call(fn, tensors) for fn in (public.kw, public.pytorch))
    for mine, native, right in zip(*map(_flat, (ours, theirs, exact)), strict=True):
        assert mine.dtype == native.dtype and mine.shape == native.shape
        # what exceeds the largest number of a dtype is infinite in it
        right = right.where(right.abs() <= torch.finfo(mine.dtype).max, right.to(mine.dtype))
        finite = right.isfinite() & native.isfinite()
        slack = 2 * (native - right).where(finite, 0.0).abs().max()
        agree(mine.double(), right, dtype, slack.item())


def _flat(results):
    return [t for r in results for t in (_flat(r) if isinstance(r, tuple) else [r])]


def ladders_by_name():
    return {x.name: x for x in ladders()}
