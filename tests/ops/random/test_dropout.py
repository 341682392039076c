"""Tests of dropout: its seed is a tensor, from which the backward draws the mask again."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import kernelwright as kw
from kernelwright.ops.random._keep import factor, kept
from kernelwright.ops.random._philox import philox
from support.publics import DEVICE, fullgraph, gpu, leaf, randn

DROPOUT = ("native", "triton_philox")


def philox_of_words(counter, key):
    """Philox4x32-10 over four and two 32-bit words, as its authors write it."""
    (a, b, c, d), (k0, k1) = counter, key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * a, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c, 2**32)
        a, b, c, d = high1 ^ b ^ k0, low1, high0 ^ d ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [a, b, c, d]


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_philox_of_words_gives_its_authors_numbers(counter, key, answer):
    """Random123's test vectors."""
    words = [[int(w, 16) for w in text.split()] for text in (counter, key, answer)]
    assert philox_of_words(*words[:2]) == words[2]


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63 - 1, -(2**63), 0x299F31D0A4093822])
def test_philox_of_tensors_is_that_of_words(seed):
    counters = [0, 1, 2**32 - 1, 2**32, 2**40 + 12345, 2**63 - 1]
    key = [seed % 2**64 % 2**32, seed % 2**64 >> 32]
    want = [philox_of_words([c % 2**32, c >> 32, 0, 0], key) for c in counters]
    assert philox(torch.tensor([seed]), torch.tensor(counters)).tolist() == want


