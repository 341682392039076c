"""Writes findings as text: the threads, the accesses, the memory and the rung's lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ctypes import Structure, c_bool, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field, replace
from pathlib import Path

from .. import messages

RACE, OUTSIDE, MISALIGNED, NEVER_WRITTEN, TWO_BARRIERS, ABSENT_LANE = range(6)
NOT_READY, NOT_STARTED, MAY_HAVE_ENDED, NOT_WAITED, AFTER_EXIT, NO_VALUE, INDEX = range(6, 13)
LANES_ENDED, MAY_COME_FIRST, NO_PROXY_FENCE, BARRIER_UNSEEN, LATE_PHASE = range(13, 18)
NOT_COMMITTED, IN_FLIGHT, NO_PRODUCT_FENCE, STILL_READING = range(18, 22)
TWO_GROUPS, WRONG_SWIZZLE = 22, 23
#: How the text of a finding begins that is no error on present GPUs.
WARNING = "warning:"
RELEASES, READS, ACQUIRES, NO_LATER = 1, 2, 3, 4  # order.h's Missing
SAME = 1  # of two writes that race: both write the same value
CHECK_OF = (
    "races", "bounds", "bounds", "init", "divergence", "divergence", "races", "bounds", "bounds",
    "races", "divergence", "init", "bounds", "divergence", "init", "races", "races", "races",
    "races", "races", "races", "races", "divergence", "bounds",
)  # fmt: skip
SHARED, NOWHERE = 2**32 - 1, 2**32 - 2
WRITE, VOLATILE, ATOMIC, SENT, ENGINE = 1, 2, 4, 8, 16


class RawIndex(Structure):
    _fields_ = [("x", c_uint32), ("y", c_uint32), ("z", c_uint32)]


class RawRegion(Structure):
    """checks.cpp's Region."""

    _fields_ = [
        ("start", c_uint64),
        ("end", c_uint64),
        ("number", c_uint32),
        ("written", c_bool),
        ("part", c_void_p),
        ("cells", c_void_p),
    ]


class RawSide(Structure):
    _fields_ = [("where", c_uint64), ("thread", RawIndex), ("block", RawIndex), ("kind", c_uint32)]


class RawFinding(Structure):
    """findings.h's Finding."""

    _fields_ = [
        ("kind", c_uint32),
        ("region", c_uint32),
        ("bytes", c_uint32),
        ("lane", c_uint32),
        ("launch", c_uint32),
        ("owner", c_uint32),
        ("address", c_uint64),
        ("offset", c_int64),
        ("a", RawSide),
        ("b", RawSide),
        ("count", c_uint64),
        ("missing", c_uint32),
    ]


@dataclass(frozen=True)
class Memory:
    """A tensor that a launch may touch."""

    name: str
    bytes: int
    itemsize: int


@dataclass(frozen=True)
class Call:
    """The properties of a launch that messages refer to.

    Attributes:
        kernel: its name.
        memory: tensors, by the observer's numbers.
        variables: {(offset, bytes): name} in static shared memory.
        static, dynamic: bytes of shared memory.
        cluster: blocks of a cluster.
        locals: names of variables without a value, by the observer's numbers.
    """

    kernel: str
    memory: dict[int, Memory]
    variables: dict[tuple[int, int], str]
    static: int
    dynamic: int
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    cluster: int
    locals: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """One error that a check found.

    Attributes:
        check: races, bounds, init, divergence; "error" if a launch failed for another reason.
        text: what happened, beginning with the rung's line.
        lines: "cuda_warp.cu:12" for each access, in the rung's own file.
        threads: "thread 5 of block 2" for each access.
        count: how often it occurred.
        unwritten: it is an uninitialized read of shared memory.
        same: two threads write the same value.
    """

    check: str
    text: str
    lines: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    count: int = 1
    unwritten: bool = False
    same: bool = False


def format_findings(raw: Iterable[RawFinding], calls: Sequence[Call]) -> list[Finding]:
    """Raw findings as text; those of the same kind at the same lines are merged."""
    kept: dict[tuple, Finding] = {}
    for f in raw:
        finding = _format_finding(f, calls[f.launch - 1])
        if finding is not None:
            key = (f.kind, place_of(f.a.where), place_of(f.b.where))
            old = kept.get(key)
            kept[key] = replace(old, count=old.count + finding.count) if old else finding
    return list(kept.values())


