"""Tests of the norms of channels: memory formats, running statistics, errors of groups."""

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200, TensorSpec
from kernelwright.dispatch import ladder
from kernelwright.ops.norm.batch_norm.tiling import BatchCall
from kernelwright.ops.norm.group_norm import cuda, heuristics, registers, tiling
from support.publics import DEVICE, agree, randn

FORMATS = {
    "first": lambda t: t.contiguous(),
    "last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "permuted": lambda t: t.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0),
    "sliced": lambda t: torch.cat((t, t), 1)[:, : t.shape[1]],
}
formats = pytest.mark.parametrize("of", FORMATS.values(), ids=FORMATS)
OPERATORS = ("group_norm", "batch_norm", "batch_norm_inference")


def compared(ours, theirs, x, *parameters, grad=None):
    """Compare results and gradients of both, for the gradient `grad` if one is given."""
    found = []
    for fn in (ours, theirs):
        given = [t.clone(memory_format=torch.preserve_format).requires_grad_()
                 for t in (x, *parameters)]  # fmt: skip
        y = fn(*given)
        g = randn(*y.shape, seed=9) if grad is None else grad
        found.append((y, *torch.autograd.grad(y, given, g)))
    agree(*found, torch.float32, slack=1e-5)
    return found[0][0]


@formats
@pytest.mark.parametrize("rung", ["native", "cuda"])
def test_memory_format_is_kept(of, rung):
    x, w, b = of(randn(2, 8, 3, 5)), randn(8, seed=1), randn(8, seed=2)
    last = of is FORMATS["last"]
    chosen = "native" if rung == "native" else "cuda_channels_split" if last else "cuda_split"
    with kw.use(dict.fromkeys(OPERATORS[:2], chosen)):
        ys = (
            compared(lambda x, w, b: kw.group_norm(x, 4, w, b),
                     lambda x, w, b: F.group_norm(x, 4, w, b), x, w, b),
            compared(lambda x, w, b: kw.batch_norm(x, None, None, w, b, True),
                     lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, w, b),
        )  # fmt: skip
    for y in ys:
        assert y.is_contiguous(memory_format=torch.channels_last if last else torch.preserve_format)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("grad", ["expanded", "other format"])
def test_a_gradient_may_have_any_strides(last, grad):
    x = FORMATS["last" if last else "first"](randn(2, 8, 3, 5))
    g = randn(1).expand(x.shape)
    if grad == "other format":
        g = FORMATS["first" if last else "last"](randn(2, 8, 3, 5, seed=3))
    rung = "cuda_channels" if last else "cuda_cluster"
    with kw.use(dict.fromkeys(OPERATORS[:2], rung)):
        compared(lambda x: kw.group_norm(x, 2), lambda x: F.group_norm(x, 2), x, grad=g)
        compared(lambda x: kw.batch_norm(x, None, None, training=True),
                 lambda x: F.batch_norm(x, None, None, training=True), x, grad=g)  # fmt: skip


@pytest.mark.parametrize("given", ["none", "x", "weight", "bias"])
def test_gradients_that_are_wanted(given):
    x, w, b = randn(3, 6, 4), randn(6, seed=1), randn(6, seed=2)
    wanted = {"x": x, "weight": w, "bias": b}.get(given)
    y = kw.group_norm(x, 3, w, b, silu=True)
    if wanted is None:
        assert not y.requires_grad
        return
    wanted.requires_grad_()
    (mine,) = torch.autograd.grad(kw.group_norm(x, 3, w, b, silu=True).sum(), wanted)
    (theirs,) = torch.autograd.grad(F.silu(F.group_norm(x, 3, w, b)).sum(), wanted)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("silu", [False, True])
def test_instance_norm_updates_running_statistics(silu):
    x, w = randn(3, 4, 5, 2) * 3 + 1, randn(4, seed=1)
    ours, theirs = ([torch.zeros(4, device=DEVICE), torch.ones(4, device=DEVICE)] for _ in range(2))
    y = kw.instance_norm(x, *ours, w, momentum=0.3, silu=silu)
    right = F.instance_norm(x, *theirs, w, momentum=0.3)
    torch.testing.assert_close(y, F.silu(right) if silu else right)
    torch.testing.assert_close(ours, theirs)
    y = kw.instance_norm(x, *ours, w, use_input_stats=False, silu=silu)
    right = F.instance_norm(x, *theirs, w, use_input_stats=False)
    torch.testing.assert_close(y, F.silu(right) if silu else right)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kw.group_norm(randn(4), 2), "input: has 1 dimensions"),
        (lambda: kw.group_norm(randn(2, 5, 3), 2), "num_groups: 2 does not divide the input's 5"),
        (lambda: kw.group_norm(randn(2, 4, 3), 0), "num_groups: 0 does not divide"),
        (lambda: kw.group_norm(randn(2, 4, 3), 2, randn(3)), r"weight: has shape \(3,\)"),
        (lambda: kw.group_norm(randn(2, 4, 3), 2, None, randn(3)), r"bias: has shape \(3,\)"),
        (lambda: kw.group_norm(randn(1, 4), 4), "input: a group needs more than one element"),
        (lambda: kw.instance_norm(randn(2, 4, 1)), "input: a channel needs more than one"),
        (lambda: kw.instance_norm(randn(2, 4, 3), randn(3)), "running_mean: has shape"),
    ],
)
def test_errors_name_the_argument(call, words):
    with pytest.raises(ValueError, match=words):
        call()
    with pytest.raises(TypeError, match="input: must be floating point"):
        kw.group_norm(torch.ones(2, 4, 3, dtype=torch.int32), 2)


