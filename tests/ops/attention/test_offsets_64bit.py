"""Heads, sequences and pages that are 2^31 elements apart in memory, as in a tensor of more than
2^31 elements: kernels compute offsets in 64 bits. On a GPU where there is one, else in the
emulator."""

import pytest
import torch

from kernelwright.contract import case
from kernelwright.dispatch import ladder, launcher
from kernelwright.machine import gpu_memory
from support.publics import DEVICE

BF16, FAR = torch.bfloat16, 2**31 + 64
S = "scaled_dot_product_attention"
#: Operator, shape and parameters of a case, the dimension that is far, the tensors, the rungs.
CALLS = (
    (S, (2, 2, 24, 64), {}, 0, "q k v", "staged tiled mma"),
    (S, (2, 2, 24, 64), {}, 1, "q k v", "mma triton_flash"),
    (f"{S}.backward", (2, 2, 24, 64), {}, 0, "gy q k v y", "triton_flash"),
    ("attention_varlen", (24, 2, 32), {"lengths": (12, 12)}, 1, "q k v", "triton_varlen"),
    ("attention_varlen_paged", (6, 2, 64),
     {"lengths": (6,), "keys": (16,), "page": 16, "hk": 2}, 0, "k v", "triton_pages"),
    ("linear_attention", (2, 2, 33, 16), {}, 0, "q k v", "recurrent triton_chunked"),
    ("paged_attention", (1, 2, 64), {"page": 16, "s": 16, "hk": 2}, 0, "k v",
     "split_mma split_bulk triton_split"),
    ("attention_with_kv_cache", (2, 2, 64), {"s": 20, "g": 2}, 0, "k_cache v_cache",
     "split_mma split_bulk"),
)  # fmt: skip


@pytest.fixture(scope="module")
def memory():
    """A page of it that is not touched is never allocated."""
    with gpu_memory.exclusive():
        yield torch.empty(FAR + 2**24, dtype=BF16, device=DEVICE)


def apart(t, memory, nth, dim):
    """A copy of t whose two parts along `dim` are FAR elements apart."""
    assert t.shape[dim] == 2
    strides = list(torch.empty(t.shape).stride())
    strides[dim] = FAR
    return memory.as_strided(t.shape, strides, nth * 2**20).copy_(t)


@pytest.mark.parametrize(
    ("name", "shape", "params", "dim", "moved", "rung"),
    [(*call, rung) for *call, rungs in CALLS for rung in rungs.split()],
)
def test_offsets_have_64_bits(memory, name, shape, params, dim, moved, rung):
    found = ladder(name)
    args = found.operator.with_defaults(found.operator.inputs(case(shape, BF16, **params), DEVICE))
    if "table" in args:
        args["table"].fill_(1)  # the page that is far
    rung = rung if rung.startswith("triton") else f"cuda_{rung}"
    far = {**args, **{n: apart(args[n], memory, i, dim) for i, n in enumerate(moved.split())}}
    near, found = (_results(launcher(found, x, rung), x) for x in (args, far))
    for a, b in zip(near, found, strict=True):
        assert torch.equal(a, b)


def _results(call, args):
    made = call(*args.values())
    return made if isinstance(made, tuple) else (made,)
