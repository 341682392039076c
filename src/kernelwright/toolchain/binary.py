"""Static properties of a compiled kernel: registers, spills, shared memory, occupancy, instruction
mix.

All are read from the compiler's output and need no GPU. Instruction counts are static: they count
the code, not what is executed.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from kernelwright.support.errors import ToolchainError

from . import tools
from .compiled import Compiled


@dataclass(frozen=True)
class SmLimits:
    """Limits of one SM by compute capability (CUDA C++ Programming Guide, Technical Specifications
    per Compute Capability)."""

    warps: int
    blocks: int
    shared: int  # bytes per SM
    shared_per_block: int  # bytes a block may opt in to
    registers: int = 65536


SM_LIMITS = {
    (8, 0): SmLimits(64, 32, 164 * 1024, 163 * 1024),
    (8, 6): SmLimits(48, 16, 100 * 1024, 99 * 1024),
    (8, 7): SmLimits(48, 16, 164 * 1024, 163 * 1024),
    (8, 9): SmLimits(48, 24, 100 * 1024, 99 * 1024),
    (9, 0): SmLimits(64, 32, 228 * 1024, 227 * 1024),
    (10, 0): SmLimits(64, 32, 228 * 1024, 227 * 1024),
    (10, 3): SmLimits(64, 32, 228 * 1024, 227 * 1024),
    (12, 0): SmLimits(48, 24, 100 * 1024, 99 * 1024),
}
_RESERVED_SHARED = 1024  # bytes per block, reserved by the system
_SHARED_UNIT, _REGISTER_UNIT, _PARTITIONS = 128, 256, 4


@dataclass(frozen=True)
class Resources:
    """Resources of a kernel: registers per thread; in bytes, stack and spills per thread and shared
    memory per block."""

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    static_shared: int
    barriers: int = 0


@dataclass(frozen=True)
class Occupancy:
    """Occupancy of an SM by a launch, and the resource that limits it."""

    blocks: int  # per SM
    warps: int  # per SM
    fraction: float
    limit: str  # "warps", "blocks", "registers" or "shared memory"


@dataclass(frozen=True)
class Instructions:
    """Instruction counts of a kernel's code. Widths are in bits."""

    total: int
    global_loads: dict[int, int] = field(default_factory=dict)
    global_stores: dict[int, int] = field(default_factory=dict)
    async_copies: int = 0
    shared_loads: int = 0
    shared_stores: int = 0
    local: int = 0  # spills, or arrays that registers cannot index
    shuffles: int = 0
    barriers: int = 0
    special: dict[str, int] = field(default_factory=dict)  # MUFU by function: EX2, RCP, ...
    tensor_core: int = 0
    atomics: int = 0


def capability(arch: str) -> tuple[int, int]:
    """(9, 0) of "sm_90a".

    Raises:
        ValueError: naming the argument.
    """
    match = re.fullmatch(r"sm_(\d+)(\d)[af]?", arch)
    if not match:
        raise ValueError(f'arch: {arch!r} is not an architecture; write it like "sm_90a"')
    return int(match[1]), int(match[2])


def sm_limits(arch: str) -> SmLimits:
    """The SM limits of an architecture. Raises ValueError where they are not known."""
    if capability(arch) not in SM_LIMITS:
        known = ", ".join(f"sm_{a}{b}" for a, b in SM_LIMITS)
        raise ValueError(f"arch: the limits of {arch} are not known; those of {known} are")
    return SM_LIMITS[capability(arch)]


def resources(compiled: Compiled) -> Resources:
    """The resources that `ptxas -v` reports; cuobjdump's LOCAL does not include spills.

    Raises:
        ToolchainError: the log does not mention the kernel.
    """
    log = compiled.log
    if compiled.ttgir:  # triton keeps no log, so its ptxas is run again
        _, log = tools.assemble(compiled.ptx, compiled.arch, tools.tritons_ptxas(compiled.arch))
    part = log.partition(f"Compiling entry function '{compiled.name}'")[2]
    part = part.partition("Compiling entry function")[0]
    used = re.search(r"Used (\d+) registers", part)
    frame = re.search(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part
    )
    if not used or not frame:
        raise ToolchainError(f"ptxas reported nothing about {compiled.name}")
    shared, barriers = re.search(r"(\d+) bytes smem", part), re.search(r"used (\d+) barr", part)
    return Resources(
        registers=int(used[1]),
        stack=int(frame[1]),
        spill_stores=int(frame[2]),
        spill_loads=int(frame[3]),
        static_shared=int(shared[1]) if shared else 0,
        barriers=int(barriers[1]) if barriers else 0,
    )


