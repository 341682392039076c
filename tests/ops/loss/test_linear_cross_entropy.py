"""linear_cross_entropy compared with PyTorch's linear and loss; its memory; its backward."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import kernelwright as kw
from kernelwright.ops.loss.linear_cross_entropy import chunked, heuristics, scale_unless_one_
from support.publics import DEVICE, leaf, randn

RUNGS = ("native", "chunked")
EVERYTHING = {"linear_bias": True, "weight": True, "label_smoothing": 0.1}
rungs = pytest.mark.parametrize("rung", RUNGS)


def call(tokens=9, hidden=12, classes=7, dtype=torch.float32, **options):
    """(input, weight, bias, target, options); every third target is ignored."""
    x, w = randn(tokens, hidden, dtype=dtype), randn(classes, hidden, dtype=dtype, seed=1)
    bias = randn(classes, dtype=dtype, seed=2) if options.pop("linear_bias", False) else None
    if options.get("weight"):
        options["weight"] = randn(classes, seed=3).abs().to(dtype)
    target = torch.arange(tokens, device=DEVICE) % classes
    target[::3] = -100
    leaves = [t.requires_grad_() for t in (x, w, bias) if t is not None]
    return leaves, target, options


def ours(leaves, target, options):
    x, w, *bias = leaves
    return kw.linear_cross_entropy(x, w, target, linear_bias=bias[0] if bias else None, **options)


def theirs(leaves, target, options):
    x, w, *bias = leaves
    return F.cross_entropy(F.linear(x, w, *bias), target, **options)


def compare(leaves, target, options, **tolerance):
    results = []
    for fn in (ours, theirs):
        loss = fn(leaves, target, options)
        grads = torch.autograd.grad(loss, leaves, randn(*loss.shape, dtype=loss.dtype, seed=8))
        results.append((loss.detach(), *grads))
    torch.testing.assert_close(*results, **tolerance)


@pytest.fixture
def short(monkeypatch):
    """Chunks of four tokens."""
    monkeypatch.setattr(heuristics, "TOKENS", 4)
    monkeypatch.setattr(heuristics, "TILE", 2)


@rungs
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("more", [{}, EVERYTHING], ids=["plain", "everything"])
def test_means_what_torch_means(rung, reduction, more, short):
    with kw.use(linear_cross_entropy=rung):
        compare(*call(reduction=reduction, **more))


@rungs
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_dtypes(rung, dtype, short):
    tolerance = {} if dtype == torch.float64 else {"rtol": 0.03, "atol": 0.02}
    with kw.use(linear_cross_entropy=rung):
        compare(*call(dtype=dtype), **tolerance)


@rungs
def test_a_loss_of_16_bit_logits_may_be_wider(rung, short):
    leaves, target, options = call(dtype=torch.bfloat16)
    with kw.use(linear_cross_entropy=rung):
        wide = ours(leaves, target, options | {"dtype": torch.float32})
        narrow = ours(leaves, target, options)
    assert wide.dtype == torch.float32 and wide != wide.bfloat16()
    assert torch.equal(wide.bfloat16(), narrow)


@rungs
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_gives_the_gradient_that_is_wanted(rung, wanted, short):
    leaves, target, options = call(**EVERYTHING)
    for i, t in enumerate(leaves):
        t.requires_grad_(i == wanted)
    with kw.use(linear_cross_entropy=rung):
        mine = torch.autograd.grad(ours(leaves, target, options), leaves[wanted])
    torch.testing.assert_close(
        mine, torch.autograd.grad(theirs(leaves, target, options), leaves[wanted])
    )


@rungs
def test_without_gradients_nothing_is_kept_or_computed(rung, short, monkeypatch):
    leaves, target, options = call()
    want = theirs(leaves, target, options)
    monkeypatch.setattr(chunked, "cross_entropy_with_grad_", None)
    with torch.no_grad(), kw.use(linear_cross_entropy=rung):
        loss = ours(leaves, target, options)
    torch.testing.assert_close(loss, want.detach())
    assert not loss.requires_grad


@rungs
def test_any_leading_shape(rung):
    leaves, target, _ = call(12)
    x, w = leaves
    with kw.use(linear_cross_entropy=rung):
        flat = kw.linear_cross_entropy(x, w, target, reduction="none")
        cube = kw.linear_cross_entropy(
            x.view(2, 3, 2, 12), w, target.view(2, 3, 2), reduction="none"
        )
        one = kw.linear_cross_entropy(x[1], w, target[1])
    assert torch.equal(cube, flat.view(2, 3, 2))
    torch.testing.assert_close(one, flat[1])


def test_autocast_runs_the_product_in_its_dtype():
    leaves, target, options = call()
    with torch.autocast(DEVICE, torch.bfloat16):
        mine, want = ours(leaves, target, options), theirs(leaves, target, options)
    assert mine.dtype == want.dtype == torch.float32
    torch.testing.assert_close(mine, want, rtol=1e-2, atol=1e-2)
    grads = torch.autograd.grad(mine, leaves), torch.autograd.grad(want, leaves)
    assert [g.dtype for g in grads[0]] == [torch.float32] * 2
    torch.testing.assert_close(*grads, rtol=0.03, atol=0.02)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_retained_graph_gives_the_same_gradients_again(reduction):
    leaves, target, options = call(reduction=reduction)
    loss = ours(leaves, target, options)
    g = randn(*loss.shape, seed=5)
    first = torch.autograd.grad(loss, leaves, g, retain_graph=True)
    kept = [t.clone() for t in first]
    again = torch.autograd.grad(loss, leaves, 2 * g, retain_graph=True)
    last = torch.autograd.grad(loss, leaves, g)
    torch.testing.assert_close(list(first), kept)
    torch.testing.assert_close(again, tuple(2 * t for t in kept))
    torch.testing.assert_close(list(last), kept)


def test_a_backward_allocates_nothing_and_returns_the_forwards_gradients(monkeypatch):
    """It allocates no zeros for results without a gradient, and copies nothing: each would be as
    large as a gradient, the largest tensor of training."""
    filled, home = [], kw.linear_cross_entropy.__globals__
    losses_of = home["_losses"]

    def remembered(*args):
        losses, *gradients = losses_of(*args)
        filled.extend(t.data_ptr() for t in gradients)
        return losses, *gradients

    monkeypatch.setitem(home, "_losses", remembered)
    leaves, target, options = call(64, 32, 48, linear_bias=True)
    loss = ours(leaves, target, options)
    with Allocations() as found:
        loss.backward()
    assert max(found.sizes, default=0) <= loss.nbytes
    assert [t.grad.data_ptr() for t in leaves] == filled


class Allocations(TorchDispatchMode):
    """The bytes of each storage that an operator allocates."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs))
                 if isinstance(t, torch.Tensor)}  # fmt: skip
        self.sizes += [
            t.untyped_storage().nbytes()
            for t in tree_leaves(out)
            if isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() not in given
        ]
        return out