def call_of(n, c, length, groups, dtype, last):
    x = TensorSpec.contiguous((n, length, c) if last else (n, c, length), dtype)
    return {
        "x": x, "weight": None, "bias": None, "groups": groups, "eps": 1e-5, "channels_last": last,
        "silu": False,
    }  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, 32])
@pytest.mark.parametrize(("c", "length"), [(320, 4096), (640, 1024), (1280, 64), (512, 16384)])
@pytest.mark.parametrize("last", [False, True])
def test_chosen_clusters_fill_the_gpu_and_hold_the_call(n, c, length, last):
    args = call_of(n, c, length, 32, torch.bfloat16, last)
    rung = ladder("group_norm").rung("cuda_channels" if last else "cuda_cluster")
    config = rung.heuristic(H200, **args)
    (launch,) = (cuda.channels if last else cuda.cluster)(H200, config, **args).launches
    assert launch.shared + tiling.STATIC <= H200.shared_per_block
    assert config == rung.configs[2 if last else -1] or launch.grid[0] >= H200.sms


@pytest.mark.parametrize("last", [False, True])
def test_a_supported_call_fits_every_config(last):
    """Sizes near the capacity of a cluster."""
    found = ladder("group_norm").rung("cuda_channels" if last else "cuda_cluster")
    taken = refused = 0
    for n in range(1, 24):
        args = call_of(1, (32, 96, 320)[n % 3], 2**n + n, 32, torch.bfloat16, last)
        if found.supports(H200, **args):
            refused += 1
            continue
        taken += 1
        for config in found.configs:
            (launch,) = (cuda.channels if last else cuda.cluster)(H200, config, **args).launches
            assert launch.shared + tiling.STATIC <= H200.shared_per_block
    assert taken
    assert refused


def test_a_slab_is_whole_groups_and_whole_vectors():
    for c, groups in ((320, 32), (96, 32), (30, 3), (1024, 1), (7, 7)):
        call = tiling.Call(call_of(2, c, 64, groups, torch.bfloat16, True))
        slab = tiling.slab_of(H200, call, heuristics.CHANNELS_CONFIGS[0]).channels
        assert c % slab == slab % (c // groups) == slab % call.width == 0
        assert slab == c or slab * 2 >= 128


REGISTERS = pytest.mark.parametrize("name", ["group_norm", "batch_norm", "batch_norm first"])


def registers_call(name, n, c, length, groups, dtype):
    """(rung, arguments, the call in the form that kernels take)."""
    last = not name.endswith("first")
    args = call_of(n, c, length, groups, dtype, last)
    rung = ladder(name.split()[0]).rung("cuda_channels_registers" if last else "cuda_registers")
    if name == "group_norm":
        return rung, args, tiling.Call(args)
    args = {k: args[k] for k in ("x", "weight", "bias", "eps", "channels_last")}
    return rung, args, BatchCall(args)


@REGISTERS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("n", [1, 3, 32, 256])
def test_registers_hold_every_element_of_a_supported_call(name, dtype, n):
    taken = refused = 0
    for c, groups in ((320, 32), (96, 32), (30, 3), (64, 64), (2048, 1), (7, 7)):
        for length in (1, 5, 49, 196, 784, 4096, 65536):
            rung, args, call = registers_call(name, n, c, length, groups, dtype)
            if why := rung.supports(H200, **args):
                assert "registers" in why
                refused += 1
                continue
            taken += 1
            for config in rung.configs:
                of = registers.held_of(call, config)
                m = of.matrix
                assert m.samples * m.rows * m.channels == args["x"].numel()
                assert m.channels % of.channels == of.channels % m.per == of.channels % m.width == 0
                rows = of.vectors * (of.threads // of.columns) * of.blocks
                assert rows >= m.rows
                assert of.blocks <= registers.CLUSTER
                assert of.vectors <= registers.HELD[of.threads][0]
                assert of.channels * dtype.itemsize >= registers.SECTOR or of.channels == m.channels
            assert rung.heuristic(H200, **args) in rung.configs
    assert taken
    assert refused


def test_batch_norm_reads_rows_of_any_length_as_vectors():
    for length, channels in ((49, 8), (196, 2), (1, 64), (7, 16)):
        _, _, call = registers_call("batch_norm first", 64, 2048, length, 1, torch.bfloat16)
        of = registers.held_of(call, heuristics.CHANNELS_REGISTERS_CONFIGS[0])
        assert of.matrix.width == 8
        assert of.channels == channels * length


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("silu", [False, True])
def test_groups_that_share_a_vector_in_registers(dtype, silu):
    """Three channels per group: a vector belongs to two to four groups."""
    x = FORMATS["last"]((randn(2, 24, 5, 7) * 3 + 2).to(dtype))
    w, b = randn(24, seed=1).to(dtype), randn(24, seed=2).to(dtype)
    with kw.use({"group_norm": "cuda_channels_registers"}):
        y = kw.group_norm(x, 8, w, b, silu=silu)
    right = F.group_norm(x.double(), 8, w.double(), b.double())
    agree((y.double(),), (F.silu(right) if silu else right,), dtype, slack=1e-5)
