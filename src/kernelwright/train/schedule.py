"""Learning rates by step."""

from __future__ import annotations

import math

from kernelwright.support.errors import UsageError

NAMES = ("cosine", "wsd", "constant")
DECAY = 0.2  # the share of wsd's steps, at the end, in which the rate falls


def rate(step: int, steps: int, warm_up: int, schedule: str, floor: float = 0.1) -> float:
    """The learning rate of a step, as a fraction of the highest.

    All schedules rise linearly during the first `warm_up` steps. "cosine" then falls to `floor`
    along half a cosine (Loshchilov and Hutter 2017). "wsd" stays constant and falls linearly to
    `floor` over the last fifth (Hu et al. 2024, warm-up, stable, decay). "constant" stays constant.
    """
    if step < warm_up:
        return (step + 1) / warm_up
    if schedule == "constant":
        return 1.0
    if schedule == "cosine":
        part = min(1.0, (step - warm_up) / max(1, steps - warm_up))
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * part))
    if schedule == "wsd":
        begin = max(warm_up, steps - int(DECAY * steps))
        part = min(1.0, max(0.0, (step - begin) / max(1, steps - begin)))
        return 1.0 - (1 - floor) * part
    raise UsageError(f"schedule: {schedule!r} is not one of {', '.join(NAMES)}")
