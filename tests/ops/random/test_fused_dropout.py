"""Tests of the fused dropouts: masks of bits, seeds, and the results of the operators' chain."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import kernelwright as kw
from kernelwright.dispatch import launcher, specs_of, unsupported
from kernelwright.ops.random.dropout.mask import pack, unpack
from support.publics import gpu, ladders_by_name, randn, with_gradients

CHAIN = "layer_norm_residual_dropout_gelu"
FUSED = ("bias_dropout_add", "bias_dropout_add_with_mask", "dropout_with_mask", CHAIN)
SHAPE = (5, 64)


def serving(name):
    """The rungs of a fused operator that run on this machine without seconds of compilation."""
    return [r.name for r in ladders_by_name()[name].rungs if r.backend != "inductor"]


def call(name, x, p=0.4, **rest):
    """Call the fused operator with x; the other arguments are generated."""
    other, row = 1 - x, torch.linspace(-1, 1, x.shape[-1], device=x.device, dtype=x.dtype)
    if name == "dropout_with_mask":
        return kw.dropout_with_mask(x, p, **rest)[0]
    if name == CHAIN:
        return kw.layer_norm_residual_dropout_gelu(x, other, row.shape, row, 1 - row, p, **rest)
    return kw.bias_dropout_add(x, row, other, p, keep_mask=name.endswith("mask"), **rest)


def seeded(fn, seed=7):
    torch.manual_seed(seed)
    return fn()


RUNGS = [(name, rung) for name in FUSED for rung in serving(name)]
rungs = pytest.mark.parametrize(("name", "rung"), RUNGS)
fused = pytest.mark.parametrize("name", FUSED)


def test_bits_are_packed_in_row_major_order():
    mask = torch.zeros(3, 33, dtype=torch.bool)
    mask[0, 0] = mask[0, 31] = mask[2, 32] = True
    words = pack(mask)
    assert words.dtype == torch.int32
    assert words.tolist() == [-(2**31) + 1, 0, 0, 4]
    assert torch.equal(unpack(words, mask.shape), mask)


@pytest.mark.parametrize("rung", serving("dropout_with_mask"))
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_a_mask_says_what_is_kept_and_is_that_of_the_seed(rung, p):
    x = 1 + randn(41, 64).abs()
    with kw.use(dropout_with_mask=rung):
        y, mask = seeded(lambda: kw.dropout_with_mask(x, p))
    kept = unpack(mask, x.shape)
    assert torch.equal(kept, y != 0)
    assert torch.equal(y, seeded(lambda: kw.dropout(x, p)))
    assert abs(kept.double().mean().item() - (1 - p)) < 5 * (p * (1 - p) / x.numel()) ** 0.5 + 1e-9


def test_an_odd_number_of_elements_leaves_the_last_bits_zero():
    _, mask = kw.dropout_with_mask(randn(3, 15), 0.01)
    assert mask.shape == (2,)
    assert int(mask[1]) >> 13 == 0


@pytest.mark.parametrize(("keep_mask", "kind", "size"), [(False, "int64", 1), (True, "int32", 64)])
def test_a_seed_is_saved_or_an_eighth_of_a_byte(keep_mask, kind, size):
    saved, x = [], randn(32, 64).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        kw.bias_dropout_add(x, randn(64), randn(32, 64), 0.5, keep_mask=keep_mask)
    drawn = [(t.dtype, t.numel()) for t in saved if not t.is_floating_point()]
    assert drawn == [(getattr(torch, kind), size)]
    assert all(t.numel() <= 64 for t in saved)


@pytest.mark.parametrize("p", [0.0, 2.0**-24, 0.3, 1 - 2.0**-24, 1.0])
def test_words_compared_as_they_are_drawn_keep_what_bits_keep(p):
    """At p = 1 the threshold is 2^32, which no word holds: factors are 0 then, and NaN stays."""
    ladder, x = ladders_by_name()["dropout"], randn(3, 4000)
    x[1, 7] = float("nan")
    args = {"x": x, "seed": torch.tensor([2**40 + 5], device=x.device), "p": p}
    reason = unsupported(ladder.rung("cuda_octets"), specs_of(args), x.device)
    if reason:
        pytest.skip(reason)
    got, want = (
        launcher(ladder, args, rung)(*args.values()) for rung in ("cuda_octets", "cuda_vec16")
    )
    assert got.isnan().sum() == 1
    assert torch.equal(got.nan_to_num(9.0), want.nan_to_num(9.0))


@rungs
def test_gradients_are_those_of_the_chain(name, rung):
    """Against PyTorch's operators with the mask that the seed defines."""
    x = randn(*SHAPE)

    def chain(x):
        other, row = 1 - x, torch.linspace(-1, 1, x.shape[-1], device=x.device)
        if name == "dropout_with_mask":
            return kw.dropout(x, 0.4)
        if name == CHAIN:
            s = F.layer_norm(x, row.shape, row, 1 - row) + other
            return F.gelu(kw.dropout(s, 0.4))
        return kw.dropout(x + row, 0.4) + other

    with kw.use(**{name: rung}):  # and in the backward, if it has that rung
        ours = seeded(lambda: with_gradients(lambda x: call(name, x), [x]))
    theirs = seeded(lambda: with_gradients(chain, [x]))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("keep_mask", [False, True])
def test_every_argument_has_its_gradient(keep_mask):
    def ours(x, b, r):
        return kw.bias_dropout_add(x, b, r, 0.4, keep_mask=keep_mask)

    tensors = [randn(*SHAPE), randn(64), randn(*SHAPE, seed=2)]
    got = seeded(lambda: with_gradients(ours, tensors))
    want = seeded(lambda: with_gradients(lambda x, b, r: kw.dropout(x + b, 0.4) + r, tensors))
    torch.testing.assert_close(got, want)


