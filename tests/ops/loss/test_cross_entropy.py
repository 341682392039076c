"""cross_entropy: its public functions compared with PyTorch's, and their own behaviour."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200, TensorSpec
from kernelwright.dispatch import ladder, plan_of
from kernelwright.ops.loss import _terms
from kernelwright.ops.loss.cross_entropy import heuristics
from kernelwright.ops.loss.cross_entropy.tiling import REGISTERS
from kernelwright.workbench.verify.candidate import all_results, map_tensors
from support.publics import DEVICE, gpu, randn

RUNGS = ("native", "triton_online", "cuda_online")
TOGETHER = ("native", "triton_online", "cuda_block")
FORMS = (
    {},
    {"reduction": "sum"},
    {"reduction": "none", "label_smoothing": 0.2},
    {"label_smoothing": 0.2, "weight": True},
    {"ignore_index": 2},
)
forms = pytest.mark.parametrize("form", FORMS, ids=lambda f: "-".join(f) or "plain")


def classes(n, *shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(n, shape, generator=generator).to(DEVICE)


def options(form, n):
    return {**form, "weight": randn(n, seed=5).abs() if form.get("weight") else None}


def with_gradient(fn, x, *args, **kwargs):
    x = x.detach().clone().requires_grad_()
    y = fn(x, *args, **kwargs)
    return y, *torch.autograd.grad(y, x, randn(*y.shape, dtype=y.dtype, seed=9))


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("shape", [(9,), (5, 9), (4, 9, 3), (2, 9, 3, 2)], ids=str)
@forms
def test_means_what_torch_means(rung, shape, form):
    x, more = randn(*shape), options(form, 9)
    target = classes(9, *(shape[:1] + shape[2:] if len(shape) > 1 else ()))
    with kw.use(cross_entropy=rung):
        mine = with_gradient(kw.cross_entropy, x, target, **more)
    torch.testing.assert_close(mine, with_gradient(F.cross_entropy, x, target, **more))


@pytest.mark.parametrize("rung", TOGETHER)
@forms
def test_loss_and_gradient_at_once(rung, form):
    x, target, more = randn(6, 9), classes(9, 6), options(form, 9)
    want = F.cross_entropy(leaf := x.clone().requires_grad_(), target, **more)
    (gradient,) = torch.autograd.grad(want.sum(), leaf)
    with kw.use(cross_entropy_with_grad=rung):
        mine = kw.cross_entropy_with_grad(x, target, **more)
    torch.testing.assert_close(mine, (want.detach(), gradient))


def test_loss_and_gradient_of_images():
    x, target = randn(2, 9, 3, 4), classes(9, 2, 3, 4)
    loss, gradient = kw.cross_entropy_with_grad(x, target)
    _, want = with_gradient(
        lambda t: F.cross_entropy(t, target) * 0 + F.cross_entropy(t, target), x
    )
    torch.testing.assert_close(loss, F.cross_entropy(x, target))
    assert gradient.shape == want.shape
    torch.testing.assert_close(gradient * randn(seed=9), want)


@pytest.mark.parametrize("rung", TOGETHER)
@pytest.mark.parametrize("each", [False, True])
def test_in_place_of_the_logits(rung, each):
    wide = randn(6, 12)
    x, target = wide[:, :9], classes(9, 6)
    scale = randn(6, seed=4) if each else torch.tensor(0.25, device=DEVICE)
    want, gradient = kw.cross_entropy_with_grad(x.clone(), target, reduction="none")
    untouched, version = wide[:, 9:].clone(), x._version
    with kw.use(cross_entropy_with_grad_=rung):
        loss = kw.cross_entropy_with_grad_(x, target, scale=scale)
    torch.testing.assert_close(loss, want)
    torch.testing.assert_close(x, gradient * scale.reshape(-1, 1))
    assert torch.equal(wide[:, 9:], untouched)
    assert x._version > version


def test_z_loss_and_softcap_by_their_definitions():
    x, target = randn(5, 9, dtype=torch.float64), classes(9, 5)

    def formula(x):
        z = 3.0 * torch.tanh(x / 3.0)
        return (F.cross_entropy(z, target, reduction="none") + 0.1 * z.logsumexp(-1) ** 2).mean()

    mine = with_gradient(kw.cross_entropy, x, target, z_loss=0.1, softcap=3.0)
    torch.testing.assert_close(mine, with_gradient(formula, x))
    leaf = x.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda t: kw.cross_entropy(t, target, z_loss=0.1, softcap=3.0, label_smoothing=0.1), leaf
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_integer_targets(dtype):
    x, target = randn(5, 9), classes(9, 5)
    assert torch.equal(kw.cross_entropy(x, target.to(dtype)), kw.cross_entropy(x, target))


@pytest.mark.parametrize("rung", RUNGS)
def test_nothing_but_ignored_targets(rung):
    x, target = randn(3, 9), torch.full((3,), -100, device=DEVICE)
    with kw.use(cross_entropy=rung):
        loss, gradient = with_gradient(kw.cross_entropy, x, target)
    assert loss.isnan()
    assert not gradient.any()
    assert kw.cross_entropy(x, target, reduction="sum") == 0


@pytest.mark.parametrize("rung", RUNGS)
def test_ignored_tokens_may_hold_anything(rung):
    x, target = randn(4, 9), classes(9, 4)
    x[1], target[1] = float("nan"), -100
    with kw.use(cross_entropy=rung):
        loss, gradient = with_gradient(kw.cross_entropy, x, target)
    torch.testing.assert_close(loss, F.cross_entropy(x[[0, 2, 3]], target[[0, 2, 3]]))
    assert not gradient[1].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dtypes_are_torchs(dtype):
    x, target = randn(4, 9, dtype=dtype).requires_grad_(), classes(9, 4)
    assert kw.cross_entropy(x, target).dtype == dtype
    assert kw.cross_entropy(x, target, dtype=torch.float32).dtype == torch.float32
    with torch.autocast(DEVICE):
        mine, theirs = kw.cross_entropy(x, target), F.cross_entropy(x, target)
        assert kw.cross_entropy_with_grad(x, target)[0].dtype == theirs.dtype
    assert mine.dtype == theirs.dtype == torch.float32
    # under autocast PyTorch's own may be rounded to 16 bits on its way
    torch.testing.assert_close(mine, F.cross_entropy(x.double(), target).float())
    (gradient,) = torch.autograd.grad(mine, x)
    assert gradient.dtype == dtype


def test_compiles_whole():
    x, target = randn(5, 9).requires_grad_(), classes(9, 5)

    def fn(x, target):
        return kw.cross_entropy(x * 2, target, label_smoothing=0.1)

    torch.compiler.reset()
    compiled = torch.compile(fn, fullgraph=True, backend="aot_eager")(x, target)
    torch.testing.assert_close(compiled, fn(x, target))
    gradients = [torch.autograd.grad(y, x)[0] for y in (compiled, fn(x, target))]
    torch.testing.assert_close(*gradients)


def test_gradients_of_each_sample():
    x, target = randn(3, 5, 9), classes(9, 3, 5)
    each = torch.func.vmap(torch.func.grad(kw.cross_entropy))(x, target)
    want = torch.stack([torch.func.grad(F.cross_entropy)(a, b) for a, b in zip(x, target)])  # noqa: B905
    torch.testing.assert_close(each, want)


@pytest.mark.parametrize("target", [9, -1, -101])
@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU asserts, see below")
def test_a_target_out_of_range_is_an_index_error(target):
    x, target = randn(3, 9), torch.tensor([0, target, 1])
    for fn in (kw.cross_entropy, kw.cross_entropy_with_grad):
        with pytest.raises(IndexError, match=f"target: {target[1]} is out of range for 9 classes"):
            fn(x, target)
    with pytest.raises(IndexError, match="target: "):
        kw.cross_entropy_with_grad_(x, target, scale=torch.tensor(1.0))


@pytest.mark.parametrize("rung", ["triton_online", "cuda_online"])
@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU asserts, see below")
def test_rungs_without_a_gpu_stop_at_a_target_out_of_range(rung):
    with kw.use(cross_entropy=rung), pytest.raises(Exception, match=r"target: .*out of range"):
        kw.cross_entropy(randn(3, 9), torch.tensor([0, 9, 1]))


FAILS = """
import torch, kernelwright as kw
x, t = torch.randn(3, 9, device="cuda"), torch.tensor([0, 9, 1], device="cuda")
with kw.use({named!r}):
    torch.cuda.synchronize()
    print("before", flush=True)
    kw.{call}
    torch.cuda.synchronize()
    print("after", flush=True)
