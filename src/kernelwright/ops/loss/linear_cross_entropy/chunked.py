"""One chunk of tokens after another: the logits of all tokens are never stored.

Idea: cuBLAS computes the logits of a chunk; one kernel replaces them by their gradient, reading
each once; two more products use it. The factor of the loss is known in advance, so all gradients
are complete together with the loss: the backward has nothing left to compute.
Traffic: in addition to that of the products, a chunk's logits four times (product, kernel in and
out, products), and gw read and written once per chunk.
Compared with `native`: that rung stores all logits, in three tensors.
Limit: gw is rounded to its dtype once per chunk. Products of few tokens are slow: see
heuristics.py.
"""

import torch

from ..cross_entropy import cross_entropy, cross_entropy_with_grad_
from . import heuristics


def run(x, w, bias, target, weight, g, of_x, of_w, of_bias, *form):
    ignore_index, label_smoothing, z_loss, softcap, _, cap = form
    options = {
        "ignore_index": ignore_index,
        "label_smoothing": label_smoothing,
        "z_loss": z_loss,
        "softcap": softcap if cap else None,
    }
    tokens, classes = x.shape[0], w.shape[0]
    wide = torch.promote_types(x.dtype, torch.float32)
    loss = x.new_empty(tokens, dtype=wide)
    gx = x.new_empty(x.shape if of_x else 0)
    gw = w.new_empty(w.shape if of_w else 0)
    gbias = w.new_zeros(classes if of_bias else 0, dtype=wide)
    if tokens == 0:
        return loss, gx.zero_(), gw.zero_(), gbias.to(w.dtype)
    step = heuristics.chunk(tokens, x.shape[1], classes, x.itemsize)
    buffer = x.new_empty(step, classes)
    for first in range(0, tokens, step):
        here = slice(first, min(first + step, tokens))
        logits = _logits(x[here], w, bias, buffer[: here.stop - here.start])
        if not (of_x or of_w or of_bias):
            loss[here] = cross_entropy(
                logits, target[here], weight, reduction="none", dtype=wide, **options
            )
            continue
        scale = g if g.ndim == 0 else g[here]
        loss[here] = cross_entropy_with_grad_(logits, target[here], weight, scale=scale, **options)
        if of_x:
            torch.mm(logits, w, out=gx[here])
        if of_w and first == 0:
            torch.mm(logits.t(), x[here], out=gw)
        elif of_w:
            gw.addmm_(logits.t(), x[here])
        if of_bias:
            gbias += logits.sum(0, dtype=wide)
    return loss, gx, gw, gbias.to(w.dtype)


def _logits(x, w, bias, out):
    if bias is None:
        return torch.mm(x, w.t(), out=out)
    return torch.addmm(bias, x, w.t(), out=out)