def _format_finding(f: RawFinding, call: Call) -> Finding | None:
    a, b = _thread(f.a, call), _thread(f.b, call)
    here, there = place_of(f.a.where), place_of(f.b.where)
    both = f.kind in (
        RACE,
        TWO_BARRIERS,
        NOT_READY,
        NOT_WAITED,
        NO_PROXY_FENCE,
        BARRIER_UNSEEN,
        IN_FLIGHT,
        TWO_GROUPS,
        WRONG_SWIZZLE,
    ) or (f.kind == NO_PRODUCT_FENCE and f.b.where)
    if f.kind == RACE:
        mild = f"{WARNING} " if f.lane == SAME or f.missing == NO_LATER else ""
        text = (
            f"{mild}{a} {_does(f.a)} {_what(f, call)}, {_done(f.b)} by {b} at {there} "
            f"{_unordered(f, call)}" + (" (both write the same value)" if f.lane == SAME else "")
        )
    elif f.kind == OUTSIDE:
        text = f"{a} {_does(f.a)} {_bytes(f.bytes)} {_outside(f, call)}"
    elif f.kind == MISALIGNED:
        text = (
            f"{a} {_does(f.a)} {f.bytes} bytes at an address that is not a multiple of "
            f"{f.bytes}: {_what(f, call)}"
        )
    elif f.kind == NEVER_WRITTEN:
        who = "thread of its block" if f.region == SHARED else "kernel of this call"
        text = f"{a} reads {_what(f, call)}, which no {who} has written"
    elif f.kind == TWO_BARRIERS:
        if here == there and not f.offset:  # the compiler made two instructions of one call
            return None
        other = "another one of the same line" if here == there else f"that of {there}"
        text = f"{a} waits at this barrier while {b} waits at {other}"
    elif f.kind == NOT_READY:
        text = (
            f"{a} {_counts(f.a)} the mbarrier in "
            f"{_what(f, call)}, initialized by {b} at {there} with no "
            f"{'fence.mbarrier_init and barrier of the cluster' if call.cluster > 1 else 'barrier'}"
            " in between"
        )
    elif f.kind == NOT_STARTED:
        text = (
            f"{a} {_does(f.a)} {_what(f, call)}, which may not have started: there is no barrier "
            "of the cluster before this access"
        )
    elif f.kind == MAY_HAVE_ENDED:
        text = (
            f"{a} {_does(f.a)} {_what(f, call)}, which may have ended: none of its threads waits "
            "for the data"
            if f.a.kind & SENT
            else f"{a} {_does(f.a)} {_what(f, call)}, which may have ended: there is no barrier "
            "of the cluster after this access"
        )
    elif f.kind == NOT_WAITED:
        text = (
            f"{a} {_does(f.a)} {_what(f, call)}, which the asynchronous copy that {b} began at "
            f"{there} may still write: nothing has waited for it"
        )
    elif f.kind == NO_PROXY_FENCE:
        text = (
            f"{a} {_does(f.a)} {_what(f, call)}, written by {b} at {there} with no "
            "fence.proxy.async in between"
        )
    elif f.kind == BARRIER_UNSEEN:
        text = (
            f"{a} begins a copy that counts bytes at the mbarrier in {_what(f, call)}, initialized "
            f"by {b} at {there} with no fence.mbarrier_init or fence.proxy.async in between"
        )
    elif f.kind == LATE_PHASE:
        text = (
            f"{a} {_does(f.a)} {_what(f, call)}, but phase {f.lane} of its mbarrier ended without "
            "these bytes: it expects fewer than are copied"
        )
    elif f.kind == NOT_COMMITTED:
        text = f"{a} begins a bulk store that no commit_group follows: no wait_group waits for it"
    elif f.kind == STILL_READING:
        text = (
            f"{WARNING} {a} ends with no wait_group for its bulk store, which may still read "
            "shared memory when another block has it"
        )
    elif f.kind == TWO_GROUPS:
        text = (
            f"{a} arrives at barrier {f.lane}, at which {b} arrived at {there} with other warps: "
            "nothing orders the two, and threads of both may meet"
        )
    elif f.kind == IN_FLIGHT:
        text = (
            f"{a} {_does(f.a)} a register of D while the product that it issued at {there} may "
            "still change it: no wait_group has waited for that"
        )
    elif f.kind == NO_PRODUCT_FENCE:
        since = (
            f"after its access to registers of D at {there}" if f.b.where else "for the first time"
        )
        text = f"{a} issues a product {since} with no wgmma.fence in between"
    elif f.kind == WRONG_SWIZZLE:
        text = (
            f"{a} multiplies a matrix whose descriptor has {_swizzle(f.bytes)}, but the box that "
            f"{b} copied there at {there} has {_swizzle(f.lane)}: in lines 0 to 7 of 128 bytes, "
            f"the copy puts the first 16 bytes at unit {_units(f.lane)}, the product reads them "
            f"at {_units(f.bytes)}"
        )
    elif f.kind == NO_VALUE:
        name = call.locals.get(f.address, "a variable")
        text = f"{a} reads its variable {name}, to which it has given no value"
    elif f.kind == INDEX:
        text = f"{a} uses the index {f.offset} in an array of {f.address} elements"
    elif f.kind == MAY_COME_FIRST:
        text = (
            f"{a} reads {_what(f, call)}, which has no value before another thread writes it: "
            "write it before the launch"
        )
    elif f.kind == LANES_ENDED:
        who = f"{f.lane} lanes that have" if f.lane > 1 else "one lane that has"
        text = f"{WARNING} the mask of {a} names {who} ended without it (for example {b})"
    elif f.kind == AFTER_EXIT:
        who = f"{f.lane} threads" if f.lane > 1 else "one thread"
        text = (
            f"{WARNING} {a} waits at this barrier, but {who} of its block ended without reaching "
            f"it (for example {b}): the condition before it depends on the thread"
        )
    else:
        mild = f"{WARNING} " if f.offset else ""
        text = f"{mild}{a} reads lane {f.lane} by a shuffle that lane {f.lane} does not execute"
    return Finding(
        CHECK_OF[f.kind],
        f"{here}: {text}",
        (_short(here), _short(there)) if both else (_short(here),),
        (a, b) if both else (a,),
        f.count,
        f.kind == NEVER_WRITTEN and f.region == SHARED,
        f.kind == RACE and f.lane == SAME,
    )


