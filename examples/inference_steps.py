"""Inference tricks of a transformer, one at a time, on a small encoder and a small GPT.

    python examples/inference_steps.py

Each step computes the same as the one before it (int8 nearly) and prints what it saves: operators
that are launched, multiplications and additions, bytes that operators read and write, and
the CPU time of one thread. docs/inference.md explains the steps.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import kernelwright as kw

LAYERS, WIDTH, HEADS, VOCABULARY = 4, 256, 4, 1000
LENGTHS = (128, 24, 40, 64, 16, 96, 32, 48)  # tokens of each sequence of the encoder's batch
PROMPT, NEW, BEAMS = 32, 16, 4
Weights = dict[str, Tensor]


class Counter(TorchDispatchMode):
    """Counts operators that are not views, their bytes, and the operations of products."""

    def __init__(self):
        super().__init__()
        self.operators = self.bytes = self.flops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        results = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        memory = {x.untyped_storage().data_ptr() for x in given}
        is_view = results and all(x.untyped_storage().data_ptr() in memory for x in results)
        name = func.name().split("::")[1].split(".")[0]
        if not is_view or name.endswith("_"):
            self.operators += name not in ("empty", "_unsafe_view", "scalar_tensor")
            self.bytes += sum(x.numel() * x.element_size() for x in (*given, *results))
            self.flops += _flops(name, given, results)
        return out


def _flops(name: str, given: list[Tensor], results: list[Tensor]) -> int:
    if name in ("mm", "addmm", "bmm", "_int_mm"):
        return 2 * results[0].numel() * given[-2].shape[-1]
    if name == "attention_varlen":
        q, lengths = given[0], given[3].diff()
        return 4 * int((lengths * lengths).sum()) * q.shape[1] * q.shape[2]
    return 0


def weights(seed: int) -> list[Weights]:
    """Of each layer: q, k, v, output, up and down."""
    draw = torch.Generator().manual_seed(seed)

    def new(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw) / math.sqrt(shape[-1])

    layers: list[Weights] = []
    for _ in range(LAYERS):
        w = {n: new(WIDTH, WIDTH) for n in ("q", "k", "v", "o")}
        w |= {"up": new(4 * WIDTH, WIDTH), "down": new(WIDTH, 4 * WIDTH)}
        w |= {f"{n}_bias": new(len(x)) for n, x in list(w.items())}
        w |= {f"norm{i}": 1 + new(WIDTH) for i in (1, 2)}
        w |= {f"norm{i}_bias": new(WIDTH) for i in (1, 2)}
        w["qkv"] = torch.cat([w[n] for n in "qkv"])
        w["qkv_bias"] = torch.cat([w[f"{n}_bias"] for n in "qkv"])
        layers.append(w)
    return layers


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attention, one operator for each formula, with the copies that separate kernels need."""
    q, k, v = (heads(t).contiguous() for t in (q, k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)


# The encoder: post-norm, as BERT.


@dataclass
class Batch:
    """Sequences, padded (B, T, C), and where their tokens are."""

    padded: Tensor
    inside: Tensor  # (B, T) bool

    @property
    def starts(self) -> Tensor:
        return F.pad(self.inside.sum(1).cumsum(0), (1, 0)).int()

    @property
    def mask(self) -> Tensor:
        return self.inside[:, None, None, :]


def batch() -> Batch:
    inside = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    x = torch.randn(*inside.shape, WIDTH, generator=torch.Generator().manual_seed(1))
    return Batch(x, inside)


def separate(x: Tensor, w: Weights, name: str) -> Tensor:
    return x @ w[name].t() + w[f"{name}_bias"]


def block_end(x: Tensor, y: Tensor, w: Weights) -> Tensor:
    """What follows the attention, with separate operators."""
    x = x + separate(y, w, "o")
    x = F.layer_norm(x, (WIDTH,), w["norm1"], w["norm1_bias"])
    y = separate(F.gelu(separate(x, w, "up")), w, "down")
    return F.layer_norm(x + y, (WIDTH,), w["norm2"], w["norm2_bias"])


def fused_end(x: Tensor, y: Tensor, w: Weights) -> Tensor:
    """The same: bias, residual and norm in one operator, bias and gelu in one."""
    y = F.linear(y, w["o"], w["o_bias"])
    x, _ = kw.add_layer_norm(y, x, (WIDTH,), w["norm1"], w["norm1_bias"], 1e-5)
    y = kw.bias_gelu(x @ w["up"].t(), w["up_bias"])
    y = F.linear(y, w["down"], w["down_bias"])
    return kw.add_layer_norm(y, x, (WIDTH,), w["norm2"], w["norm2_bias"], 1e-5)[0]


def padded(b: Batch, layers: list[Weights]) -> Tensor:
    x = b.padded
    for w in layers:
        x = block_end(x, attend(*(separate(x, w, n) for n in "qkv"), b.mask), w)
    return x[b.inside]


def pad(x: Tensor, b: Batch) -> Tensor:
    out = x.new_zeros(*b.inside.shape, x.shape[-1])
    out[b.inside] = x
    return out


def padding_removed(b: Batch, layers: list[Weights]) -> Tensor:
    """Tokens are packed for all but the attention, which pads them again."""
    x = b.padded[b.inside]
    for w in layers:
        q, k, v = (pad(separate(x, w, n), b) for n in "qkv")
        x = block_end(x, attend(q, k, v, b.mask)[b.inside], w)
    return x


def one_product(b: Batch, layers: list[Weights], end: Callable = block_end) -> Tensor:
    """q, k and v by one product that adds the biases; padded and divided into heads once."""
    x = b.padded[b.inside]
    for w in layers:
        q, k, v = pad(F.linear(x, w["qkv"], w["qkv_bias"]), b).chunk(3, -1)
        x = end(x, attend(q, k, v, b.mask)[b.inside], w)
    return x


def norm_fused(b: Batch, layers: list[Weights]) -> Tensor:
    return one_product(b, layers, fused_end)


def packed(b: Batch, layers: list[Weights]) -> Tensor:
    """No padding in the attention either, and no scores in memory."""
    x, starts, longest = b.padded[b.inside], b.starts, max(LENGTHS)
    for w in layers:
        qkv = F.linear(x, w["qkv"], w["qkv_bias"]).unflatten(-1, (3, HEADS, -1))
        y = kw.attention_varlen(*qkv.unbind(1), starts, starts, longest, longest)
        x = fused_end(x, y.flatten(1), w)
    return x


# The GPT: pre-norm, greedy and beam.


def gpt_layer(x: Tensor, w: Weights, past: list[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
    """One layer on new tokens x (B, T, C) after the keys and values `past`."""
    h = F.layer_norm(x, (WIDTH,), w["norm1"], w["norm1_bias"])
    q, k, v = F.linear(h, w["qkv"], w["qkv_bias"]).chunk(3, -1)
    if past:
        k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
    n, m = q.shape[1], k.shape[1]
    mask = None if n == 1 else torch.arange(m) <= torch.arange(m - n, m)[:, None]
    y = F.linear(attend(q, k, v, mask), w["o"], w["o_bias"])
    h, x = kw.add_layer_norm(y, x, (WIDTH,), w["norm2"], w["norm2_bias"], 1e-5)
    h = kw.bias_gelu(h @ w["up"].t(), w["up_bias"])
    return x + F.linear(h, w["down"], w["down_bias"]), [k, v]


Cache = list[list[Tensor] | None]


def logits(ids: Tensor, layers: list[Weights], cache: Cache, table: Tensor) -> Tensor:
    """Of the last position; the cache is extended in place."""
    x = F.embedding(ids, table)
    for i, w in enumerate(layers):
        x, cache[i] = gpt_layer(x, w, cache[i])
    return x[:, -1].flip(-1) @ table.t()  # flipped, or a token would continue itself


def table() -> Tensor:
    return torch.randn(VOCABULARY, WIDTH, generator=torch.Generator().manual_seed(2)) / 4


def prompt() -> Tensor:
    return torch.randint(VOCABULARY, (1, PROMPT), generator=torch.Generator().manual_seed(3))


def recomputed(layers: list[Weights]) -> Tensor:
    """Greedy decoding: all tokens pass through the model for each new one."""
    ids, words = prompt(), table()
    for _ in range(NEW):
        new = logits(ids, layers, [None] * LAYERS, words).argmax(-1, keepdim=True)
        ids = torch.cat([ids, new], 1)
    return ids


def cached(layers: list[Weights]) -> Tensor:
    """Keys and values are kept, so that only the new token passes through the model."""
    ids, words, cache = prompt(), table(), [None] * LAYERS
    new = ids
    for _ in range(NEW):
        new = logits(new, layers, cache, words).argmax(-1, keepdim=True)
        ids = torch.cat([ids, new], 1)
    return ids


def beam(layers: list[Weights], shared: bool) -> Tensor:
    """The most likely of BEAMS continuations. A beam that is continued twice needs its keys and
    values twice. They are copied in each step, or with `shared` those of the prompt are kept once
    and only those of new tokens are copied."""
    words, cache = table(), [None] * LAYERS
    first = logits(prompt(), layers, cache, words)
    score, new = F.log_softmax(first, -1)[0].topk(BEAMS)
    ids, own = new[:, None], [[t[:, :0].expand(BEAMS, -1, -1) for t in c] for c in cache]
    if not shared:
        own = [[t.expand(BEAMS, -1, -1).contiguous() for t in c] for c in cache]
    for _ in range(NEW - 1):
        past = [
            [torch.cat([p.expand(BEAMS, -1, -1), o], 1) for p, o in zip(*c, strict=True)]
            for c in zip(cache, own, strict=True)
        ] if shared else own  # fmt: skip
        found: Cache = list(past)
        following = F.log_softmax(logits(ids[:, -1:], layers, found, words), -1)
        score, at = (score[:, None] + following).flatten().topk(BEAMS)
        parent = at // VOCABULARY
        ids = torch.cat([ids[parent], (at % VOCABULARY)[:, None]], 1)
        begin = PROMPT if shared else 0
        own = [[t[:, begin:][parent] for t in c] for c in found if c]
    return ids[score.argmax()]


# int8: a scale for each output and each token


class Int8:
    """A linear layer whose weight is int8, with a scale for each output."""

    def __init__(self, w: Tensor, bias: Tensor):
        self.scale = w.abs().amax(1) / 127
        self.weight, self.bias = (w / self.scale[:, None]).round().to(torch.int8), bias

    def __call__(self, x: Tensor) -> Tensor:
        scale = x.abs().amax(-1, keepdim=True) / 127
        sums = torch._int_mm((x / scale).round().to(torch.int8), self.weight.t())
        return sums * (scale * self.scale) + self.bias


def quantized(layers: list[Weights]) -> list[dict[str, Int8]]:
    return [
        {n: Int8(w[n], w[f"{n}_bias"]) for n in ("qkv", "o", "up", "down")} for w in layers
    ]  # fmt: skip


def int8(b: Batch, layers: list[Weights], of: list[dict[str, Int8]]) -> Tensor:
    x, starts, longest = b.padded[b.inside], b.starts, max(LENGTHS)
    for w, q in zip(layers, of, strict=True):
        qkv = q["qkv"](x).unflatten(-1, (3, HEADS, -1))
        y = kw.attention_varlen(*qkv.unbind(1), starts, starts, longest, longest)
        x, _ = kw.add_layer_norm(
            q["o"](y.flatten(1)), x, (WIDTH,), w["norm1"], w["norm1_bias"], 1e-5
        )
        y = q["down"](F.gelu(q["up"](x)))
        x = kw.add_layer_norm(y, x, (WIDTH,), w["norm2"], w["norm2_bias"], 1e-5)[0]
    return x


def encoder_steps() -> dict[str, Callable[[], Tensor]]:
    layers, b = weights(0), batch()
    of = quantized(layers)
    return {
        "padded": lambda: padded(b, layers),
        "padding removed": lambda: padding_removed(b, layers),
        "one product for q, k, v": lambda: one_product(b, layers),
        "norm and gelu fused": lambda: norm_fused(b, layers),
        "packed attention": lambda: packed(b, layers),
        "int8": lambda: int8(b, layers, of),
    }


def gpt_steps() -> dict[str, Callable[[], Tensor]]:
    layers = weights(4)
    return {
        "all tokens again": lambda: recomputed(layers),
        "cache": lambda: cached(layers),
        "beam, cache copied": lambda: beam(layers, shared=False),
        "beam, prompt shared": lambda: beam(layers, shared=True),
    }


def count(step: Callable[[], Tensor]) -> Counter:
    with Counter() as counter:
        step()
    return counter


def milliseconds(steps: dict[str, Callable[[], Tensor]], rounds: int = 5) -> dict[str, float]:
    """Medians of the CPU time of one thread, the steps in turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            begun = time.process_time()
            step()
            times[name].append((time.process_time() - begun) * 1e3)
    return {name: statistics.median(found) for name, found in times.items()}


def rows(steps: dict[str, Callable[[], Tensor]]) -> list[str]:
    """What each step does, without times: the same on every machine."""
    found: list[str] = []
    for name, step in steps.items():
        c = count(step)
        found.append(f"{name} | {c.operators} | {c.flops / 1e9:.2f} | {c.bytes / 1e6:.0f}")
    return found


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    for steps in (encoder_steps(), gpt_steps()):
        times = milliseconds(steps)
        print("| step | operators | GFLOP | MB | ms of one CPU core |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for name, row in zip(steps, rows(steps), strict=True):
            print(f"| {row} | {times[name]:.1f} |")
        print()


if __name__ == "__main__":
    main()