def test_float16_gradients_survive_a_small_factor():
    """1 / N of a gradient underflows in float16 unless a GradScaler's factor comes first."""
    leaves, target, options = call(4096, 8, 64, torch.float16)
    scale = torch.tensor(2.0**15, dtype=torch.float16, device=DEVICE)
    mine = torch.autograd.grad(ours(leaves, target, options), leaves, scale)
    exact = [t.detach().double().requires_grad_() for t in leaves]
    want = torch.autograd.grad(theirs(exact, target, options), exact, scale.double())
    for a, b in zip(mine, want, strict=True):
        assert (a.double() - b).norm() < 5e-3 * b.norm()


def test_gradcheck_with_every_term(short):
    leaves, target, options = call(5, 4, 6, torch.float64, linear_bias=True, weight=True)
    options.update(z_loss=0.1, softcap=2.0, label_smoothing=0.1)

    def fn(*leaves):
        return ours(leaves, target, options)

    with kw.use(linear_cross_entropy="chunked"):
        assert torch.autograd.gradcheck(fn, leaves)


def test_compiles_whole():
    leaves, target, options = call()

    def fn(x, w):
        return ours((x * 1.5, w), target, options)

    torch.compiler.reset()
    compiled = torch.compile(fn, fullgraph=True, backend="aot_eager")(*leaves)
    torch.testing.assert_close(compiled, fn(*leaves))
    gradients = [torch.autograd.grad(y, leaves) for y in (compiled, fn(*leaves))]
    torch.testing.assert_close(*gradients)


