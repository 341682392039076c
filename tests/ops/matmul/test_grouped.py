"""Grouped products and mixtures of experts: meaning, gradients, errors, what is compiled for
Hopper, and how its tiles are found."""

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200, TensorMap, TensorSpec
from kernelwright.ops.matmul.grouped import LADDER, LADDER_SWIGLU, cuda, heuristics
from support.hopper import holds
from support.publics import DEVICE, fullgraph, randn

F64 = torch.float64
ENDS = torch.tensor([3, 3, 8, 11], dtype=torch.int32, device=DEVICE)  # the second group is empty


def looped(a, b, offsets):
    bounds = [0, *offsets.tolist()]
    return torch.cat([a[bounds[e] : bounds[e + 1]] @ b[e] for e in range(len(b))])


def experts(x, gate_up, down, weights, indices):
    """The layer, token by token."""
    y = torch.zeros_like(x)
    for t, (ws, es) in enumerate(zip(weights, indices.tolist(), strict=True)):
        for w, e in zip(ws, es, strict=True):
            gate, up = (x[t] @ gate_up[e].t()).chunk(2)
            y[t] = y[t] + w * (down[e] @ (F.silu(gate) * up))
    return y


@pytest.mark.parametrize("along_k", [False, True])
def test_each_group_by_its_matrix(along_k):
    a, b = randn(11, 6, dtype=F64), randn(4, 6, 10, dtype=F64, seed=1)
    b = b.mT.contiguous().mT if along_k else b
    leaves = a.requires_grad_(), b.requires_grad_()
    torch.testing.assert_close(kw.grouped_mm(a, b, ENDS), looped(a, b, ENDS))
    gate, up = looped(a, b, ENDS).chunk(2, -1)
    torch.testing.assert_close(kw.grouped_swiglu(a, b, ENDS), F.silu(gate) * up)
    assert torch.autograd.gradcheck(lambda a, b: kw.grouped_mm(a, b, ENDS), leaves)
    assert torch.autograd.gradcheck(lambda a, b: kw.grouped_swiglu(a, b, ENDS), leaves)
    assert torch.autograd.gradgradcheck(lambda a, b: kw.grouped_mm(a, b, ENDS), leaves)
    (gb,) = torch.autograd.grad(kw.grouped_mm(a, b, ENDS).sum(), b)
    assert (gb.stride(1) == 1) == along_k
    assert bool((gb[1] == 0).all())


@pytest.mark.parametrize("top_k", [1, 3])
@pytest.mark.parametrize("normalize", [False, True])
def test_a_layer_of_experts(top_k, normalize):
    x, logits = randn(7, 6, dtype=F64), randn(7, 5, dtype=F64, seed=1)
    gate_up, down = randn(5, 8, 6, dtype=F64, seed=2), randn(5, 6, 4, dtype=F64, seed=3)
    leaves = [t.requires_grad_() for t in (x, logits, gate_up, down)]

    def layer(x, logits, gate_up, down, ffn=kw.moe_ffn):
        weights, indices = kw.moe_route(logits, top_k, normalize=normalize)
        return ffn(x, gate_up, down, weights, indices)

    y, want = layer(*leaves), layer(*leaves, ffn=experts)
    torch.testing.assert_close(y, want)
    torch.testing.assert_close(
        torch.autograd.grad(y.square().sum(), leaves),
        torch.autograd.grad(want.square().sum(), leaves),
    )
    torch.testing.assert_close(fullgraph(layer)(*leaves), want)
    if normalize:
        weights, indices = kw.moe_route(logits, top_k)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[:, 0]))
        torch.testing.assert_close(logits.gather(1, indices).softmax(-1), weights)


