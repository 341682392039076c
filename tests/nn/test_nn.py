"""kw.nn, compared with torch.nn: constructors, state_dicts, results and gradients."""

import pytest
import torch

import kernelwright as kw
from support.publics import DEVICE, agree, randn

TOKENS = torch.arange(12, device=DEVICE).remainder(7).view(3, 4)
MODULES = {
    "LayerNorm": ((16,), {}, lambda: (randn(3, 16),)),
    "LayerNorm 2-d": (((4, 16),), {"bias": False, "eps": 1e-3}, lambda: (randn(3, 4, 16),)),
    "LayerNorm plain": ((16,), {"elementwise_affine": False}, lambda: (randn(3, 16),)),
    "RMSNorm": ((16,), {"eps": 1e-3}, lambda: (randn(3, 16),)),
    "GroupNorm": ((2, 6), {"eps": 1e-3}, lambda: (randn(3, 6, 4),)),
    "BatchNorm1d": ((6,), {}, lambda: (randn(3, 6, 4),)),
    "BatchNorm2d": ((6,), {"affine": False}, lambda: (randn(3, 6, 4, 2),)),
    "BatchNorm3d": ((6,), {}, lambda: (randn(2, 6, 3, 2, 2),)),
    "InstanceNorm1d": ((6,), {"affine": True}, lambda: (randn(6, 4),)),
    "InstanceNorm2d": ((6,), {}, lambda: (randn(3, 6, 4, 2),)),
    "InstanceNorm3d": ((6,), {}, lambda: (randn(2, 6, 3, 2, 2),)),
    "GELU": (("tanh",), {}, lambda: (randn(3, 16),)),
    "Embedding": ((7, 5), {"padding_idx": 2}, lambda: (TOKENS,)),
    "CrossEntropyLoss": (
        (),
        {"weight": torch.arange(1.0, 8), "ignore_index": 1, "label_smoothing": 0.1},
        lambda: (randn(3, 7), TOKENS[:, 0]),
    ),
    "LinearCrossEntropyLoss": (
        (6, 7),
        {"bias": True, "weight": torch.arange(1.0, 8), "reduction": "sum"},
        lambda: (randn(3, 6), TOKENS[:, 0]),
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_torchs_with_its_state(name):
    args, options, inputs = MODULES[name]
    theirs = getattr(torch.nn, name.split()[0], None)
    if theirs is None:
        pytest.skip("torch.nn.LinearCrossEntropyLoss is not installed")
    theirs = theirs(*args, **options).to(DEVICE)
    ours = getattr(kw.nn, name.split()[0])(*args, **options).to(DEVICE)
    with torch.no_grad():
        for i, p in enumerate(theirs.parameters()):
            p.copy_(randn(*p.shape, seed=i))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    found = []
    for module in (ours, theirs):
        given = [t.requires_grad_() if t.is_floating_point() else t for t in inputs()]
        y = module(*given)
        leaves = [t for t in (*given, *module.parameters()) if t.requires_grad]
        found.append((y, *torch.autograd.grad(y, leaves, randn(*y.shape, seed=9))))
    agree(*found, torch.float32)


def test_modules_of_torch_are_recognised():
    """Recognised by an optimizer's filter or a wrap policy."""
    for name in ("LayerNorm", "RMSNorm", "GELU", "Embedding", "CrossEntropyLoss",
                 "GroupNorm", "BatchNorm2d", "InstanceNorm2d", "SyncBatchNorm"):  # fmt: skip
        assert issubclass(getattr(kw.nn, name), getattr(torch.nn, name))


@pytest.mark.parametrize("dim", [-1, 1])
def test_swiglu_halves_a_dimension(dim):
    x = randn(3, 6, 8)
    gate, up = x.chunk(2, dim)
    agree(kw.nn.SwiGLU(dim)(x), torch.nn.functional.silu(gate) * up, x.dtype)
    with pytest.raises(ValueError, match="input: dimension -1 must be even, is 5"):
        kw.nn.SwiGLU()(randn(2, 5))


def test_a_class_weight_of_another_size_is_named():
    with pytest.raises(ValueError, match=r"weight: has shape \(3,\), should be \(4,\)"):
        kw.nn.LinearCrossEntropyLoss(2, 4, weight=torch.ones(3))
