"""Two processes, each with its part of the DTensors; run by test_dtensor.py."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import kernelwright as kw
import kernelwright.ops.every
from support import ranks

W, ROWS = Replicate(), Shard(0)
LOGITS, TARGET = (6, 7), torch.arange(6).remainder(7)
HEADS = (2, 4, 6, 8)


def angles():
    angle = torch.arange(1.0, 25).view(6, 4).repeat(1, 2)
    return angle.cos(), angle.sin()


#: Function, shapes of its tensors, their placements, the placement of the result.
CALLS = {
    "silu": (kw.silu, [(4, 6)], [Shard(1)], Shard(1)),
    "gelu": (kw.gelu, [(4, 6)], [ROWS], ROWS),
    "add": (kw.add, [(4, 6), (6,)], [ROWS, W], ROWS),
    "mul by sharded columns": (kw.mul, [(4, 6), (6,)], [Shard(1), ROWS], Shard(1)),
    "swiglu": (kw.swiglu, [(4, 3, 6)] * 2, [Shard(2)] * 2, Shard(2)),
    "bias_gelu": (kw.bias_gelu, [(4, 6), (6,)], [Shard(1), ROWS], Shard(1)),
    "softmax": (lambda x: kw.softmax(x, -1), [(4, 3, 6)], [Shard(1)], Shard(1)),
    "softmax of columns": (lambda x: kw.softmax(x, 0), [(4, 6)], [Shard(1)], Shard(1)),
    "softmax of what is split": (lambda x: kw.softmax(x, -1), [(4, 6)], [Shard(1)], None),
    "layer_norm": (
        lambda x, w, b: kw.layer_norm(x, 6, w, b), [(4, 3, 6), (6,), (6,)], [Shard(1), W, W],
        Shard(1),
    ),
    "rms_norm": (lambda x, w: kw.rms_norm(x, 6, w), [(5, 6), (6,)], [ROWS, W], ROWS),
    "add_rms_norm": (
        lambda x, r, w: kw.mul(*kw.add_rms_norm(x, r, 6, w)), [(4, 6), (4, 6), (6,)],
        [ROWS, ROWS, W], ROWS,
    ),
    "sum of rows": (lambda x: kw.sum(x, -1), [(4, 6)], [ROWS], ROWS),
    "sum of what is split": (lambda x: kw.sum(x, 0), [(4, 6)], [ROWS], Partial()),
    "rope of heads": (
        lambda q, k: torch.cat(kw.rope(q, k, *map(whole, angles())), 1), [HEADS, HEADS],
        [Shard(1)] * 2, None,
    ),
    "rope of samples": (
        lambda q, k: kw.add(*kw.rope(q, k, *map(whole, angles()))), [HEADS, HEADS], [ROWS] * 2,
        ROWS,
    ),
    "embedding": (lambda w: kw.embedding(split(TARGET), w), [(7, 4)], [W], ROWS),
    "loss of tokens": (
        lambda x: kw.cross_entropy(x, split(TARGET), reduction="none"), [LOGITS], [ROWS], ROWS,
    ),
    "loss": (lambda x: kw.cross_entropy(x, split(TARGET)), [LOGITS], [ROWS], None),
    "summed loss": (
        lambda x: kw.cross_entropy(x, split(TARGET), reduction="sum"), [LOGITS], [ROWS],
        Partial(),
    ),
    "linear loss": (
        lambda x, w: kw.linear_cross_entropy(x, w, split(TARGET)), [(6, 5), (7, 5)], [ROWS, W],
        None,
    ),
}  # fmt: skip

now: dict = {}  # the mesh during a call with DTensors


def whole(t):
    return distribute_tensor(t, now["mesh"], [W]) if now else t


def split(t):
    return distribute_tensor(t, now["mesh"], [ROWS]) if now else t


def both(fn, shapes, placements, mesh):
    """(result, gradients) unsplit, and split but gathered; and the placement of the result."""
    torch.manual_seed(0)
    tensors = [torch.randn(s) for s in shapes]
    found = []
    for which in (None, mesh):
        now.clear()
        leaves = [t.clone() for t in tensors]
        if which is not None:
            now["mesh"] = mesh
            pairs = zip(leaves, placements, strict=True)
            leaves = [distribute_tensor(t, mesh, [p]) for t, p in pairs]
        leaves = [t.requires_grad_() for t in leaves]
        y = fn(*leaves)
        gradients = torch.autograd.grad((y * y).sum(), leaves)
        found.append([t.full_tensor() if which else t for t in (y, *gradients)])
    return *found, y.placements[0]


class Block(nn.Module):
    """A layer of a Llama without its attention."""

    def __init__(self, modules):
        super().__init__()
        self.ours = modules is kw.nn
        self.norm, self.last = (modules.RMSNorm(8, eps=1e-6) for _ in range(2))
        self.gate, self.up = (nn.Linear(8, 12, bias=False) for _ in range(2))
        self.down = nn.Linear(12, 8, bias=False)

    def forward(self, x):
        h = self.norm(x)
        gate, up = self.gate(h), self.up(h)
        return self.last(x + self.down(kw.swiglu(gate, up) if self.ours else F.silu(gate) * up))


def tensor_and_sequence_parallel(mesh):
    torch.manual_seed(0)
    alone, parallel = Block(nn), Block(kw.nn)
    parallel.load_state_dict(alone.state_dict())
    split_rows = {"input_layouts": Shard(1)}
    parallelize_module(
        parallel,
        mesh,
        {
            "norm": SequenceParallel(),
            "gate": ColwiseParallel(**split_rows, use_local_output=False),
            "up": ColwiseParallel(**split_rows, use_local_output=False),
            "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
            "last": SequenceParallel(),
        },
    )
    x = torch.randn(2, 6, 8)
    y = parallel(distribute_tensor(x, mesh, [Shard(1)]))
    assert y.placements == (Shard(1),)
    right = alone(x)
    right.square().sum().backward()
    y.full_tensor().square().sum().backward()
    torch.testing.assert_close(y.full_tensor(), right)
    for (name, p), q in zip(parallel.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(p.grad.full_tensor(), q.grad, msg=lambda m, n=name: n + m)


def compiled(mesh):
    """A call that is traced before DTensor has seen the operator."""
    torch.manual_seed(0)
    x = torch.randn(4, 6)

    def normalised(a, b):
        y, h = kw.add_rms_norm(a, b, 6)
        return y * h

    function = torch.compile(normalised, backend="aot_eager", fullgraph=True)
    leaf = distribute_tensor(x, mesh, [ROWS]).requires_grad_()
    y = function(leaf, leaf * 2)
    assert y.placements == (ROWS,)
    (gx,) = torch.autograd.grad(y.square().sum(), leaf)
    alone = x.clone().requires_grad_()
    right = normalised(alone, alone * 2)
    torch.testing.assert_close(y.full_tensor(), right)
    torch.testing.assert_close(
        gx.full_tensor(), torch.autograd.grad(right.square().sum(), alone)[0]
    )


def refused(mesh):
    now["mesh"] = mesh
    x = split(torch.randn(4, 6))
    try:
        kw.dropout(x, 0.5)
    except NotImplementedError as error:
        assert "dropout: has no sharding rule for DTensors" in str(error)
    else:
        raise AssertionError("each process would draw the same mask")


def run(rank):
    mesh = init_device_mesh("cpu", (2,))
    compiled(mesh)
    for name, (fn, shapes, placements, wanted) in CALLS.items():
        try:
            alone, together, placement = both(fn, shapes, placements, mesh)
            torch.testing.assert_close(together, alone)
            assert wanted in (None, placement), f"{placement}, not {wanted}"
        except Exception as error:
            raise AssertionError(name) from error
    tensor_and_sequence_parallel(mesh)
    refused(mesh)


if __name__ == "__main__":
    ranks.run(run)