def place_of(where: int) -> str:
    """The rung's own line first, then the calls from there to the instruction:
    "cuda_block.cu:36, in reduce.cuh:47"."""
    if not where:
        return ""
    frames = [f for f in messages.frames_of(where) if not is_of_the_emulator(f[1])]
    own = [f"{Path(p).name}:{n}" for _, p, n in frames if Path(p).suffix == ".cu"]
    headers = [f"{Path(p).name}:{n}" for _, p, n in frames if Path(p).suffix != ".cu"]
    if not frames:
        return hex(where)
    first, *callers = own or headers
    text = first + "".join(f", called from {c}" for c in dict.fromkeys(callers))
    return text + (f", in {headers[0]}" if own and headers else "")


def is_of_the_emulator(path: str) -> bool:
    """Also true for another checkout, whose libraries are in the same cache."""
    return "/kernelwright/emulator/" in path


def _short(place: str) -> str:
    return place.split(",")[0]


def _thread(side: RawSide, call: Call) -> str:
    t, b = side.thread, side.block
    flat = call.block[1:] == (1, 1)
    thread = f"{t.x}" if flat else f"({t.x}, {t.y}, {t.z})"
    return f"thread {thread} of {_block((b.x, b.y, b.z))}"


def _block(index: tuple[int, int, int]) -> str:
    x, y, z = index
    return f"block {x}" if not (y or z) else f"block ({x}, {y}, {z})"


def _index(number: int, call: Call) -> tuple[int, int, int]:
    x, y, _ = call.grid
    return number % x, number // x % y, number // x // y


def _swizzle(bytes: int) -> str:
    return f"a swizzle of {bytes} bytes" if bytes else "no swizzle"