def test_no_tokens():
    gate_up, down = randn(5, 8, 6), randn(5, 6, 4)
    weights, indices = kw.moe_route(randn(0, 5), 2)
    assert kw.moe_ffn(randn(0, 6), gate_up, down, weights, indices).shape == (0, 6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda a, b: kw.grouped_mm(a, b, ENDS.long()), TypeError, "offsets: is"),
        *(
            (
                lambda a, b, ends=ends: kw.grouped_mm(a, b, ends),
                ValueError,
                "offsets: should ascend",
            )
            for ends in (ENDS - 1, ENDS.flip(0))
            if DEVICE == "cpu"  # the host does not read offsets of a GPU
        ),
        (lambda a, b: kw.grouped_mm(a, b, ENDS[:3]), ValueError, "offsets: has shape"),
        (lambda a, b: kw.grouped_mm(a, b[:, :3], ENDS), ValueError, "weight: has shape"),
        (lambda a, b: kw.grouped_mm(a, b.half(), ENDS), TypeError, "weight: is"),
        (lambda a, b: kw.grouped_swiglu(a, b[..., :7], ENDS), ValueError, "weight: 7 columns"),
        (lambda a, b: kw.moe_route(a, 7), ValueError, "top_k: must be between 1 and 6, is 7"),
        (lambda a, b: layer_of(a, indices=torch.full((11, 2), 5)), ValueError, "indices: has"),
        (lambda a, b: layer_of(a, weights=randn(11, 3)), ValueError, "weights: has shape"),
        (lambda a, b: layer_of(a, down=randn(5, 6, 3)), ValueError, "down: has shape"),
        (lambda a, b: layer_of(a, gate_up=randn(5, 8, 5)), ValueError, "gate_up: has shape"),
    ],
)
def test_errors_name_the_argument(call, error, message):
    with pytest.raises(error, match=message):
        call(randn(11, 6), randn(4, 6, 10, seed=1))


def layer_of(a, **change):
    given = {
        "gate_up": randn(5, 8, 6),
        "down": randn(5, 6, 4),
        "weights": randn(11, 2),
        "indices": torch.zeros(11, 2, dtype=torch.int64),
    }
    return kw.moe_ffn(a, **{**given, **change})


def operands(rows, n, k, groups, along_k=True, dtype=torch.bfloat16):
    strides = (n * k, 1, k) if along_k else (n * k, n, 1)
    return {
        "a": TensorSpec.contiguous((rows, k), dtype),
        "b": TensorSpec((groups, k, n), strides, dtype),
        "offsets": TensorSpec.contiguous((groups,), torch.int32),
    }


@pytest.mark.cover
@pytest.mark.parametrize("along_k", [False, True])
@pytest.mark.parametrize("config", heuristics.CONFIGS)
@pytest.mark.parametrize("ladder", [LADDER, LADDER_SWIGLU], ids=lambda x: x.name)
def test_sums_stay_in_registers_and_products_do_not_wait(compiler, ladder, config, along_k):
    rung, args = ladder.rung("cuda_wgmma"), operands(1000, 512, 520, 8, along_k)
    if rung.supports(H200, **args):
        assert ladder is LADDER_SWIGLU and not along_k
        return
    (step,) = getattr(cuda, rung.entry.split(":")[1])(H200, config, **args).launches
    holds(step)


def test_maps_of_a_gated_tile():
    args = operands(1000, 512, 520, 8)
    (step,) = cuda.wgmma_swiglu(H200, heuristics.CONFIGS[0], **args).launches
    a, b, y = (x for x in step.args if isinstance(x, TensorMap))
    assert (a.shape, a.box) == ((520, 1000, 1), (64, 128, 1))
    assert (b.shape, b.box) == ((520, 512, 8), (64, 128, 1))
    assert (y.tensor, y.shape) == ("y", (256, 1000, 1))
    bytes_ = next(x for x in reversed(step.args) if hasattr(x, "value")).value
    assert bytes_ == (128 + 2 * 128) * 128


def test_what_hopper_does_not_take_is_refused():
    def why(ladder=LADDER, **change):
        return ladder.rung("cuda_wgmma").supports(H200, **{**operands(100, 64, 64, 4), **change})

    assert why() is None and why(LADDER_SWIGLU) is None
    assert "not both" in why(a=TensorSpec.contiguous((100, 64), torch.float32))
    assert "not contiguous along k" in why(a=TensorSpec((104, 64), (1, 104), torch.bfloat16))
    assert "stride 0" in why(b=TensorSpec((4, 64, 64), (0, 1, 64), torch.bfloat16))
    assert "not contiguous along k" in why(LADDER_SWIGLU, **operands(100, 64, 64, 4, along_k=False))
    assert "16 bytes" in why(LADDER_SWIGLU, **operands(100, 72, 64, 4))