def serialized_products(compiled: Compiled) -> list[str]:
    """ptxas's warnings about wgmma instructions that it serializes (C7510 and others): most of
    their rate is lost."""
    return [x for x in compiled.log.splitlines() if re.search(r"wgmma.*serialized", x)]


def occupancy(arch: str, threads: int, registers: int, shared: int) -> Occupancy:
    """Occupancy of blocks of `threads` with `shared` bytes, static and dynamic together."""
    sm = sm_limits(arch)
    warps = -(-threads // 32)
    by = {"warps": sm.warps // warps, "blocks": sm.blocks}
    # a warp's registers are allocated in units from one of the SM's four register files
    a_warp = -(-registers * 32 // _REGISTER_UNIT) * _REGISTER_UNIT
    if a_warp:
        held = sm.registers // _PARTITIONS // a_warp * _PARTITIONS
        by["registers"] = held // warps
    a_block = -(-(shared + _RESERVED_SHARED) // _SHARED_UNIT) * _SHARED_UNIT
    by["shared memory"] = sm.shared // a_block if shared <= sm.shared_per_block else 0
    limit = min(by, key=by.__getitem__)
    blocks = by[limit]
    return Occupancy(blocks, blocks * warps, blocks * warps / sm.warps, limit)


def sass(compiled: Compiled) -> str:
    """The kernel's machine code, disassembled; without the cubin's other kernels."""
    sections = re.split(r"(?m)^//-+ +(\S+) +-+$", tools.disassemble(compiled.cubin))
    for name, text in zip(sections[1::2], sections[2::2], strict=True):
        if name == f".text.{compiled.name}":
            return text.strip("\n") + "\n"
    raise ToolchainError(f"{compiled.name} is not in its cubin")


_LINE = re.compile(r"(?m)^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_TENSOR_CORE = re.compile(r"(H|I|D|Q|B|O|UTC[HIQO]?)(G?)MMA")


def instructions(code: str) -> Instructions:
    """Instruction counts of SASS text."""
    opcodes = [m[1] for m in _LINE.finditer(code)]
    names = [f.split(".")[0] for f in opcodes]
    by = Counter(names)

    def widths(name: str) -> dict[int, int]:
        counts = Counter(_width(f) for f, n in zip(opcodes, names, strict=True) if n == name)
        return dict(sorted(counts.items()))

    def many(*wanted: str) -> int:
        return sum(by[w] for w in wanted)

    return Instructions(
        total=len(opcodes) - by["NOP"],
        global_loads=widths("LDG"),
        global_stores=widths("STG"),
        async_copies=many("LDGSTS", "UBLKCP", "UTMALDG", "UTMASTG", "UTMAREDG"),
        shared_loads=many("LDS", "LDSM"),
        shared_stores=many("STS", "STSM"),
        local=many("LDL", "STL"),
        shuffles=many("SHFL", "REDUX", "CREDUX"),
        barriers=many("BAR", "SYNCS", "UCGABAR_ARV", "UCGABAR_WAIT"),
        special=dict(
            sorted(Counter(f.split(".")[1] for f in opcodes if f.startswith("MUFU.")).items())
        ),
        tensor_core=sum(n for name, n in by.items() if _TENSOR_CORE.fullmatch(name)),
        atomics=many("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "ATOMSG"),
    )


def _width(instruction: str) -> int:
    """Bits that one thread moves."""
    for part in instruction.split(".")[1:]:
        digits = part.lstrip("USF")
        if digits in ("8", "16", "64", "128", "256") and len(part) - len(digits) <= 1:
            return int(digits)
    return 32