"""


@gpu
@pytest.mark.parametrize(
    ("call", "operator", "rung"),
    [
        *(("cross_entropy(x, t)", "cross_entropy", r) for r in RUNGS),
        *(
            ("cross_entropy_with_grad(x, t)", "cross_entropy_with_grad", r)
            for r in (*TOGETHER, "cuda_cluster")
        ),
    ],
)
def test_on_a_gpu_the_launch_fails_as_torchs_does(call, operator, rung):
    source = FAILS.format(named={operator: rung}, call=call)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stdout.split() == ["before"]
    assert "CUDA error" in done.stderr or "Assertion" in done.stderr


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x, t: kw.cross_entropy(x, t[:2]), ValueError, r"target: has shape \(2,\)"),
        (lambda x, t: kw.cross_entropy(x, x[:2]), ValueError, "target: probabilities have shape"),
        (lambda x, t: kw.cross_entropy(x, t.bool()), TypeError, "target: must be int64"),
        (lambda x, t: kw.cross_entropy(t, t), TypeError, "input: must be floating point"),
        (lambda x, t: kw.cross_entropy(x[0, 0], t), ValueError, "input: must have a dimension"),
        (lambda x, t: kw.cross_entropy(x, t, x[0, :2]), ValueError, r"weight: has shape \(2,\)"),
        (
            lambda x, t: kw.cross_entropy(x, t, x[0].requires_grad_()),
            ValueError,
            "weight: is not differentiable",
        ),
        (lambda x, t: kw.cross_entropy(x, t, reduction="avg"), ValueError, "reduction: .*'avg'"),
        (lambda x, t: kw.cross_entropy(x, t, label_smoothing=2), ValueError, "label_smoothing: "),
        (lambda x, t: kw.cross_entropy(x, t, softcap=0.0), ValueError, "softcap: must be positive"),
        (
            lambda x, t: kw.cross_entropy_with_grad_(x, t, scale=x[0]),
            ValueError,
            r"scale: has shape \(9,\)",
        ),
        (
            lambda x, t: kw.cross_entropy_with_grad_(x[None].mT, t[None], scale=x[0, 0]),
            ValueError,
            "input: must have 1 or 2 dimensions",
        ),
    ],
)
def test_refuses_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call(randn(3, 9), classes(9, 3))


SHAPES = ((8192, 50304), (8192, 128256), (4096, 262144), (32768, 32000), (7, 33), (3, 50257))
KEPT = ("cross_entropy_with_grad", "cross_entropy_with_grad_")


def specs(rows, cols, dtype, stride=None, align=16):
    x = TensorSpec((rows, cols), (stride or cols, 1), dtype, align)
    number = TensorSpec.contiguous((), torch.float32)
    form = {"ignore_index": -100, "label_smoothing": 0.0, "z_loss": 0.0, "softcap": 0.0}
    call = {"x": x, "target": TensorSpec.contiguous((rows,), torch.int64), "weight": None}
    flags = {**form, "smooth": False, "cap": False}
    return {
        "cross_entropy_with_grad": {**call, "reduction": "mean", **flags, "to": None},
        "cross_entropy_with_grad_": {**call, "g": number, **flags},
    }


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("rung", ["cuda_block", "cuda_cluster"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_config_holds_every_row_that_fits(name, rung, dtype):
    lad, held = ladder(name), 0
    rung = lad.rung(rung)
    for rows, cols in SHAPES:
        for more in ({}, {"stride": cols + 1}, {"align": dtype.itemsize}):
            call = specs(rows, cols, dtype, **more)[name]
            if rung.supports(H200, **call):
                continue
            held = max(held, cols)
            assert rung.heuristic(H200, **call) in rung.configs
            for config in rung.configs:
                steps = plan_of(lad, rung, call, config=config).launches
                step = next(s for s in steps if "grad" in s.kernel.name)
                numbers = step.kernel.name.rsplit(">, ")[1].rstrip(">").split(", ")
                vec, vectors, threads, *blocks = map(int, numbers)
                blocks = blocks[0] if blocks else 1
                assert vec * vectors * threads * blocks >= cols
                words = vectors * max(1, vec * dtype.itemsize // 4)
                assert words <= (REGISTERS if threads <= 512 else REGISTERS // 2)
                assert (step.block[0], step.kernel.cluster) == (threads, blocks)
    assert held >= {"cuda_block": 32000, "cuda_cluster": 262144}[rung.name]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_launches_are_few(dtype):
    """A loss takes two, its gradient one, both together three, or one if in place."""
    for rows, cols in SHAPES[:4]:
        call = specs(rows, cols, dtype)
        for name, count in zip(KEPT, (3, 1), strict=True):
            lad = ladder(name)
            order = map(lad.rung, heuristics.order_with_grad(H200, **call[name]))
            first = next(r for r in order if r.supports(H200, **call[name]) is None)
            assert first.backend == "cuda"
            assert len(plan_of(lad, first, call[name]).launches) == count
        lad = ladder("cross_entropy")
        args = call["cross_entropy_with_grad"]
        assert len(plan_of(lad, lad.rung("cuda_online"), args).launches) == 2


@pytest.mark.parametrize(
    "name", ["cross_entropy.backward", "cross_entropy_with_grad_", "linear_cross_entropy"]
)
def test_references_by_pieces_are_those_of_the_whole(name, monkeypatch):
    """A float64 copy of all logits may be eight gibibytes, and intermediates are several. The two
    may differ in the order of a row's sums: by a rounding of the largest value for each column."""
    op = ladder(name).operator
    each = next(c for c in op.cases if c.param("label_smoothing") and c.dtype == torch.float32)
    found = []
    for piece in (_terms.PIECE, 1):
        monkeypatch.setattr(_terms, "PIECE", piece)
        args = op.inputs(each, "cpu")
        exact = map_tensors(args, lambda t: t.double() if t.is_floating_point() else t.clone())
        results = all_results(op, exact, op.reference(**exact))
        found.append((*results, *op.noise(**args)))
    for whole, pieces in zip(*found, strict=True):
        rounding = torch.finfo(torch.float64).eps * whole.abs().max().item()
        torch.testing.assert_close(pieces, whole, rtol=0, atol=each.shape[-1] * rounding)