@pytest.mark.parametrize("seed", [7, -(2**62) + 12345])
def test_dropout_takes_each_word_for_two_elements(seed):
    """The definition, element by element; 29 elements end inside an octet and a pair."""
    p, n, key = 0.3, 29, [seed % 2**32, seed % 2**64 >> 32]
    want = []
    for i in range(n):
        word = philox_of_words([i // 8, 0, 0, 0], key)[i // 2 % 4]
        number = word if i % 2 == 0 else word % 2**16 << 16 | word >> 16
        want.append(number / 2**32 >= p)
    assert kept((n,), torch.tensor([seed]), p).tolist() == want


def test_neighbours_that_share_a_word_drop_independently_but_for_ties():
    """Every 8-bit word, with halves of 4 bits, of which 6 bits are compared with every threshold:
    the covariance is the one that README.md derives, and is under half of a half's last bit."""
    word = torch.arange(256)
    both = torch.stack((word, word % 16 << 4 | word >> 4)) >> 2
    for threshold in range(65):
        dropped = both < threshold
        share = dropped.double().mean(1)
        assert share.tolist() == [threshold / 64] * 2
        a, b = threshold // 4 / 16, threshold % 4 / 4
        covariance = dropped.all(0).double().mean().item() - (threshold / 64) ** 2
        assert covariance == (min(a, b) - a * b) / 8 + ((a < b) - b * b) / 256
        assert 0 <= covariance < 2**-5


@pytest.mark.parametrize("p", [0.1, 0.5, 0.5 + 2**-17])  # the last has the largest covariance
def test_neighbours_are_dropped_independently(p):
    pairs = kept((2**20, 2), torch.tensor([11]), p).double() - (1 - p)
    deviation = p * (1 - p) / 2**10  # of the mean of a product of independent elements
    assert abs(pairs.prod(1).mean().item()) < 4 * deviation
    assert abs((pairs[1:, 0] * pairs[:-1, 1]).mean().item()) < 4 * deviation


def test_dropout_keeps_its_share():
    n, p = 200_000, 0.3
    share = kept((n,), torch.tensor([7]), p).double().mean().item()
    assert abs(share - (1 - p)) < 5 * (p * (1 - p) / n) ** 0.5


@pytest.mark.parametrize("rung", DROPOUT)
def test_dropout_follows_torchs_generator(rung):
    x = torch.ones(1000, device=DEVICE)
    with kw.use(dropout=rung):
        torch.manual_seed(3)
        first, second = kw.dropout(x, 0.4), kw.dropout(x, 0.4)
        torch.manual_seed(3)
        again = kw.dropout(x, 0.4)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("p", [1e-7, 0.1, 0.5, 0.999, 1 - 2**-24, 1.0])
def test_dropout_rungs_agree_to_the_bit(p):
    x = torch.ones(4097, device=DEVICE)
    seed = torch.tensor([-(2**62) + 12345], device=DEVICE)
    with kw.use(dropout="native"):
        native = torch.ops.kernelwright.dropout(x, seed, p)
    other = torch.ops.kernelwright.dropout(x, seed, p, rung="triton_philox")
    assert torch.equal(native != 0, other != 0)
    torch.testing.assert_close(native, other, rtol=1e-6, atol=0)


@pytest.mark.parametrize("rung", DROPOUT)
def test_dropout_mask_ignores_strides(rung):
    """The gradient may have other strides than the result."""
    x = leaf(8, 6, 10)
    with kw.use(dropout=rung):
        torch.manual_seed(0)
        y = kw.dropout(x, 0.5)
        torch.manual_seed(0)
        permuted = kw.dropout(x.detach().permute(2, 0, 1).contiguous().permute(1, 2, 0), 0.5)
        assert torch.equal(y, permuted)
        gy = randn(10, 6, 8).permute(2, 1, 0)
        (gx,) = torch.autograd.grad(y, x, gy)
    assert torch.equal(gx != 0, y != 0)
    torch.testing.assert_close(gx, gy * 2 * (y != 0))


@pytest.mark.parametrize("rung", DROPOUT)
def test_dropout_is_the_same_when_recomputed(rung):
    w = leaf(32, 32)
    x = randn(16, 32, seed=1)

    def block(x):
        return kw.dropout(torch.tanh(kw.dropout(x @ w, 0.3)), 0.5)

    gradients = []
    with kw.use(dropout=rung):
        for run in (block, lambda x: checkpoint(block, x, use_reentrant=False)):
            torch.manual_seed(5)
            gradients.append(torch.autograd.grad(run(x).sum(), w))
    assert torch.equal(*[g for (g,) in gradients])


def test_dropout_saves_only_its_seed():
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        kw.dropout(leaf(1000), 0.5)
    assert [(t.dtype, t.numel()) for t in saved] == [(torch.int64, 1)]


def test_dropout_returns_its_input_where_torch_does():
    x = randn(7)
    assert kw.dropout(x, 0.0) is x
    assert kw.dropout(x, 0.5, training=False) is x
    assert torch.equal(kw.dropout(x, 1.0), F.dropout(x, 1.0))
    empty = randn(0, 3)
    assert kw.dropout(empty, 0.5) is empty


def test_dropout_in_place():
    x = leaf(50)
    z = x * 1
    before = z._version
    torch.manual_seed(0)
    y = kw.dropout(z, 0.5, inplace=True)
    assert y is z
    assert z._version > before
    torch.manual_seed(0)
    assert torch.equal(y, kw.dropout(x, 0.5))
    (gx,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gx, 2.0 * (y != 0))
    with pytest.raises(RuntimeError, match="leaf"):
        kw.dropout(x, 0.5, inplace=True)


def test_dropout_reads_p_at_each_call(binds):
    x = torch.ones(1033, device=DEVICE)
    with kw.use(dropout="triton_philox"):
        shares = [(kw.dropout(x, p) != 0).float().mean().item() for p in (0.1, 0.9)]
    assert binds == ["dropout"]
    assert shares[0] > 0.8
    assert shares[1] < 0.2


def test_dropout_compiles_whole():
    x = leaf(4, 100)
    compiled = fullgraph(lambda x: kw.dropout(x, 0.5))
    y = compiled(x)
    (gx,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gx, 2.0 * (y != 0))
    assert not torch.equal(y != 0, compiled(x) != 0)


def test_dropout_under_vmap():
    x = torch.ones(3, 200, device=DEVICE)
    with pytest.raises(RuntimeError, match="randomness"):
        torch.func.vmap(lambda t: kw.dropout(t, 0.5))(x)
    same = torch.func.vmap(lambda t: kw.dropout(t, 0.5), randomness="same")(x)
    assert torch.equal(same[0], same[1])
    different = torch.func.vmap(lambda t: kw.dropout(t, 0.5), randomness="different")(x)
    assert not torch.equal(different[0], different[1])


def test_dropout_refuses_by_name():
    with pytest.raises(ValueError, match=r"p: .* but got 1\.5"):
        kw.dropout(randn(3), 1.5)
    with pytest.raises(TypeError, match=r"input: .* torch\.int64"):
        kw.dropout(torch.arange(3), 0.5)


@gpu
@pytest.mark.parametrize("rung", DROPOUT)
def test_dropout_in_a_cuda_graph(rung):
    """Each replay draws a new seed, and its backward draws the mask of its forward."""
    x = torch.ones(4096, device=DEVICE, requires_grad=True)

    def step():
        y = kw.dropout(x, 0.5)
        return y, torch.autograd.grad(y.sum(), x)[0]

    with kw.use(dropout=rung):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y, gx = step()
    masks = []
    for _ in range(3):
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, gx)
        masks.append(y != 0)
    assert not torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[1], masks[2])
    torch.manual_seed(11)
    graph.replay()
    first = y.clone()
    torch.manual_seed(11)
    graph.replay()
    assert torch.equal(first, y)


def test_dropout_equals_its_factor():
    x, seed = randn(5, 33), torch.tensor([99], device=DEVICE)
    y = torch.ops.kernelwright.dropout(x, seed, 0.25)
    torch.testing.assert_close(y, (x.double() * factor(x.shape, seed, 0.25)).float())
