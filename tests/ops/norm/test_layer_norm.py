"""Tests of the norms: optional gradients, one gradient for two arguments, an offset."""

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200, TensorSpec
from kernelwright.dispatch import ladder, launcher, plan_of
from kernelwright.dispatch.dynamic_shapes import OpenCalls
from kernelwright.ops.norm.layer_norm import cuda, heuristics, tiling
from support.publics import DEVICE, fullgraph, gpu, leaf, randn, torch_add

RUNGS = ("native", "triton_row", "cuda_warp", "cuda_block")
NAMES = ("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm")
rungs = pytest.mark.parametrize("rung", RUNGS)


def use(rung):
    return kw.use(dict.fromkeys(NAMES, rung))


def agree(mine, theirs):
    for got, want in zip(mine, theirs, strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            torch.testing.assert_close(got, want)


# rows of which nothing is left without their mean

ALL = ("manual", "triton_row", "triton_loop", "cuda_superset", "cuda_block")


@pytest.mark.parametrize(
    ("rung", "cols"),
    [(r, n) for r in ALL for n in (257, 5000)] + [("cuda_warp", 257), ("cuda_cluster", 5000)],
)
def test_rows_of_equal_elements_are_the_bias(rung, cols):
    """The sum of the row is rounded, and with it the mean: its error would be divided by eps."""
    x, bias = torch.full((3, cols), 100.7, device=DEVICE), randn(cols)
    named = {"x": x, "weight": randn(cols, seed=1), "bias": bias, "eps": 1e-5}
    y, mean, _ = launcher(ladder("layer_norm"), named, rung)(*named.values())
    assert torch.equal(mean.flatten(), x[:, 0])
    assert torch.equal(y, bias.expand_as(y))


@pytest.mark.parametrize("rung", ["triton_row", "cuda_superset", "cuda_warp", "cuda_block"])
def test_the_gradient_of_a_row_of_one_element_is_0(rung):
    x, w, gy = randn(7, 1), randn(1, seed=1), randn(7, 1, seed=2)
    named = {"gy": gy, "x": x, "weight": w, "bias": None, "mean": x, "rstd": x * 0 + 300.0}
    gx = launcher(ladder("layer_norm.backward"), named, rung)(*named.values())[0]
    assert not gx.any()


# each parameter may be absent or require no gradient


@rungs
@pytest.mark.parametrize("wants", ["x", "weight", "all"])
def test_rms_norm_gives_the_gradients_that_are_wanted(rung, wants):
    x, w, gy = randn(6, 40), randn(40, seed=1), randn(6, 40, seed=2)
    found = []
    for norm in (kw.rms_norm, F.rms_norm):
        a = x.clone().requires_grad_(wants != "weight")
        b = w.clone().requires_grad_(wants != "x")
        with use(rung):
            y = norm(a, (40,), b, 1e-5)
        y.backward(gy)
        found.append((y, a.grad, b.grad))
    agree(*found)


@rungs
@pytest.mark.parametrize("given", ["", "w", "b", "wb"])
def test_layer_norm_with_and_without_parameters(rung, given):
    x = leaf(5, 3, 40)
    w = leaf(40, seed=1) if "w" in given else None
    b = leaf(40, seed=2) if "b" in given else None
    inputs = [t for t in (x, w, b) if t is not None]
    with use(rung):
        mine = kw.layer_norm(x, (40,), w, b)
        got = torch.autograd.grad(mine.square().sum(), inputs)
    theirs = F.layer_norm(x, (40,), w, b)
    torch.testing.assert_close(mine, theirs)
    agree(got, torch.autograd.grad(theirs.square().sum(), inputs))


@rungs
def test_rms_norm_without_weight(rung):
    x = leaf(3, 4, 10)
    with use(rung):
        mine = torch.autograd.grad(kw.rms_norm(x, (10,)).square().sum(), x)
    agree(mine, torch.autograd.grad(F.rms_norm(x, (10,)).square().sum(), x))


@rungs
def test_two_dimensions_and_a_strided_weight(rung):
    x, r, w = leaf(5, 4, 6), leaf(5, 4, 6, seed=2), leaf(6, 4, seed=1)
    with use(rung):
        mine = (
            kw.rms_norm(x, (4, 6), w.t()),
            kw.layer_norm(x, (4, 6), w.t(), w.t()),
            *kw.add_rms_norm(x, r, (4, 6), w.t()),
            *kw.add_layer_norm(x, r, (4, 6), w.t(), w.t()),
        )
        got = torch.autograd.grad(sum(y.square().sum() for y in mine), (x, r, w))
    theirs = (
        F.rms_norm(x, (4, 6), w.t()),
        F.layer_norm(x, (4, 6), w.t(), w.t()),
        *torch_add(F.rms_norm, x, r, (4, 6), w.t()),
        *torch_add(F.layer_norm, x, r, (4, 6), w.t(), w.t()),
    )
    agree(mine, theirs)
    agree(got, torch.autograd.grad(sum(y.square().sum() for y in theirs), (x, r, w)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_rms_norm_has_torchs_default_eps(dtype):
    x = torch.full((2, 8), 1e-3, dtype=dtype, device=DEVICE)
    torch.testing.assert_close(kw.rms_norm(x, (8,)), F.rms_norm(x, (8,)))
    y, h = kw.add_rms_norm(x, x, (8,))
    torch.testing.assert_close(y, F.rms_norm(h, (8,)))


def test_eps_and_offset_are_read_at_each_call(binds):
    x, w = randn(2, 1031), randn(1031, seed=1)
    with use("triton_row"):
        for eps, offset in ((1e-6, 0.0), (3.0, 1.0)):
            mine = kw.rms_norm(x, (1031,), w, eps, offset=offset)
            torch.testing.assert_close(mine, F.rms_norm(x, (1031,), w + offset, eps))
    assert binds == ["rms_norm"]


# offset


@rungs
def test_an_offset_of_one_is_gemmas(rung):
    """Gemma's norm: computed in float32, including (1 + weight), and rounded once."""
    x, w = randn(4, 64, dtype=torch.bfloat16), randn(64, dtype=torch.bfloat16, seed=1)
    gemma = F.rms_norm(x.float(), (64,), 1.0 + w.float(), 1e-6).bfloat16()
    with use(rung):
        y = kw.rms_norm(x, (64,), w, 1e-6, offset=1.0)
        fused, h = kw.add_rms_norm(torch.zeros_like(x), x, (64,), w, 1e-6, offset=1.0)
    torch.testing.assert_close(y, gemma, rtol=2**-8, atol=0)
    assert torch.equal(fused, y)
    assert torch.equal(h, x)


@rungs
def test_the_offset_shifts_the_gradient_of_x_only(rung):
    x, w = leaf(6, 40), leaf(40, seed=1)
    with use(rung):
        mine = torch.autograd.grad(kw.rms_norm(x, (40,), w, offset=1.0).square().sum(), (x, w))
    agree(mine, torch.autograd.grad(F.rms_norm(x, (40,), w + 1.0).square().sum(), (x, w)))


# with a residual


@rungs
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_fused_pair_is_the_unfused_pair_to_the_bit(rung, dtype):
    x, r = randn(7, 96, dtype=dtype), randn(7, 96, dtype=dtype, seed=1)
    w, b = randn(96, dtype=dtype, seed=2), randn(96, dtype=dtype, seed=3)
    with use(rung):
        y, h = kw.add_layer_norm(x, r, (96,), w, b)
        z, k = kw.add_rms_norm(x, r, (96,), w)
        assert torch.equal(h, x + r)
        assert torch.equal(k, x + r)
        assert torch.equal(y, kw.layer_norm(x + r, (96,), w, b))
        assert torch.equal(z, kw.rms_norm(x + r, (96,), w))


@rungs
@pytest.mark.parametrize("used", ["y", "h", "both"])
@pytest.mark.parametrize("name", ["add_layer_norm", "add_rms_norm"])
def test_either_result_may_receive_no_gradient(rung, used, name):
    x, r, w = leaf(6, 40), leaf(6, 40, seed=1), leaf(40, seed=2)
    norm = F.layer_norm if "layer" in name else F.rms_norm

    def loss(y, h):
        return (y.sin().sum() if used != "h" else 0) + (h.cos().sum() if used != "y" else 0)

    with use(rung):
        mine = loss(*getattr(kw, name)(x, r, (40,), w))
        got = torch.autograd.grad(mine, (x, r, w))
    want = torch.autograd.grad(
        loss(*torch_add(norm, x, r, (40,), w)), (x, r, w), materialize_grads=True
    )
    agree(got, want)


def test_a_gradient_that_does_not_arrive_is_none(monkeypatch):
    """gh is None instead of a tensor of zeros, which the kernel would have to read."""
    seen = []
    launcher = OpenCalls.launcher

    def spy(self, args, *rest):
        seen.append((self._ladder.name, args.get("gh")))
        return launcher(self, args, *rest)

    monkeypatch.setattr(OpenCalls, "launcher", spy)
    x = leaf(3, 37)
    kw.add_rms_norm(x, x, (37,))[0].sum().backward()
    assert seen[1] == ("add_rms_norm.backward", None)


def test_x_and_the_residual_share_one_gradient():
    x, r = leaf(3, 41), leaf(3, 41, seed=1)
    y, h = kw.add_rms_norm(x, r, (41,))
    gx, gr = torch.autograd.grad((y.sin() + h).sum(), (x, r))
    assert gx.data_ptr() == gr.data_ptr()
    y, h = kw.add_rms_norm(x, r, (41,))
    (y.sin() + h).sum().backward()
    x.grad.zero_()  # leaves do not share a gradient
    assert torch.equal(r.grad, gr)


def test_dtypes_of_the_residual_stream():
    x, r = randn(3, 16, dtype=torch.bfloat16), randn(3, 16, seed=1)
    y, h = kw.add_layer_norm(x, r, (16,))
    assert y.dtype == h.dtype == torch.float32
    torch.testing.assert_close(h, x + r)
    assert kw.add_layer_norm(x, x, (16,))[0].dtype == torch.bfloat16


# PyTorch's checks of operators


@gpu
@pytest.mark.parametrize("name", NAMES)
def test_autocast_is_torchs(name):
    x, w = randn(4, 64, dtype=torch.bfloat16), randn(64, seed=1)
    norm = F.layer_norm if "layer" in name else F.rms_norm
    with torch.autocast("cuda", dtype=torch.bfloat16):
        if name.startswith("add_"):
            y, h = getattr(kw, name)(x, x, (64,), w)
            assert y.dtype == h.dtype == torch.bfloat16
        else:
            mine, theirs = getattr(kw, name)(x, (64,), w), norm(x, (64,), w)
            assert mine.dtype == theirs.dtype
            torch.testing.assert_close(mine, theirs)


def test_gradients_of_each_sample():
    x, w = randn(3, 5, 16), randn(16, seed=1)

    def loss(w, x):
        y, h = kw.add_rms_norm(x, x, (16,), w)
        return (kw.rms_norm(x, (16,), w) * kw.layer_norm(x, (16,), w, w)).sum() + (y * h).sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x)
    torch.testing.assert_close(each, torch.stack([torch.func.grad(loss)(w, s) for s in x]))


@pytest.mark.parametrize("used", ["y", "h", "both"])
def test_compiles_whole(used):
    x, r, w, b = leaf(4, 32), leaf(4, 32, seed=1), leaf(32, seed=2), leaf(32, seed=3)

    def run(x, r, w, b):
        y, h = kw.add_layer_norm(x, r, (32,), w, b)
        z, k = kw.add_rms_norm(x, y, (32,), w)
        more = kw.layer_norm(x, (32,)) + kw.rms_norm(x, (32,), w)
        return (z + more if used != "h" else 0) + (h * k if used != "y" else 0)

    eager, compiled = run(x, r, w, b), fullgraph(run)(x, r, w, b)
    assert torch.equal(eager, compiled)
    agree(*(torch.autograd.grad(t.square().sum(), (x, r, w, b)) for t in (eager, compiled)))


def test_refuse_by_name():
    x = randn(2, 8)
    for norm in (kw.rms_norm, kw.layer_norm):
        with pytest.raises(ValueError, match=r"normalized_shape: \(7,\) is not the end"):
            norm(x, (7,))
        with pytest.raises(ValueError, match="normalized_shape: must name"):
            norm(x, ())
        with pytest.raises(ValueError, match=r"weight: has shape \(7,\), should be \(8,\)"):
            norm(x, (8,), randn(7))
        with pytest.raises(TypeError, match=r"input: .* torch\.int32"):
            norm(x.int(), (8,))
    with pytest.raises(ValueError, match=r"bias: has shape \(7,\), should be \(8,\)"):
        kw.layer_norm(x, (8,), None, randn(7))
    for norm in (kw.add_rms_norm, kw.add_layer_norm):
        with pytest.raises(ValueError, match=r"residual: has shape \(8,\), should be \(2, 8\)"):
            norm(x, x[0], (8,))
        with pytest.raises(TypeError, match=r"residual: .* torch\.int32"):
            norm(x, x.int(), (8,))


# how rows are laid out


@pytest.mark.parametrize("cols", [1, 31, 256, 768, 1000, 4096, 8192, 16384, 65536, 131072, 262144])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_rung_takes_every_row_up_to_262144(name, cols, dtype):
    """Each of its configs fits the row into a multiprocessor's resources."""
    rows = TensorSpec.contiguous((512, cols), dtype)
    columns = TensorSpec.contiguous((cols,), dtype)
    statistic = TensorSpec.contiguous((512, 1), torch.float32)
    kinds = {"weight": columns, "bias": columns, "mean": statistic, "rstd": statistic}
    for lad in (ladder(name), ladder(f"{name}.backward")):
        specs = {
            a.name: kinds.get(a.name, rows) if a.is_tensor else a.default or 0.0
            for a in lad.operator.args
        }
        if cols == 262144 and dtype == torch.float32 and specs.get("gh"):
            continue  # three rows and a weight of 1 MiB are more than 16 multiprocessors share
        taken = [r for r in lad.rungs if r.backend == "cuda" and not r.supports(H200, **specs)]
        assert taken, lad.name
        assert lad.rung(lad.order(H200, **specs)[0]) in taken
        for rung in taken:
            assert rung.heuristic is None or rung.heuristic(H200, **specs) in rung.configs
            for config in rung.configs:
                for launch in plan_of(lad, rung, specs, config=config).launches:
                    assert launch.shared <= H200.shared_per_block - 1024
                    assert launch.grid[0] % launch.kernel.cluster == 0


def test_parts_of_a_parameters_gradient_are_few():
    """The second step reads less than a twentieth of the bytes that the first step moves."""
    for rows, cols in ((32768, 1024), (16384, 4096), (8192, 8192), (4096, 65536), (2048, 131072)):
        spec = TensorSpec.contiguous((rows, cols), torch.bfloat16)
        weight = TensorSpec.contiguous((cols,), torch.bfloat16)
        statistic = TensorSpec.contiguous((rows, 1), torch.float32)
        specs = {"gy": spec, "x": spec, "weight": weight, "bias": weight}
        specs |= {"mean": statistic, "rstd": statistic}
        lad = ladder("layer_norm.backward")
        plan = plan_of(lad, lad.rung(lad.order(H200, **specs)[0]), specs)
        parts = sum(s.spec.nbytes for s in plan.scratch.values())
        assert parts < 3 * spec.nbytes / 20


def test_short_rows_use_no_clusters_and_long_ones_few_columns_per_block():
    def given(cols):
        rows = TensorSpec.contiguous((4096, cols), torch.bfloat16)
        weight = TensorSpec.contiguous((cols,), torch.bfloat16)
        rstd = TensorSpec.contiguous((4096, 1), torch.float32)
        return {"gy": rows, "x": rows, "weight": weight, "rstd": rstd, "offset": 0.0}

    assert "too short for a cluster" in heuristics.fits_cluster_backward(H200, **given(2047))
    assert heuristics.fits_cluster_backward(H200, **given(2048)) is None
    for cols, blocks in ((2048, 2), (16384, 2), (32768, 4), (65536, 8), (131072, 16), (262144, 16)):
        config = heuristics.choose_cluster_backward(H200, **given(cols))
        walk = tiling.cluster_walk(H200, tiling.BackwardCall(given(cols)), config)
        assert config["blocks"] == walk.shape.blocks == blocks
        assert walk.rows == (6 if cols < 262144 else 2)


@pytest.mark.parametrize("cols", [2048, 2052])
def test_a_forwards_clusters_walk_over_many_rows(cols, monkeypatch):
    """Each mailbox and each slot of shared memory is filled many times."""
    monkeypatch.setattr(cuda, "clusters_of", lambda gpu, blocks: 1)
    lad, config = ladder("layer_norm"), next(c for c in heuristics.CLUSTER_CONFIGS if "items" in c)
    args = {"x": randn(100, cols), "weight": randn(cols, seed=1), "bias": randn(cols, seed=2)}
    args["eps"] = 1e-5
    found = launcher(lad, args, "cuda_cluster", config)(*args.values())
    agree(found, launcher(lad, args, "native")(*args.values()))


def test_clusters_that_run_at_once():
    assert [tiling.clusters_of(H200, n) for n in (2, 4, 8, 16)] == [66, 30, 15, 7]
    assert heuristics.CLUSTER_CONFIGS_BACKWARD[0]["blocks"] == 2
