"""A possible cause of wrong results, from a comparison of the learner's text with the rung's."""

from __future__ import annotations

import re

from . import files

BARRIERS = {
    "__syncthreads": "a thread may read shared memory before another has written it",
    "cuda.syncthreads": "a thread may read shared memory before another has written it",
    "__syncwarp": "a lane may read what another has not written yet",
}


def clues_of(of: files.Source, text: str) -> list[str]:
    """Barriers and masks that the rung's own bodies have and a learner's text lacks."""
    clues: list[str] = []
    real = files.text(of, solved=True)
    for task in of.exercise.tasks:
        bodies = [files.body(of, t, task.function) or "" for t in (text, real)]
        mine, theirs = (re.sub(r"(//|#(?! *pragma))[^\n]*", "", b) for b in bodies)
        for name, why in BARRIERS.items():
            have, want = (len(re.findall(rf"\b{re.escape(name)}\(", b)) for b in (mine, theirs))
            if have < want and (have or "shared" in mine):
                counts = f"{have or 'no'} {name}() where the rung has {want}"
                clues.append(f"{task.function} has {counts}: {why}")
        clues += [f"{task.function}: {name} without mask= also accesses elements beyond the end"
                  for name in ("tl.load", "tl.store")
                  if _unmasked(mine, name) > _unmasked(theirs, name)]  # fmt: skip
    return clues


def _unmasked(body: str, name: str) -> int:
    """Calls of a function without a mask argument."""
    calls = [body[m.end() - 1 :] for m in re.finditer(rf"{re.escape(name)}\(", body)]
    return sum("mask=" not in c[: files.matching(c, 0, "()")] for c in calls)
