"""attention_varlen compared with a loop over its sequences."""

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from support.publics import DEVICE, randn

F64 = torch.float64


def packed(lengths, keys=None, h=4, hk=2, d=8):
    keys = keys or lengths
    ends = [torch.tensor([0, *torch.tensor(x).cumsum(0)], dtype=torch.int32, device=DEVICE)
            for x in (lengths, keys)]  # fmt: skip
    shapes = ((sum(lengths), h, d), (sum(keys), hk, d), (sum(keys), hk, d + 1))
    tensors = [randn(*s, dtype=F64, seed=i).requires_grad_() for i, s in enumerate(shapes)]
    return tensors, (*ends, max(lengths), max(keys))


def one_by_one(tensors, ends, mask_of, cap=0.0, sinks=None):
    q, k, v = tensors
    out = []
    for a, b, c, e in zip(ends[0], ends[0][1:], ends[1], ends[1][1:], strict=False):
        x = q[a:b].transpose(0, 1)
        keys, values = (t[c:e].transpose(0, 1).repeat_interleave(2, 0) for t in (k, v))
        s = x @ keys.mT / x.shape[-1] ** 0.5
        s = cap * torch.tanh(s / cap) if cap else s
        rows, columns = (torch.arange(n, device=s.device) for n in s.shape[-2:])
        s = s + mask_of(columns - (rows + len(columns) - len(rows))[:, None])
        if sinks is not None:
            column = sinks.view(-1, 1, 1).expand(-1, s.shape[1], 1)
            weights = torch.cat((s, column), -1).softmax(-1)[..., :-1]
        else:
            weights = s.softmax(-1)
        out.append((weights @ values).transpose(0, 1))
    return torch.cat(out)


def hidden(test):
    return lambda away: torch.where(test(away), 0.0, -torch.inf).to(F64)


@pytest.mark.parametrize(
    ("options", "mask", "cap"),
    [
        ({}, lambda away: away.to(F64) * 0, 0.0),
        ({"is_causal": True}, hidden(lambda a: a <= 0), 0.0),
        ({"window": (3, 2)}, hidden(lambda a: (a >= -3) & (a <= 2)), 0.0),
        ({"window": (4, -1), "is_causal": True}, hidden(lambda a: (a >= -4) & (a <= 0)), 0.0),
        ({"softcap": 1.5, "is_causal": True}, hidden(lambda a: a <= 0), 1.5),
    ],
)
def test_sequences_do_not_see_each_other(options, mask, cap):
    for lengths, keys in (((5, 9, 1), None), ((4, 6), (7, 8))):
        tensors, ends = packed(lengths, keys)
        ours = kw.attention_varlen(*tensors, *ends, **options)
        theirs = one_by_one(tensors, ends, mask, cap)
        torch.testing.assert_close(ours, theirs)
        gy = randn(*ours.shape, dtype=F64, seed=8)
        for a, b in zip(torch.autograd.grad(ours, tensors, gy),
                        torch.autograd.grad(theirs, tensors, gy), strict=True):  # fmt: skip
            torch.testing.assert_close(a, b)


def test_sinks_and_slopes():
    tensors, ends = packed((5, 9))
    sinks = randn(4, dtype=F64, seed=4).requires_grad_()
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.0], device=DEVICE)
    ours = kw.attention_varlen(*tensors, *ends, sinks=sinks, alibi_slopes=slopes)
    theirs = one_by_one(
        tensors, ends, lambda away: -slopes.to(F64).view(-1, 1, 1) * away.abs(), sinks=sinks
    )
    torch.testing.assert_close(ours, theirs)
    gy = randn(*ours.shape, dtype=F64, seed=8)
    leaves = [*tensors, sinks]
    for a, b in zip(torch.autograd.grad(ours, leaves, gy),
                    torch.autograd.grad(theirs, leaves, gy), strict=True):  # fmt: skip
        torch.testing.assert_close(a, b)


def test_queries_without_keys_get_zeros():
    tensors, ends = packed((5, 3), (2, 3))
    y = kw.attention_varlen(*tensors, *ends, is_causal=True)
    assert torch.equal(y[:3], torch.zeros_like(y[:3])) and y[3:].abs().min() > 0
    q, k, v = (t.detach() for t in tensors)
    want = F.scaled_dot_product_attention(*(t[i:j].transpose(0, 1) for t, i, j in (
        (q, 5, 8), (k, 2, 5), (v, 2, 5))), is_causal=True, enable_gqa=True)  # fmt: skip
    torch.testing.assert_close(y[5:], want.transpose(0, 1))


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"query": torch.zeros(6, 4, 8, dtype=torch.int64)}, "query"),
        ({"query": torch.zeros(6, 8)}, "query"),
        ({"key": torch.zeros(6, 3, 8), "value": torch.zeros(6, 3, 8)}, "key"),
        ({"key": torch.zeros(6, 2, 7)}, "key"),
        ({"value": torch.zeros(5, 2, 8)}, "value"),
        ({"cu_seqlens_q": torch.tensor([0, 6])}, "cu_seqlens_q"),
        ({"cu_seqlens_k": torch.tensor([0, 3, 6], dtype=torch.int32)}, "cu_seqlens_k"),
        ({"max_seqlen_q": -1}, "max_seqlen_q"),
        ({"window": (-2, 0)}, "window"),
        ({"softcap": -1.0}, "softcap"),
        ({"sinks": torch.zeros(3)}, "sinks"),
        ({"alibi_slopes": torch.zeros(4, requires_grad=True)}, "alibi_slopes"),
        ({"scale": -1.0}, "scale"),
    ],
)
def test_errors_name_the_argument(changed, name):
    ends = torch.tensor([0, 6], dtype=torch.int32)
    args = {
        "query": torch.zeros(6, 4, 8), "key": torch.zeros(6, 2, 8), "value": torch.zeros(6, 2, 8),
        "cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": 6, "max_seqlen_k": 6,
    } | changed  # fmt: skip
    with pytest.raises((TypeError, ValueError), match=f"^{name}:"):
        kw.attention_varlen(**args)
