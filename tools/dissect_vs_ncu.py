"""Compares dissect's counts with those of Nsight Compute on a GPU, and explains differences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tools.counters import Counted

from kernelwright.workbench.binary_info import dissect
from kernelwright.workbench.binary_info.dissect import WORDS, Dissection

#: Larger relative differences need an explanation.
ALIKE = 0.05
BUSY = (
    "The GPU counts every additional pass as a conflict, also if the unit was busy with other "
    "requests. No request here needs two words of a bank, so the code has no conflicts. Without "
    "these conflicts the GPU's wavefronts are exactly those of dissect, and the GPU's conflicts "
    "differ between the two dtypes although their accesses to shared memory are the same."
)
ASYNC = (
    "The GPU's counter of LDGSTS does not count requests. The machine code has one "
    "LDGSTS.E.BYPASS.128 for each vector, and gy and y are read from DRAM once (25.2 and 12.6 MB), "
    "but the counter shows 2.0 and 1.9 times their sectors, and for the same copies in "
    "`cuda_cluster` 1.3 and 1.0 times."
)
SKIPPED = (
    "The source reads every vector of gy a second time. For two of a thread's three vectors the "
    "compiler moved this read into the branch of their stores, so warps beyond the end of the row "
    "skip it: 4,096 of the 32,768 reads in float32, where rows end within a block."
)
#: Differences that were investigated: (operator, rung, word of `dissect.WORDS`) to the reason. The
#: machine code is what `kernelwright inspect OP.RUNG --case ID --sass` shows.
EXPLANATIONS: dict[tuple[str, str, str], str] = {
    **{
        ("sum", rung, "shared_load_conflicts"): BUSY
        for rung in (
            "cuda_interleaved",
            "cuda_sequential",
            "cuda_first_add",
            "cuda_last_warp",
            "cuda_unrolled",
        )
    },
    **{
        (operator, rung, f"shared_{kind}_conflicts"): BUSY
        for operator in ("softmax", "softmax.backward")
        for rung in ("cuda_online", "cuda_block")
        for kind in ("load", "store")
    },
    ("softmax", "cuda_cluster", "shared_load_conflicts"): BUSY,
    **{
        ("softmax.backward", "cuda_cluster", f"shared_load_{what}"): SKIPPED
        for what in ("bytes", "instructions", "wavefronts")
    },
    ("softmax.backward", "cuda_cluster", "shared_load_conflicts"): f"{BUSY} {SKIPPED}",
    ("softmax.backward", "cuda_cluster", "global_async_sectors"): ASYNC,
    ("softmax.backward", "cuda_block", "global_async_sectors"): ASYNC,
}


@dataclass(frozen=True)
class Pair:
    """A quantity of a call, all launches together: what dissect finds and what was counted."""

    operator: str
    rung: str
    case: str
    word: str
    found: float
    counted: float

    @property
    def key(self) -> tuple[str, str, str]:
        return self.operator, self.rung, self.word

    @property
    def difference(self) -> float:
        """Relative to the GPU's count: 0.1 if dissect finds 10% more."""
        if self.counted:
            return self.found / self.counted - 1
        return float("inf") if self.found else 0.0

    @property
    def alike(self) -> bool:
        return abs(self.difference) <= ALIKE


def pairs(dissections: Iterable[Dissection], counted: Iterable[Counted]) -> list[Pair]:
    """Every quantity of every call that both have counted with the same source, unless both counts
    are 0."""
    launches: dict[tuple[str, str, str, str], list[Counted]] = {}
    for c in counted:
        launches.setdefault((c.operator, c.rung, c.case, c.hash), []).append(c)
    out: list[Pair] = []
    for d in dissections:
        its = launches.get((d.operator, d.rung, d.case, d.hash), [])
        if len(its) != len(d.launches):
            continue
        for word in WORDS:
            a = sum(dissect.words(x)[word] for x in d.launches)
            b = sum(_counted(c, word) for c in its)
            if a or b:
                out.append(Pair(d.operator, d.rung, d.case, word, a, b))
    return out


def _counted(c: Counted, word: str) -> float:
    """A reduction is an atomic with an unused result: dissect counts both as atomics."""
    more = c.counts.get("global_reduction_sectors", 0) if word == "global_atomic_sectors" else 0
    return c.counts.get(word, 0) + more


def unexplained(pairs: Iterable[Pair]) -> list[Pair]:
    """Differences beyond ALIKE without an explanation."""
    return [p for p in pairs if not p.alike and p.key not in EXPLANATIONS]


def stale(pairs: Iterable[Pair]) -> list[tuple[str, str, str]]:
    """Explanations of differences that no longer exist, in rungs whose current source has been
    counted on a GPU."""
    pairs = list(pairs)
    differing = {p.key for p in pairs if not p.alike}
    counted = {(p.operator, p.rung) for p in pairs}
    return [key for key in EXPLANATIONS if key[:2] in counted and key not in differing]