def test_every_argument_of_the_chain_has_its_gradient():
    def ours(x, r, w, b):
        return kw.layer_norm_residual_dropout_gelu(x, r, (2, 32), w, b, 0.4, approximate="tanh")

    def chain(x, r, w, b):
        d = kw.dropout(F.layer_norm(x, (2, 32), w, b) + r, 0.4)
        return F.gelu(d, approximate="tanh")

    shapes = (6, 2, 32), (6, 2, 32), (2, 32), (2, 32)
    tensors = [randn(*s, seed=i) for i, s in enumerate(shapes)]
    got = seeded(lambda: with_gradients(ours, tensors))
    torch.testing.assert_close(
        got, seeded(lambda: with_gradients(chain, tensors)), rtol=1e-5, atol=1e-5
    )


@rungs
def test_recomputed_it_is_the_same(name, rung):
    x = randn(*SHAPE).requires_grad_()

    def block(x):
        return call(name, torch.tanh(call(name, x)))

    with kw.use(**{name: rung}):  # and in the backward, if it has that rung
        found = [
            seeded(lambda run=run: torch.autograd.grad(run(x).sum(), x)[0])
            for run in (block, lambda x: checkpoint(block, x, use_reentrant=False))
        ]
    assert torch.equal(*found)


@fused
def test_nothing_is_dropped_in_evaluation_and_at_p_0(name):
    x = randn(*SHAPE).requires_grad_()
    state = torch.get_rng_state()
    evaluated, kept = call(name, x, training=False), call(name, x, 0.0)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(evaluated, kept)
    plain = {"dropout_with_mask": lambda x: x, CHAIN: lambda x: F.gelu(_normal(x) + 1 - x)}
    want = plain.get(name, lambda x: x + torch.linspace(-1, 1, 64, device=x.device) + 1 - x)(x)
    torch.testing.assert_close(kept, want, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad(y.sum(), x)[0] for y in (evaluated, want)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def _normal(x):
    row = torch.linspace(-1, 1, x.shape[-1], device=x.device)
    return F.layer_norm(x, row.shape, row, 1 - row)


@fused
def test_everything_is_dropped_at_p_1(name):
    x = randn(*SHAPE)
    left = 1 - x if name.startswith("bias") else torch.zeros_like(x)
    assert torch.equal(call(name, x, 1.0), left)


def test_dtypes_are_promoted_and_gradients_keep_theirs():
    x = randn(*SHAPE, dtype=torch.bfloat16).requires_grad_()
    r = randn(*SHAPE, seed=1).requires_grad_()
    y = kw.bias_dropout_add(x, None, r, 0.5)
    z = kw.layer_norm_residual_dropout_gelu(x, r, (64,), p=0.5)
    assert y.dtype == z.dtype == torch.float32
    gx, gr = torch.autograd.grad((y + z).sum(), (x, r))
    assert (gx.dtype, gr.dtype) == (torch.bfloat16, torch.float32)


@fused
def test_it_compiles_whole(name):
    x = randn(*SHAPE).requires_grad_()
    compiled = torch.compile(lambda x: call(name, x), fullgraph=True, backend="aot_eager")
    y, z = compiled(x), compiled(x)
    assert not torch.equal(y, z)
    assert torch.autograd.grad(y.sum(), x)[0].isfinite().all()


def test_errors_name_the_argument():
    x = randn(*SHAPE)
    for wrong, error in (
        (lambda: kw.dropout_with_mask(x, 1.5), r"p: .* but got 1\.5"),
        (lambda: kw.bias_dropout_add(x, None, x, -1.0), r"p: .* but got -1"),
        (lambda: kw.bias_dropout_add(x, x, x), r"bias: has shape \(5, 64\), should be \(64,\)"),
        (lambda: kw.bias_dropout_add(x, None, x[0]), r"residual: has shape \(64,\)"),
        (lambda: getattr(kw, CHAIN)(x, x, (5,)), r"normalized_shape: \(5,\) is not the end"),
        (lambda: getattr(kw, CHAIN)(x, x[0], (64,)), r"residual: has shape \(64,\)"),
        (lambda: getattr(kw, CHAIN)(x, x, (64,), x), r"weight: has shape \(5, 64\)"),
        (lambda: getattr(kw, CHAIN)(x, x, (64,), p=2.0), r"p: .* but got 2"),
        (lambda: getattr(kw, CHAIN)(x, x, (64,), approximate="erf"), r"approximate: .* 'erf'"),
    ):
        with pytest.raises(ValueError, match=f"^{error}"):
            wrong()
    whole = torch.arange(4)
    for wrong in (
        lambda: kw.dropout_with_mask(whole),
        lambda: kw.bias_dropout_add(whole, None, whole),
        lambda: getattr(kw, CHAIN)(whole, whole, (4,)),
    ):
        with pytest.raises(TypeError, match=r"^input: .* torch\.int64"):
            wrong()


@gpu
@rungs
def test_in_a_cuda_graph_each_replay_draws_anew(name, rung):
    x = randn(64, 256).requires_grad_()
    with kw.use(**{name: rung}):  # and in the backward, if it has that rung
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.autograd.grad(call(name, x).sum(), x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = call(name, x)
            gx = torch.autograd.grad(y.sum(), x)[0]
    found = []
    for seed in (11, 12, 11):
        torch.manual_seed(seed)
        graph.replay()
        torch.cuda.synchronize()
        found.append((y.clone(), gx.clone()))
    assert not torch.equal(found[0][0], found[1][0])
    assert all(torch.equal(*pair) for pair in zip(found[0], found[2], strict=True))
