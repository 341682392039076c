"""Linear attention in chunks, in PyTorch: a state per chunk, and masked products within chunks.

The decay from token j to token i is exp(c_i - c_j), where c are sums of log decay from the start of
a chunk. They are kept in float64, because small differences of large sums must be accurate. A
product of decays, which may be 0, or its inverse is never computed.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

CHUNK = 64
GROUP = 16  # chunks whose states are carried one by one, in all groups at the same time
LEAST = -8192.0  # lower log decays are replaced by this: its exponential is 0 in every dtype


def forward(q, k, v, g, state, scale, size=CHUNK):
    """(y, the state after the last token), in the dtype of q."""
    length, dtype = q.shape[2], q.dtype
    size = max(1, min(size, length))
    sums = summed(g, q, size)
    q, k, v = (pieces(t, size) for t in (q * scale, k, v))
    since, until, last = to_start(sums, dtype), to_end(sums, dtype), sums[..., -1]
    before, end = carried(last, (k * until).mT @ v, initial(state, k, v))
    y = down(within(sums, q @ k.mT), v) + (q * since) @ before
    return whole(y, length), end


def backward(gy, gfinal, q, k, v, g, state, scale, size=CHUNK):
    """(gq, gk, gv, gradient of log decay (B, H, L), gradient of the initial state)."""
    length, dtype = q.shape[2], q.dtype
    size = max(1, min(size, length))
    sums = summed(g, q, size)
    gy, q, k, v = (pieces(t, size) for t in (gy, q * scale, k, v))
    since, until, last = to_start(sums, dtype), to_end(sums, dtype), sums[..., -1]
    before, _ = carried(last, (k * until).mT @ v, initial(state, k, v))
    added = (q * since).mT @ gy
    after, first = carried(last.flip(2), added.flip(2), initial(gfinal, k, v))
    after = after.flip(2)
    scores, pairs = q @ k.mT, gy @ v.mT
    of_scores, of_pairs = within(sums, scores), within(sums, pairs)
    past_q, past_k = since * (gy @ before.mT), until * (v @ after.mT)
    gq = (down(of_pairs, k) + past_q) * scale
    gk = up(of_pairs.mT, q) + past_k
    gv = up(of_scores.mT, gy) + until * (k @ after)
    crossing = crossed(torch.where(lower(size, q.device, -1), of_scores * pairs, 0.0))
    from_start = (past_q * q).sum(-1).flip(-1).cumsum(-1).flip(-1)
    to_last = before_each((past_k * k).sum(-1))
    through = last.to(dtype).exp() * (before * after).sum((-2, -1))
    gg = crossing + from_start + to_last + through.unsqueeze(-1)
    gg = gg.flatten(2)[..., :length].contiguous()
    return *(whole(t, length) for t in (gq, gk, gv)), gg, first


def pieces(t, size):
    """(B, H, L, D) as (B, H, chunks, size, D), padded with zeros after the last token."""
    t = F.pad(t, (0, 0, 0, -t.shape[2] % size))
    return t.unflatten(2, (t.shape[2] // size, size))


def whole(t, length):
    return t.flatten(2, 3)[:, :, :length].contiguous()


def summed(g, q, size):
    """(B, H, chunks, size) float64: log decay from the start of a chunk to each token,
    inclusive."""
    b, h, length, _ = q.shape
    if g is None:
        g = q.new_zeros(b, h, length)
    g = F.pad(g.double().clamp(min=LEAST), (0, -length % size))
    return g.unflatten(2, (g.shape[2] // size, size)).cumsum(-1)


def to_start(sums, dtype):
    """Decay from the start of a chunk to each token."""
    return sums.to(dtype).exp().unsqueeze(-1)


def to_end(sums, dtype):
    """Decay from each token to the end of the chunk."""
    return (sums[..., -1:] - sums).to(dtype).exp().unsqueeze(-1)


def within(sums, products):
    """Products of tokens i and j of a chunk times the decay from j to i; 0 if j is later."""
    seen = lower(sums.shape[-1], sums.device)
    apart = (sums.unsqueeze(-1) - sums.unsqueeze(-2)).masked_fill(~seen, -torch.inf)
    return torch.where(seen, products * apart.to(products.dtype).exp(), 0.0)


def lower(size, device, diagonal=0):
    return torch.ones(size, size, dtype=torch.bool, device=device).tril(diagonal)


def crossed(w):
    """For each token t the sum of w over all i and j with j < t <= i."""
    return before_each(w).tril().sum(-2)


def before_each(t):
    """For each element the sum of the elements before it."""
    return F.pad(t.cumsum(-1), (1, 0))[..., :-1]


def initial(state, k, v):
    if state is not None:
        return state.to(k.dtype)
    return k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])


def carried(last, added, first):
    """(the state before each chunk, the state after the last): h' = exp(last) h + added. Chunks are
    processed in groups, whose initial states are carried in the same way."""
    n = added.shape[2]
    if n <= GROUP:
        return steps(last, added, first)
    last = F.pad(last, (0, -n % GROUP)).unflatten(2, (-1, GROUP))
    added = F.pad(added, (0, 0, 0, 0, 0, -n % GROUP)).unflatten(2, (-1, GROUP))
    own, ends = steps(last, added, torch.zeros_like(added[:, :, :, 0]))
    starts, end = carried(last.sum(-1), ends, first)
    since = before_each(last).to(added.dtype).exp()[..., None, None]
    return (own + since * starts.unsqueeze(3)).flatten(2, 3)[:, :, :n], end


def steps(last, added, h):
    """As `carried`, one chunk after another: last (..., n), added (..., n, K, V), h (..., K, V)."""
    decay, states = last.to(added.dtype).exp()[..., None, None], []
    for i in range(added.shape[-3]):
        states.append(h)
        h = h * decay[..., i, :, :] + added[..., i, :, :]
    return torch.stack(states, -3) if states else added, h


def down(m, x):
    """m x for m that is 0 above its diagonal. A row of x that is not finite makes only this and
    later rows NaN, although 0 times NaN is NaN."""
    bad = ~x.isfinite()
    y = m @ x.masked_fill(bad, 0.0)
    return y.masked_fill(bad.cumsum(-2, dtype=torch.int32) > 0, torch.nan)


def up(m, x):
    """The same for m that is 0 below its diagonal, with earlier rows."""
    bad = ~x.isfinite()
    y = m @ x.masked_fill(bad, 0.0)
    return y.masked_fill(bad.flip(-2).cumsum(-2, dtype=torch.int32).flip(-2) > 0, torch.nan)
