"""`with kw.use(softmax="triton_online")`: the user's word goes before every table."""

from __future__ import annotations

from contextlib import contextmanager

from .registry import ladder

# Process-wide, like torch.backends' flags: a plain dict is what torch.compile can guard on, so a
# compiled function recompiles when an override changes. Autograd threads never read it: the
# forward resolves the override and hands it to the backward.
_active: dict[str, str] = {}


@contextmanager
def use(_rungs: dict[str, str] | None = None, /, **rungs: str):
    """Serve the named operators by the named rungs inside the block.

    Args:
        rungs: operator name to rung name. `softmax="triton_online"` also holds in the backward,
            by the rung of that name where the backward's ladder has one. A backward alone is
            named with a dict: `use({"softmax.backward": "cuda_block"})`.

    Raises:
        UnknownOperator, UnknownRung: naming what there is.
    """
    chosen = {**(_rungs or {}), **rungs}
    for name, rung in chosen.items():
        ladder(name).rung(rung)
    before = dict(_active)
    _active.update(chosen)
    try:
        yield
    finally:
        _active.clear()
        _active.update(before)


def override(name: str) -> str | None:
    """The rung that `use` names for an operator now."""
    return _active.get(name)