def test_scaling_changes_nothing_where_the_factor_is_one():
    x = randn(3, 5)
    before, version = x.clone(), x._version
    scale_unless_one_(x, torch.tensor(1.0, device=DEVICE))
    assert torch.equal(x, before)
    scale_unless_one_(x, torch.tensor(0.5, device=DEVICE))
    assert torch.equal(x, before / 2)
    assert x._version > version


@pytest.mark.parametrize(
    ("tokens", "hidden", "classes", "itemsize", "want", "limit"),
    [
        (8192, 4096, 128256, 2, 2048, 600),
        (16384, 768, 50304, 2, 2816, 300),
        (8192, 2048, 262144, 2, 1024, 600),
        (8192, 4096, 128256, 4, 2048, 1100),
        (8192, 64, 2**20, 4, 256, 1100),  # a tile, whatever its size
    ],
)
def test_a_chunk_fits_its_budget(tokens, hidden, classes, itemsize, want, limit):
    step = heuristics.chunk(tokens, hidden, classes, itemsize)
    assert step == want
    assert step * classes * itemsize <= limit << 20
    assert -(-tokens // step) * step < tokens + heuristics.TILE * -(-tokens // step)


@pytest.mark.parametrize("tokens", [1, 255, 257, 2048, 2049, 5000, 9000])
def test_chunks_of_any_number_of_tokens(tokens):
    step = heuristics.chunk(tokens, 64, 1000, 4)
    assert 1 <= step <= min(tokens, heuristics.TOKENS)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"linear_weight": randn(7, 5)}, ValueError, r"linear_weight: has shape \(7, 5\)"),
        ({"linear_weight": randn(7, 12).double()}, TypeError, "linear_weight: is torch.float64"),
        ({"linear_bias": randn(3)}, ValueError, r"linear_bias: has shape \(3,\)"),
        ({"target": torch.zeros(3, dtype=torch.long)}, ValueError, r"target: has shape \(3,\)"),
        ({"target": randn(9)}, ValueError, "target: probabilities have shape"),
        ({"input": torch.zeros(9, 12, dtype=torch.long)}, TypeError, "input: must be floating"),
        ({"reduction": "avg"}, ValueError, "reduction: "),
    ],
)
def test_refuses_by_name(change, error, words):
    args = {"input": randn(9, 12), "linear_weight": randn(7, 12)}
    args["target"] = torch.zeros(9, dtype=torch.long, device=DEVICE)
    with pytest.raises(error, match=words):
        kw.linear_cross_entropy(**{**args, **change})


@rungs
@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU asserts")
def test_a_target_out_of_range_is_an_index_error(rung):
    leaves, target, options = call()
    target[4] = 7
    with kw.use(linear_cross_entropy=rung), pytest.raises(IndexError, match="target: 7 is out"):
        ours(leaves, target, options)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_memory_beyond_inputs_and_gradients():
    x, w = randn(4096, 256, dtype=torch.bfloat16), randn(65536, 256, dtype=torch.bfloat16, seed=1)
    target = torch.arange(4096, device=DEVICE)
    for t in (x, w):
        t.requires_grad_()
    beyond = []
    for _ in range(2):  # the first call allocates cuBLAS's workspace
        x.grad = w.grad = None
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        kw.linear_cross_entropy(x, w, target).backward()
        peak = torch.cuda.max_memory_allocated() - before
        beyond.append(peak - x.nbytes - w.nbytes)
    step = heuristics.chunk(4096, 256, 65536, 2)
    assert step * 65536 * 2 <= beyond[1] < step * 65536 * 2 + (16 << 20)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_loss_may_be_changed_in_place(reduction):
    """As in gradient accumulation (loss /= 4) and auxiliary losses (loss += aux)."""
    x, w = leaf(6, 8), leaf(5, 8, seed=1)
    target = torch.arange(6, device=x.device) % 5
    loss = kw.linear_cross_entropy(x, w, target, reduction=reduction)
    loss /= 4
    loss += 1
    ours = torch.autograd.grad(loss.sum(), (x, w))
    theirs = F.cross_entropy(F.linear(x, w), target, reduction=reduction) / 4 + 1
    torch.testing.assert_close(ours, torch.autograd.grad(theirs.sum(), (x, w)))
