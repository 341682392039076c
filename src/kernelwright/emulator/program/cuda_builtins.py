"""CUDA's built-in names: one row for each name, or for each family of names.

What the analysis of a program's text (loops/, asm.py, lockstep.py, side_effects.py and others) asks
about names is derived from these rows. To add a built-in, add a row; no other module
lists them. A test compares the rows with the functions that the emulator's headers declare.

Kinds:
    math            functions of numbers
    thread          functions of one thread's values and memory, whichever thread it is
    fundamental     types of C++ and
    type            of CUDA, which may stand before an argument list as a cast
    keyword         words of C++ that may stand before an argument list
    atomic          atomic read-modify-write operations
    barrier, warp   barriers of a block, operations of a warp
    fence, wait     memory fences; waits for time, copies, clusters
    group           cooperative groups, their members and functions
    operator        of cooperative groups: functions of two values
    library         namespaces of libraries that use any of these
    asm, volatile   the words of asm statements and of volatile accesses
    index, launch   variables that differ between threads; that are the same for a block
    qualifier       of functions for the device
    effect, clock   functions whose effect is more than a write to memory; that read the time
    address, stop   functions of address spaces; that stop a launch: both depend on the thread
    unsupported     what else prevents loops over the threads of a block
    generated       names that the emulator writes itself
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

#: Reinterpretation of the bits of a number.
BIT_CAST = re.compile(r"__\w+_as_\w+")


@dataclass(frozen=True)
class Builtin:
    """A name, or a family of names.

    Attributes:
        names: a regular expression of whole names; spaces are ignored.
        kind: see the module.
        loops: of what threads synchronize by, whether it may stand in a kernel that runs as loops
            over the threads of a block.
        uniform: of a function, whether its result is the same for all threads if its arguments are.
        waits: of an atomic operation, whether code may use it to wait for other threads.
        tile: of a warp operation, whether a tile of a warp has it as a member.
    """

    names: str
    kind: str
    loops: bool = False
    uniform: bool = False
    waits: bool = False
    tile: bool = False


TABLE: list[Builtin] = [
    # ---- operations of a warp
    Builtin("__shfl(?:_up|_down|_xor)?(?:_sync)?", "warp", loops=True, tile=True),
    Builtin("__(?:ballot|any|all)(?:_sync)?", "warp", loops=True, tile=True),
    Builtin("__uni_sync | __match_any_sync | __reduce_\\w+_sync", "warp", loops=True),
    Builtin("__syncwarp | __activemask", "warp", loops=True),
    Builtin("__(?:shfl|ballot|any|all|match)\\w+", "warp"),
    # ---- what orders threads
    Builtin("__syncthreads", "barrier", loops=True),
    Builtin("__syncthreads_\\w+", "barrier"),
    Builtin("__threadfence\\w*", "fence"),
    Builtin("__nanosleep | __pipeline_\\w+ | __cluster\\w*", "wait"),
    Builtin("volatile | __volatile__ | __volatile", "volatile", loops=True),
    Builtin("asm | __asm__ | __asm", "asm"),
    Builtin("atomicCAS\\w* | atomicExch\\w*", "atomic", waits=True),
    Builtin("atomic[A-Z]\\w*", "atomic"),
    # ---- cooperative groups, libcu++
    Builtin("sync | tiled_partition", "group", loops=True),
    Builtin("(?:binary|labeled)_partition | coalesced_(?:threads|group)", "group"),
    Builtin("this_(?:thread_block|grid|multi_grid|cluster|thread)", "group"),
    Builtin("(?:multi_grid|grid|cluster|thread)_group", "group"),
    Builtin("thread_block(?:_tile)? | block_tile_memory", "group"),
    Builtin("memcpy_async | atomic_ref | arrive(?:_and_(?:wait|drop))?", "group"),
    Builtin("barrier_(?:arrive|wait)", "group"),
    Builtin("plus | less | greater | bit_(?:and|or|xor)", "operator"),
    Builtin("cub | wmma | nvcuda | cuda", "library"),
    # ---- functions of numbers
    Builtin(
        r"""(?: sqrt | cbrt | rsqrt | rcbrt | fabs | fmin | fmax | fma | fmod | pow | exp | exp2
        | exp10 | expm1 | log | log2 | log10 | log1p | sin | cos | tan | asin | acos | atan | atan2
        | sinh | cosh | tanh | erf | erfc | floor | ceil | round | rint | trunc | nearbyint | hypot
        | copysign | ldexp | sinpi | cospi | fdim | fdivide )f?""",
        "math",
        uniform=True,
    ),
    Builtin("min | max | abs | labs | umin | umax", "math", uniform=True),
    Builtin("isnan | isinf | isfinite | signbit", "math", uniform=True),
    Builtin(r"__f\w+ | __d\w+_r[nzud] | __exp\w*f | __log\w*f | __powf", "math", uniform=True),
    Builtin("__sinf | __cosf | __tanf | __tanhf | __saturatef", "math", uniform=True),
    Builtin(rf"__\w+2\w+ | {BIT_CAST.pattern}", "math", uniform=True),  # conversions
    Builtin("__(?:popc|clz|ffs|brev)(?:ll)? | __byte_perm", "math", uniform=True),
    Builtin("__u?mul24 | __u?mulhi | __u?sad | __dp[24]a", "math", uniform=True),
    Builtin("__u?mul64hi | __u?r?hadd", "math", uniform=True),
    # ---- functions of one thread
    Builtin(r"sincosf? | __sincosf | __h\w+ | make_\w+", "thread"),
    Builtin("__ldg | __ldc[agsv] | __stc[gs] | __stw[bt]", "thread"),
    Builtin("__cvta_\\w+ | __is(?:Global|Local|Shared)", "address"),
    Builtin("__trap | __brkpt | __prof_trigger", "stop"),
    # ---- types and keywords, as they stand before an argument list
    Builtin("bool | char | short | int | long | float | double", "fundamental", uniform=True),
    Builtin("unsigned | signed", "fundamental", uniform=True),
    Builtin("u?int(?:8|16|32|64)_t | size_t | uint | dim3", "type", uniform=True),
    Builtin("(?:float|double)[1-4] | u?(?:char|short|int|long|longlong)[1-4]", "type"),
    Builtin("(?:__)?half2? | (?:__)?nv_bfloat162?", "type"),
    Builtin("sizeof | static_cast", "keyword", uniform=True),
    Builtin("alignof | decltype | reinterpret_cast | const_cast | constexpr", "keyword"),
    Builtin("if | for | while | switch | return", "keyword"),
    # ---- variables
    Builtin("threadIdx", "index"),
    Builtin("blockIdx | blockDim | gridDim | warpSize", "launch"),
    # ---- qualifiers, effects
    Builtin("__global__ | __device__", "qualifier"),
    Builtin("printf | puts | putchar | malloc | calloc | free | new | delete", "effect"),
    Builtin("clock | clock64", "clock"),
    Builtin("thread_local | setjmp | alloca", "unsupported"),
    # ---- what the emulator writes: kw_ names anything of the runtime
    Builtin("KwWarpAsm", "generated", loops=True),
    Builtin(r"KwAny | KwFrom | operands_\w+ | tile_mask | tile_rank", "generated"),
    Builtin(r"kw_\w+", "unsupported"),
]

#: Statements that are a barrier of the block; {} is the name of its group.
BLOCK_BARRIERS = (
    "__syncthreads();",
    "this_thread_block().sync();",
    "{}.sync();",
    "sync({});",
    "sync(this_thread_block());",
)
#: Members of a tile of {n} threads, and of a block's group, in loops over the threads of a block.
TILE_MEMBERS = {
    "thread_rank": "kw::loops::tile_rank<{n}>(KwThread)",
    "size": "unsigned({n})",
    "num_threads": "unsigned({n})",
    "meta_group_rank": "unsigned(KwThread / ({n}))",
    "meta_group_size": "((KwCount + ({n}) - 1) / ({n}))",
}
BLOCK_MEMBERS = {
    "thread_rank": "unsigned(KwThread)",
    "size": "KwCount",
    "num_threads": "KwCount",
    "thread_index": "threadIdx",
    "group_index": "blockIdx",
    "group_dim": "blockDim",
    "dim_threads": "blockDim",
}


def rows(*kinds: str) -> list[Builtin]:
    """The rows of some kinds."""
    return [row for row in TABLE if row.kind in kinds]


def pattern(of: Iterable[Builtin]) -> re.Pattern[str]:
    """The names in rows, for fullmatch, and for search in a text."""
    every = "|".join(row.names for row in of)
    return re.compile(rf"\b(?:{every})\b", re.X)


def names_of(*kinds: str) -> frozenset[str]:
    """The names of some kinds, none of which is a family of names."""
    every = [name.strip() for row in rows(*kinds) for name in row.names.split("|")]
    assert all(map(str.isidentifier, every)), every
    return frozenset(every)