def _units(swizzle: int) -> str:
    """The units of 16 bytes at which the first one of each of eight lines is."""
    return " ".join(str(line & (swizzle // 16 - 1) if swizzle else 0) for line in range(8))


def _counts(side: RawSide) -> str:
    if side.kind & ENGINE:
        return "begins a copy that counts bytes at"
    return "counts bytes at" if side.kind & SENT else "uses"


def _does(side: RawSide) -> str:
    if side.kind & ENGINE:
        return "copies to" if side.kind & WRITE else "lets an asynchronous instruction read"
    if side.kind & SENT:
        return "sends"
    return (
        "atomically updates" if side.kind & ATOMIC else "writes" if side.kind & WRITE else "reads"
    )


def _done(side: RawSide) -> str:
    if side.kind & ENGINE:
        return (
            "copied" if side.kind & WRITE else "read by the asynchronous instruction that is issued"
        )
    if side.kind & SENT:
        return "sent"
    return "updated" if side.kind & ATOMIC else "written" if side.kind & WRITE else "read"


def _bytes(n: int) -> str:
    return "1 byte" if n == 1 else f"{n} bytes"


def _what(f: RawFinding, call: Call) -> str:
    """The memory of an access: "x[17]" or "bytes 16 to 19 of scratch"."""
    if f.region in call.memory:
        m = call.memory[f.region]
        first, last = f.offset // m.itemsize, (f.offset + f.bytes - 1) // m.itemsize
        return f"{m.name}[{first}]" if first == last else f"{m.name}[{first}] to [{last}]"
    if f.region != SHARED:
        return f"address {f.address:#x}"
    if f.offset >= call.static and call.dynamic:
        name, offset = "dynamic shared memory", f.offset - call.static
    else:
        name, offset = _variable(f, call)
    of_block = f" of {_block(_index(f.owner, call))}" if call.cluster > 1 else ""
    return f"bytes {offset} to {offset + f.bytes - 1} of {name}{of_block}"


def _variable(f: RawFinding, call: Call) -> tuple[str, int]:
    """The static variable that holds a byte, or the last one before it; and the offset in it."""
    before = [(at, name) for (at, _), name in sorted(call.variables.items()) if at <= f.offset]
    at, name = before[-1] if before else (0, "shared memory")
    return name, f.offset - at


def _unordered(f: RawFinding, call: Call) -> str:
    a, b = f.a, f.b
    if b.kind & ENGINE and not b.kind & WRITE:
        return "with no wait for its end in between"
    if a.kind & ENGINE and not b.kind & SENT:
        return "with no barrier in between"
    if (a.kind | b.kind) & SENT:
        return "with no wait for an mbarrier in between"
    if (a.block.x, a.block.y, a.block.z) != (b.block.x, b.block.y, b.block.z):
        return f"with no fence and atomic to order the blocks{_missing(f, call)}"
    x, y, _ = call.block
    warp_a, warp_b = ((t.x + x * (t.y + y * t.z)) // 32 for t in (a.thread, b.thread))
    return f"with no {'__syncwarp' if warp_a == warp_b else 'barrier'} in between"


def _missing(f: RawFinding, call: Call) -> str:
    """Which side of a race between blocks does not do its part."""
    first, second = _thread(f.b, call), _thread(f.a, call)
    explanations = {
        RELEASES: f"{first} has no fence after its access that an atomic or volatile write follows",
        READS: f"{second} has not read, by an atomic or volatile read, what {first} released",
        ACQUIRES: f"{second} has read what {first} released, but has no fence after that",
        NO_LATER: f"{second} has read what {first} released, but its fence is before that",
    }
    return f": {explanations[f.missing]}" if f.missing in explanations else ""


def _outside(f: RawFinding, call: Call) -> str:
    if f.region in call.memory:
        m = call.memory[f.region]
        if f.offset < 0:
            return f"that start {_bytes(-f.offset)} before {m.name}"
        beyond = f.offset + f.bytes - m.bytes
        if beyond > 0:
            return f"that end {_bytes(beyond)} after {m.name}, which has {_bytes(m.bytes)}"
        return f"between the elements of {m.name}, {_bytes(f.offset)} after its start"
    if f.region == SHARED:
        if f.offset >= call.static and call.dynamic:
            behind = f.offset - call.static
            return f"at byte {behind} of dynamic shared memory, which has {_bytes(call.dynamic)}"
        name, offset = _variable(f, call)
        size = next(
            (n for (at, n), v in call.variables.items() if (at, v) == (f.offset - offset, name)), 0
        )
        return f"at byte {offset} of the shared variable {name}, which has {_bytes(size)}"
    if f.address < 4096:
        return "through a null pointer" + (f", at {f.address:#x}" if f.address else "")
    return f"at {f.address:#x}, which belongs to no argument of {call.kernel}"


def error_finding(message: str, findings: Sequence[Finding]) -> list[Finding]:
    """The error that ended a launch, unless the findings include it already."""
    if "stopped before it writes" in message:
        return []
    if "touches the address" in message or "touches a misaligned" in message:
        return [] if any(f.check == "bounds" for f in findings) else [Finding("bounds", message)]
    ways = re.findall(r"[\w.]+\.cuh?:\d+(?:, called from [\w.]+\.cuh?:\d+)*", message)
    lines = tuple(dict.fromkeys(_own(way.split(", called from ")) for way in ways))
    return [Finding(_check_of(message), message, lines)]


def _check_of(message: str) -> str:
    outside = ("which has ended", "sends to byte", "of a cluster that has", "takes the address")
    if any(w in message for w in outside):
        return "bounds"
    hangs = (
        "is deadlocked", "has threads at different barriers", "its own mask", "waits for something",
        "the cluster's barrier", "mbarrier",
    )  # fmt: skip
    return "divergence" if any(h in message for h in hangs) else "error"


def _own(way: list[str]) -> str:
    """The rung's own line among those that lead to an instruction."""
    return next((line for line in way if ".cu:" in line), way[0])
