"""PyTorch's own samples (OpInfo) for every operator that has them: results and gradients."""

import importlib

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves, tree_map

import kernelwright as kw
from support.publics import DEVICE

pytest.importorskip("expecttest", reason="expecttest is not installed")
op_db = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db

CHUNKED = "nn.functional.linear_cross_entropy"  # variants are of `options`, which kw does not have
#: PyTorch's name of each function. rope, the norms of sums, the gated and the fused ones have no
#: OpInfo; adamw and clip_grad_norm are the optimizer's; only p of 0 or 1 gives dropout one result.
OURS = {
    "add": kw.add,
    "mul": kw.mul,
    "nn.functional.relu": kw.relu,
    "nn.functional.silu": kw.silu,
    "sigmoid": kw.sigmoid,
    "tanh": kw.tanh,
    "nn.functional.gelu": kw.gelu,
    "softmax": kw.softmax,
    "log_softmax": kw.log_softmax,
    "sum": kw.sum,
    "nn.functional.layer_norm": kw.layer_norm,
    "nn.functional.rms_norm": kw.rms_norm,
    "nn.functional.group_norm": kw.group_norm,
    "nn.functional.instance_norm": kw.instance_norm,
    "nn.functional.batch_norm": kw.batch_norm,
    "nn.functional.embedding": lambda weight, indices, **more: kw.embedding(
        indices, weight, **more
    ),
    "nn.functional.cross_entropy": kw.cross_entropy,
    CHUNKED: kw.linear_cross_entropy,
    "nn.functional.kl_div": kw.kl_div,
    "cumsum": kw.cumsum,
    "permute_copy": kw.permute_copy,
    "transpose_copy": kw.transpose_copy,
    "nn.functional.pad": kw.pad,
    "nn.functional.interpolate": kw.interpolate,
    "nn.functional.avg_pool2d": kw.avg_pool2d,
    "index_add": kw.index_add,
    "gather": kw.gather,
    "scatter_add": kw.scatter_add,
    "index_select": kw.index_select,
    "cumprod": kw.cumprod,
    "msort": kw.msort,
}
#: For an operator with variants, the variant that kw has.
VARIANTS = {CHUNKED: "", "nn.functional.pad": "constant", "nn.functional.interpolate": "bilinear"}
INFOS = [
    x
    for x in op_db
    if x.name in OURS and VARIANTS.get(x.name, x.variant_test_name) == x.variant_test_name
]
KINDS = (torch.float32, torch.bfloat16, torch.int64)
#: The gradient of x is a difference of terms of up to |gy weight| / sqrt(eps), which cancel where
#: one element is normalized: what is left, zero in PyTorch, is the rounding of these terms.
NORMS = tuple(f"nn.functional.{name}_norm" for name in ("layer", "group", "instance", "batch"))
#: The arguments that the library rejects; the public function's docstring has the reason.
REFUSED = ("antialias: ", "max_norm: ", "scale_grad_by_freq: ", "sparse: ")


def call(fn, sample, grad):
    """The result and gradients, or the error, of a function for copies of a sample's tensors."""

    def copied(t):
        if not isinstance(t, torch.Tensor):
            return t
        return t.detach().clone().requires_grad_(t.requires_grad)

    first, args, kwargs = tree_map(copied, (sample.input, sample.args, sample.kwargs))
    y = fn(first, *args, **kwargs)
    leaves = [t for t in tree_leaves((first, args, kwargs)) if wants_grad(t)]
    if not (grad and y.requires_grad):
        return (y,)
    g = torch.linspace(-1, 1, y.numel(), dtype=torch.float64, device=y.device).to(y.dtype)
    return y, *torch.autograd.grad(y, leaves, g.view(y.shape), allow_unused=True)


def wants_grad(t):
    return isinstance(t, torch.Tensor) and t.requires_grad


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("info", INFOS, ids=lambda x: x.name)
def test_samples_agree(info, dtype):
    if dtype not in info.supported_dtypes(DEVICE):
        return
    theirs = info.op if info.name != CHUNKED else reference
    grad = dtype.is_floating_point and info.supports_autograd
    seen = 0
    for sample in info.sample_inputs(DEVICE, dtype, requires_grad=grad):
        if not isinstance(sample.input, torch.Tensor):
            continue  # a number
        right = call(theirs, sample, grad)
        try:
            found = call(OURS[info.name], sample, grad)
        except NotImplementedError as error:
            assert str(error).startswith(REFUSED), (error, sample)
            continue
        seen += 1
        assert len(found) == len(right)
        for mine, native in zip(found, right, strict=True):
            compare(mine, native, sample, _rounding(info, sample, native))
    assert seen, "no sample ran"


def _rounding(info, sample, native):
    """The absolute error that the terms of a difference leave in a result that is zero."""
    if info.name not in NORMS or native is None or not native.is_floating_point() or native.any():
        return 0.0
    tensors = [t.detach().abs().max().item() for t in tree_leaves(sample.args) if wants_grad(t)]
    return torch.finfo(torch.float32).eps * max([1.0, *tensors]) / 1e-5**0.5


def reference(input, linear_weight, target, linear_bias=None, ignore_index=None, **kwargs):
    """F.linear_cross_entropy as PyTorch 2.13 defines it."""
    if ignore_index is not None:
        kwargs["ignore_index"] = ignore_index
    logits = F.linear(
        input,
        linear_weight.flatten(0, -2),
        linear_bias if linear_bias is None else linear_bias.flatten(),
    )
    return F.cross_entropy(
        logits.view(*input.shape[:-1], *linear_weight.shape[:-1]), target, **kwargs
    )


def compare(mine, native, sample, rounding=0.0):
    if native is None:
        assert mine is None or not mine.any(), sample
        return
    assert mine.shape == native.shape and mine.dtype == native.dtype, (mine, native, sample)
    tolerance = 2e-5 if native.dtype != torch.bfloat16 else 4e-2
    torch.testing.assert_close(
        mine,
        native,
        rtol=tolerance,
        atol=max(tolerance, rounding),
        equal_nan=True,
        msg=lambda m: f"{m}\n{sample}",
    )
