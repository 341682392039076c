"""The matrix of PyTorch's transforms and the public functions: what a cell runs, which cells are
refused, and the table of docs/pytorch.md that says so.

    PYTHONPATH=src:tests python -m support.transforms     writes the table
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import func

import kernelwright as kw

from .publics import DEVICE, PUBLIC, Public, fullgraph, randn

DOCS = Path(__file__).parents[2] / "docs" / "pytorch.md"
MARKS = "<!-- transforms -->\n", "<!-- end of transforms -->\n"


@dataclass(frozen=True)
class Shaped(Public):
    """A public function of tensors whose shapes do not follow from one another."""

    shapes: tuple[tuple[int, ...], ...] = ()

    def tensors(self, shape=None, dtype=torch.float32, grad=False):
        made = [randn(*s, dtype=dtype, seed=i) for i, s in enumerate(self.shapes)]
        return [t.requires_grad_() for t in made] if grad else made


ENDS = torch.tensor([2, 5], dtype=torch.int32, device=DEVICE)
STARTS = torch.tensor([0, 2, 5], dtype=torch.int32, device=DEVICE)
EXPERTS = torch.tensor([[0, 1], [1, 0], [1, 0], [0, 1], [0, 1]], device=DEVICE)
WEIGHTS = torch.tensor([0.25, 0.75], dtype=torch.float64, device=DEVICE).expand(5, 2)


def _grouped(a, b):
    return torch.cat([a[:2] @ b[0], a[2:] @ b[1]])


def _gated(a, b):
    gate, up = _grouped(a, b).chunk(2, -1)
    return F.silu(gate) * up


def _experts(x, gate_up, down):
    gate, up = torch.einsum("th,efh->tef", x, gate_up).chunk(2, -1)
    each = torch.einsum("tef,eof->teo", F.silu(gate) * up, down)
    weights = torch.zeros(5, 2, dtype=x.dtype, device=x.device).scatter(1, EXPERTS, WEIGHTS)
    return (weights.unsqueeze(-1) * each).sum(1)


def _packed(q, k, v):
    def one(part):
        q_, k_, v_ = (t[part].transpose(0, 1) for t in (q, k, v))
        return F.scaled_dot_product_attention(q_, k_, v_).transpose(0, 1)

    return torch.cat([one(slice(0, 2)), one(slice(2, 5))])


def _linear_attention(q, k, v):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return scores.tril() @ v


#: Two of its columns are in no row.
SPARSE = (
    torch.tensor([[0, 2.0, 0, 3, 0], [0, 0, 0, 0, 0], [1.5, -1, 0, 0, 0]], device=DEVICE)
    .double()
    .to_sparse_csr()
)
PACKED = kw.quantize(randn(6, 128, dtype=torch.float64, seed=9), 8)
REGION = torch.tensor([[1, 0.5, 0.25, 2.5, 3.25]], dtype=torch.float64, device=DEVICE)


def _sparse(x):
    """SPARSE @ x without the zeros."""
    zero = x.new_zeros(())
    return torch.stack((2 * x[1] + 3 * x[3], zero, 1.5 * x[0] - x[1]))


def _region(x):
    """The mean of the bilinear interpolations at 2 x 2 points of each of the 2 x 2 bins."""
    _, *corners = REGION[0].tolist()
    rows, columns = (
        [list(_interpolation(corners[i], corners[i + 2], part)) for part in range(2)]
        for i in (1, 0)
    )
    bins = [[sum(a * b * x[1, :, i, j] for i, a in r for j, b in c) for c in columns] for r in rows]
    return torch.stack([torch.stack(b, -1) for b in bins], -2)[None]


def _interpolation(start, end, part):
    """(pixel, weight) of each end of the two points of one of two bins."""
    for point in (2 * part, 2 * part + 1):
        at = start + (point + 0.5) * (end - start) / 4
        yield int(at), (1 - at % 1) / 2
        yield int(at) + 1, at % 1 / 2


SHAPED = {
    "kl_div": Shaped(
        lambda x, t: kw.kl_div(x, t, reduction="batchmean", log_target=True),
        lambda x, t: F.kl_div(x, t, reduction="batchmean", log_target=True),
        shapes=((3, 4), (3, 4)),
    ),
    "spmv": Shaped(
        lambda x: kw.spmv(SPARSE, x),
        _sparse,
        shapes=((5,),),
    ),
    "quantized_linear": Shaped(
        lambda x, b: kw.quantized_linear(x, PACKED, b),
        lambda x, b: F.linear(x, PACKED.dequantized(torch.float64), b),
        shapes=((3, 128), (6,)),
    ),
    "roi_align": Shaped(
        lambda x: kw.roi_align(x, REGION.to(x.dtype), 2, sampling_ratio=2),
        _region,
        shapes=((2, 3, 5, 5),),
    ),
    "conv2d": Shaped(kw.conv2d, F.conv2d, shapes=((2, 3, 5, 5), (4, 3, 3, 3), (4,))),
    "grouped_mm": Shaped(
        lambda a, b: kw.grouped_mm(a, b, ENDS), _grouped, shapes=((5, 4), (2, 4, 6))
    ),
    "grouped_swiglu": Shaped(
        lambda a, b: kw.grouped_swiglu(a, b, ENDS), _gated, shapes=((5, 4), (2, 4, 6))
    ),
    "moe_ffn": Shaped(
        lambda x, gate_up, down: kw.moe_ffn(x, gate_up, down, WEIGHTS, EXPERTS),
        _experts,
        shapes=((5, 4), (2, 6, 4), (2, 4, 3)),
    ),
    "attention_varlen": Shaped(
        lambda q, k, v: kw.attention_varlen(q, k, v, STARTS, STARTS, 3, 3),
        _packed,
        shapes=((5, 2, 4),) * 3,
    ),
    "linear_attention": Shaped(
        lambda q, k, v: kw.linear_attention(q, k, v)[0], _linear_attention,
        shapes=((2, 2, 5, 4),) * 3,
    ),
    "log_softmax": Shaped(
        lambda x: kw.log_softmax(x, -1), lambda x: F.log_softmax(x, -1), shapes=((3, 4),)
    ),
    "instance_norm": Shaped(kw.instance_norm, F.instance_norm, shapes=((2, 3, 5),)),
}  # fmt: skip
#: The same tensor as several arguments.
ITSELF = {
    "add": Shaped(lambda x: kw.add(x, x), lambda x: x + x, shapes=((3, 4),)),
    "mul": Shaped(lambda x: kw.mul(x, x), lambda x: x * x, shapes=((3, 4),)),
    "dot": Shaped(lambda x: kw.dot(x, x), lambda x: torch.dot(x, x), shapes=((4,),)),
    "swiglu": Shaped(lambda x: kw.swiglu(x, x), lambda x: F.silu(x) * x, shapes=((3, 4),)),
    "matmul": Shaped(lambda x: kw.matmul(x, x), lambda x: x @ x, shapes=((4, 4),)),
    "matmul transposed": Shaped(
        lambda x: kw.matmul(x, x.t()), lambda x: x @ x.t(), shapes=((3, 4),)
    ),
    "linear": Shaped(
        lambda x: kw.linear(x, x, activation="silu", residual=x),
        lambda x: F.silu(F.linear(x, x)) + x,
        shapes=((4, 4),),
    ),
    "rope": Shaped(
        lambda x: torch.cat(kw.rope(x, x, positions=torch.arange(3, device=DEVICE))),
        lambda x: torch.cat(kw.rope(x, x.clone(), positions=torch.arange(3, device=DEVICE))),
        shapes=((1, 2, 3, 4),),
    ),
    "add_rms_norm": Shaped(
        lambda x: torch.stack(kw.add_rms_norm(x, x, 4)),
        lambda x: torch.stack((F.rms_norm(2 * x, (4,)), 2 * x)),
        shapes=((3, 4),),
    ),
    "layer_norm": Shaped(
        lambda x, w: kw.layer_norm(x, 4, w, w),
        lambda x, w: F.layer_norm(x, (4,), w, w),
        shapes=((3, 4), (4,)),
    ),
    "cat": Shaped(lambda x: kw.cat((x, x)), lambda x: torch.cat((x, x)), shapes=((3, 4),)),
    "attention": Shaped(
        lambda x: kw.scaled_dot_product_attention(x, x, x),
        lambda x: F.scaled_dot_product_attention(x, x, x),
        shapes=((1, 2, 3, 4),),
    ),
    "attention_varlen": Shaped(
        lambda x: kw.attention_varlen(x, x, x, STARTS, STARTS, 3, 3),
        lambda x: _packed(x, x, x),
        shapes=((5, 2, 4),),
    ),
    "linear_attention": Shaped(
        lambda x: kw.linear_attention(x, x, x)[0],
        lambda x: _linear_attention(x, x, x),
        shapes=((2, 2, 5, 4),),
    ),
}
FUNCTIONS = {**PUBLIC, **SHAPED, **{f"{k} of itself": v for k, v in ITSELF.items()}}

Call = Callable[..., torch.Tensor]
Tensors = tuple[torch.Tensor, ...]


def _loss(call: Call) -> Call:
    return lambda *t: call(*t).square().sum()


def _all(t: Tensors) -> tuple[int, ...]:
    return tuple(range(len(t)))


def _plain(call, *t):
    y = call(*t)
    return (y, *torch.autograd.grad(y.square().sum(), t))


def _recorded(call, *t):
    leaves = tuple(x.detach().requires_grad_() for x in t)
    return leaves, torch.autograd.grad(_loss(call)(*leaves), leaves, create_graph=True)


def _again_named(call, *t):
    leaves, grads = _recorded(call, *t)
    return torch.autograd.grad(sum(g.square().sum() for g in grads), leaves)


def _again_backward(call, *t):
    leaves, grads = _recorded(call, *t)
    sum(g.square().sum() for g in grads).backward()
    return tuple(x.grad for x in leaves)


def _again_functional(call, *t):
    tangents = tuple(map(torch.cos, t))
    return torch.autograd.functional.hvp(_loss(call), t, tangents)[1]


def _vjp(call, *t):
    y, pull = func.vjp(call, *t)
    return pull(torch.cos(y))


def _batches(t: Tensors) -> Tensors:
    return tuple(torch.stack((x, x.cos())) for x in t)


TRANSFORMS: dict[str, Callable[..., object]] = {
    "func.grad": lambda call, *t: func.grad(_loss(call), _all(t))(*t),
    "func.vjp": _vjp,
    "func.jvp": lambda call, *t: func.jvp(call, t, tuple(map(torch.cos, t)))[1],
    "vmap": lambda call, *t: func.vmap(call)(*_batches(t)),
    "vmap of no sample": lambda call, *t: func.vmap(call)(*(x[:0] for x in _batches(t))),
    "vmap(grad)": lambda call, *t: func.vmap(func.grad(_loss(call), _all(t)))(*_batches(t)),
    "hessian": lambda call, *t: func.hessian(_loss(call))(*t),
}
AGAIN: dict[str, Callable[..., object]] = {
    "second order, inputs named": _again_named,
    "second order, backward": _again_backward,
    "torch.autograd.functional": _again_functional,
}
#: Compiled, these show that one graph serves the forward and the backward.
COMPILED = {"forward and backward": _plain, "export": _plain, **TRANSFORMS}
EAGER = {"forward and backward": _plain, **TRANSFORMS, **AGAIN}


def _with(value: float) -> Callable[[Tensors], Tensors]:
    """The tensors, one element of the first replaced."""

    def of(t: Tensors) -> Tensors:
        first = t[0].clone()
        first.view(-1)[first.numel() // 2] = value
        return first, *t[1:]

    return of


#: Operands by kind: from a public function, its tensors in float64.
OPERANDS: dict[str, Callable[[Public], Tensors]] = {
    "sample": lambda p: tuple(p.tensors((1, 2, 5), torch.float64)),
    "strided": lambda p: tuple(
        torch.stack((t, t), -1)[..., 0] for t in p.tensors((1, 2, 5), torch.float64)
    ),
    "expanded": lambda p: tuple(
        t[..., :1].expand(t.shape) for t in p.tensors((1, 2, 5), torch.float64)
    ),
    "empty": lambda p: tuple(p.tensors((0, 2, 5), torch.float64)),
    "0-d": lambda p: tuple(p.tensors((), torch.float64)),
    "NaN": lambda p: _with(float("nan"))(tuple(p.tensors((1, 2, 5), torch.float64))),
    "infinity": lambda p: _with(float("inf"))(tuple(p.tensors((1, 2, 5), torch.float64))),
}


@dataclass(frozen=True)
class Refused:
    """Cells that raise an error.

    Attributes:
        functions, transforms: regular expressions of whole names; a compiled transform is named
            "compiled vmap".
        error: words of the message.
        instead: what to do, for the documentation.
    """

    functions: str
    transforms: str
    error: str
    instead: str

    def holds(self, name: str, transform: str) -> bool:
        return bool(re.fullmatch(self.functions, name) and re.fullmatch(self.transforms, transform))


REFUSED = (
    Refused(
        "linear_cross_entropy",
        "second order, .*|torch.autograd.functional",
        "double backward is not supported; use kw.linear and kw.cross_entropy",
        "`kw.cross_entropy` of the logits, or `torch.func`, which computes all logits",
    ),
    Refused(
        ".*dropout.*",
        "(compiled )?vmap.*",
        "randomness",
        'say how samples draw: `torch.func.vmap(..., randomness="different")`',
    ),
    Refused(
        "attention_varlen( of itself)?",
        "compiled (func.jvp|hessian)",
        "data-dependent",
        "without `torch.compile`: the formula reads the lengths",
    ),
    Refused(
        "spmv",
        "export|compiled .*",
        "[Ss]parse",
        "without `torch.compile`, which does not support sparse tensors",
    ),
)


def refusal(name: str, transform: str) -> Refused | None:
    return next((r for r in REFUSED if r.holds(name, transform)), None)


class _Module(torch.nn.Module):
    def __init__(self, call: Call):
        super().__init__()
        self.call = call

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.call(*tensors)


def named(transform: str, compiled: bool) -> str:
    return f"compiled {transform}" if compiled and transform != "export" else transform


def ours(public: Public, transform: str, tensors: Tensors, compiled: bool) -> object:
    leaves = _leaves(transform, tensors)
    if not compiled:
        return EAGER[transform](public.kw, *leaves)
    torch.manual_seed(3)
    call = lambda *t: public.ours(*t, *public.rest)  # noqa: E731
    if transform == "export":
        call = torch.export.export(_Module(call), leaves).module()
        torch.manual_seed(3)
        return _plain(call, *leaves)
    if transform == "forward and backward":
        return _plain(fullgraph(call), *leaves)
    return fullgraph(lambda *t: COMPILED[transform](call, *t))(*leaves)


def pytorchs(public: Public, transform: str, tensors: Tensors) -> object:
    return {**COMPILED, **AGAIN}[transform](public.pytorch, *_leaves(transform, tensors))


def _leaves(transform: str, tensors: Tensors) -> Tensors:
    recorded = transform in ("forward and backward", "export")
    return tuple(t.detach().requires_grad_(recorded) for t in tensors)


def table() -> str:
    """The list and the table of docs/pytorch.md."""
    transforms = [*EAGER, *(named(t, compiled=True) for t in COMPILED)]
    lines = [f"Right for every function: {', '.join(t for t in transforms if not _refused(t))}."]
    lines += ["", "| Function | Refused under | Instead |", "| --- | --- | --- |"]
    for r in REFUSED:
        functions = [f"`{f}`" for f in PUBLIC | SHAPED if re.fullmatch(r.functions, f)]
        under = [t for t in transforms if re.fullmatch(r.transforms, t)]
        lines.append(f"| {', '.join(functions)} | {', '.join(under)} | {r.instead} |")
    return "\n".join(lines) + "\n"


def _refused(transform: str) -> bool:
    return any(refusal(name, transform) for name in FUNCTIONS)


def written(text: str) -> str:
    """The documentation with the present table."""
    before, rest = text.split(MARKS[0])
    return before + MARKS[0] + table() + MARKS[1] + rest.split(MARKS[1])[1]


if __name__ == "__main__":
    DOCS.write_text(written(DOCS.read_text()))
