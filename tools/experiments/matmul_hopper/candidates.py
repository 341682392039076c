"""The 37 configs that selection chooses among; which of them a product allows."""

from __future__ import annotations

from .configs import Config, Persistent, Pingpong, Split, StreamK

ONE, TALL, FOUR = (1, 1), (2, 1), (2, 2)  # blocks of a cluster


def _each(kind: type[Persistent], *shape: int, clusters: tuple) -> list[Config]:
    return [kind(*shape, *c) for c in clusters]


CANDIDATES: tuple[Config, ...] = (
    *_each(Pingpong, 128, 128, 5, 4, clusters=(ONE, TALL, FOUR)),
    *_each(Pingpong, 128, 160, 4, 3, clusters=(ONE,)),
    *_each(Pingpong, 128, 192, 4, 2, clusters=(ONE, TALL, FOUR)),
    *_each(Persistent, 128, 256, 3, 4, clusters=(ONE, TALL)),
    *_each(Persistent, 128, 256, 4, 2, clusters=(FOUR,)),
    *_each(Persistent, 128, 224, 4, 2, clusters=(TALL,)),
    *_each(Persistent, 128, 192, 4, 3, clusters=(ONE, TALL, FOUR)),
    *_each(Persistent, 128, 160, 4, 3, clusters=(TALL,)),
    *_each(Persistent, 128, 128, 6, 2, clusters=(ONE, TALL)),
    *_each(Persistent, 64, 64, 8, 1, clusters=(ONE,)),
    *_each(Persistent, 64, 96, 8, 2, clusters=(ONE,)),
    *_each(Persistent, 64, 128, 8, 2, clusters=(ONE, TALL, FOUR)),
    *_each(Persistent, 64, 160, 6, 3, clusters=(ONE,)),
    *_each(Persistent, 64, 192, 6, 3, clusters=(ONE, TALL)),
    *_each(StreamK, 128, 256, 4, 2, clusters=(TALL,)),
    *_each(StreamK, 128, 192, 4, 3, clusters=(ONE, TALL, FOUR)),
    *_each(StreamK, 128, 128, 6, 2, clusters=(TALL, FOUR)),
    *(Split(128, 5, split) for split in (2, 3, 4)),
    *(Split(64, 7, split) for split in (2, 3, 4)),
)


def allowed(k: int) -> list[Config]:
    return [c for c in CANDIDATES if k >= c.least_k]
