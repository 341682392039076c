"""batch_norm: running statistics, modules, and batches that are split over processes."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

import kernelwright as kw
from kernelwright.contract.compare import measure
from kernelwright.dispatch import registry
from kernelwright.dispatch.launcher import launcher
from support import ranks
from support.publics import DEVICE, agree, randn


def _running():
    return [torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("momentum", [0.1, 1.0])
def test_running_statistics_are_pytorchs(dtype, momentum):
    x = (randn(5, 3, 4) * 2 + 7).to(dtype)
    ours, theirs = (_running() for _ in range(2))
    if dtype == torch.float64:
        ours, theirs = ([t.double() for t in pair] for pair in (ours, theirs))
    for _ in range(2):
        y = kw.batch_norm(x, *ours, training=True, momentum=momentum)
        right = F.batch_norm(x, *theirs, training=True, momentum=momentum)
    agree(y, right, dtype)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(kw.batch_norm(x, *ours), F.batch_norm(x, *ours))


def test_running_statistics_alone_and_in_16_bits():
    x = randn(5, 3, 4)
    mean, var = _running()
    var = var.half()
    kw.batch_norm(x, mean, None, training=True)
    kw.batch_norm(x, None, var, training=True)
    found = _running()
    F.batch_norm(x, *found, training=True)
    torch.testing.assert_close(mean, found[0])
    torch.testing.assert_close(var, found[1].half())


def test_an_empty_batch_does_not_change_running_statistics():
    (mean, var), w = _running(), randn(3).requires_grad_()
    y = kw.batch_norm(randn(0, 3, 4), mean, var, w, training=True)
    assert y.shape == (0, 3, 4)
    assert not torch.autograd.grad(y.sum(), w)[0].any()
    assert not mean.any()
    assert var.eq(1).all()


@pytest.mark.parametrize("rung", ["native", "cuda_scale"])
def test_inference_has_gradients(rung):
    x, w, b, mean = randn(3, 4, 5), randn(4, seed=1), randn(4, seed=2), randn(4, seed=3)
    var = randn(4, seed=4).square() + 0.5
    found = []
    for fn in (kw.batch_norm, F.batch_norm):
        given = [t.clone().requires_grad_() for t in (x, w, b)]
        with kw.use({"batch_norm_inference": rung}):
            y = fn(given[0], mean, var, *given[1:])
        found.append((y, *torch.autograd.grad(y, given, randn(3, 4, 5, seed=9))))
    agree(*found, torch.float32, slack=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kw.batch_norm(randn(4), None, None, training=True), "input: has 1 dimensions"),
        (lambda: kw.batch_norm(randn(2, 4), None, None), "running_mean: must be given"),
        (lambda: kw.batch_norm(randn(2, 4), randn(4), None), "running_var: must be given"),
        (lambda: kw.batch_norm(randn(2, 4), randn(3), None), r"running_mean: has shape \(3,\)"),
        (lambda: kw.batch_norm(randn(1, 4), None, None, training=True), "more than one element"),
        (lambda: kw.batch_norm(randn(2, 4), None, None, randn(3)), r"weight: has shape \(3,\)"),
    ],
)
def test_errors_name_the_argument(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("momentum", [0.2, None])
@pytest.mark.parametrize("tracks", [True, False])
@pytest.mark.parametrize(
    ("name", "shape"), [("BatchNorm1d", (4, 3)), ("BatchNorm2d", (2, 3, 4, 2)),
                        ("SyncBatchNorm", (2, 3, 4)), ("InstanceNorm2d", (2, 3, 4, 2))]
)  # fmt: skip
def test_a_module_counts_and_averages_as_torchs(name, shape, momentum, tracks):
    options = {"momentum": momentum, "track_running_stats": tracks}
    theirs = name.replace("SyncBatchNorm", "BatchNorm1d")
    found = []
    for module in (getattr(kw.nn, name)(3, **options), getattr(torch.nn, theirs)(3, **options)):
        module.to(DEVICE)
        ys = [module(randn(*shape, seed=i) * 2 + 1) for i in range(3)]
        ys.append(module.eval()(randn(*shape, seed=4)))
        found.append((*ys, *module.state_dict().values()))
    agree(*found, torch.float32, slack=1e-5)


def test_two_processes_compute_what_one_does_with_the_joined_batch():
    """Batches of unequal sizes, one of them empty; two collectives per step."""
    ranks.output("synced.py")


@pytest.mark.parametrize(
    ("name", "rung", "shape", "last"),
    [
        ("batch_norm_stats", "cuda_split", (8, 8, 9856), False),
        ("batch_norm_stats", "cuda_channels_split", (1, 16384, 64), True),
        ("batch_norm_backward_reduce", "cuda_channels_split", (1, 16384, 64), True),
    ],
)
def test_long_sums_are_as_exact_as_a_tree(name, rung, shape, last):
    """In units of the error of a tree of sums; chains of a thread or of blocks have 5 to 14."""
    ladder = registry.ladder(name)
    x, over = randn(*shape), (0, 1) if last else (0, 2)
    args = {"x": x, "channels_last": last}
    if name.endswith("reduce"):
        args = {"gy": randn(*shape, seed=1), "mean": x.mean(over), "rstd": 1 / x.std(over), **args}
    args = ladder.operator.with_defaults(args)
    found = launcher(ladder, args, rung)(*args.values())
    exact = {k: t.double() if isinstance(t, torch.Tensor) else t for k, t in args.items()}
    right, noise = ladder.operator.reference(**exact), ladder.operator.noise(**args)
    for out, want, unit in zip(*map(tree_leaves, (found, right, noise)), strict=True):
        assert measure(out.flatten(), want.flatten(), unit.flatten()).worst < 4
