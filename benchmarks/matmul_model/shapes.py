"""Products to time: listed, layers of GPT-2 and Llama 3 at random token counts, multiples of 8."""

from __future__ import annotations

import math
import random

Product = tuple[int, int, int, str]

LISTED: tuple[Product, ...] = (
    (512, 512, 512, "NT"),
    (1024, 1024, 1024, "NT"),
    (2048, 2048, 2048, "NT"),
    (4096, 4096, 4096, "NT"),
    (8192, 8192, 8192, "NT"),
    (768, 3072, 8192, "TN"),
    (128, 4096, 14336, "NT"),
    (8192, 2304, 768, "NT"),
    (8192, 3072, 768, "NT"),
    (8192, 768, 3072, "NT"),
    (8192, 50304, 768, "NT"),
    (8192, 28672, 4096, "NT"),
    (8192, 4096, 14336, "NT"),
    (4096, 4096, 65536, "NT"),
    (16384, 16384, 16384, "NT"),
)
#: Outputs and inputs of the linear layers of GPT-2 (124M, 1.5B) and Llama 3 (8B, 70B).
LAYERS = (
    *((2304, 768), (3072, 768), (768, 3072), (768, 768), (4800, 1600), (6400, 1600), (1600, 6400)),
    *((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (8192, 28672)),
)


def layers(seed: int, count: int) -> list[Product]:
    """Forward, gradient of the input, gradient of the weight, at 128 to 9,000 tokens. Their number
    is no operand's stride, and so need not be a multiple of 8."""
    generator = random.Random(seed)
    products_drawn: list[Product] = []
    for _ in range(count):
        n, k = generator.choice(LAYERS)
        tokens = _between(generator, 128, 9000)
        kind = generator.choice(("forward", "forward", "input", "weight"))
        products = {"forward": (tokens, n, k, "NT"), "input": (tokens, k, n, "NN")}
        products_drawn.append(products.get(kind, (n, k, tokens, "TN")))
    return products_drawn


def multiples(seed: int, count: int) -> list[Product]:
    """Any multiples of 8, log-uniform."""
    generator = random.Random(seed)
    products_drawn: list[Product] = []
    for _ in range(count):
        m, n, k = (_between(generator, low, 12000) // 8 * 8 for low in (128, 256, 256))
        products_drawn.append((m, n, k, generator.choice(("NT", "NN", "TN"))))
    return products_drawn


def few(seed: int, count: int) -> list[Product]:
    """Forward at 1 to 127 tokens."""
    generator = random.Random(seed)
    products_drawn: list[Product] = []
    for _ in range(count):
        n, k = generator.choice(LAYERS)
        products_drawn.append((_between(generator, 1, 127), n, k, "NT"))
    return products_drawn


def sampled(seed: int, count: int) -> list[tuple[str, Product]]:
    """Every set, by its name."""
    return [
        *(("listed", p) for p in LISTED),
        *(("layers", p) for p in layers(seed, count)),
        *(("multiples of 8", p) for p in multiples(seed + 1, count * 3 // 4)),
        *(("few rows", p) for p in few(seed + 2, count // 2)),
    ]


def _between(generator: random.Random, low: int, high: int) -> int:
    return int(math.exp(generator.uniform(math.log(low), math.log(high))))
