"""Compiles Triton kernels to cubins ahead of time, for any architecture, without a GPU."""

from __future__ import annotations

import threading
from pathlib import Path

from kernelwright.contract import TritonKernel
from kernelwright.support import cache
from kernelwright.support.errors import CompileError, ToolchainError

from . import tools
from .compiled import Compiled

# (type in Triton's signature, divisible by 16), one for each argument that is not a constexpr
Kinds = tuple[tuple[str, bool], ...]

TYPES = {
    "torch.float64": "fp64",
    "torch.float32": "fp32",
    "torch.float16": "fp16",
    "torch.bfloat16": "bf16",
    "torch.float8_e4m3fn": "fp8e4nv",
    "torch.float8_e5m2": "fp8e5",
    "torch.int64": "i64",
    "torch.int32": "i32",
    "torch.int16": "i16",
    "torch.int8": "i8",
    "torch.uint64": "u64",
    "torch.uint32": "u32",
    "torch.uint16": "u16",
    "torch.uint8": "u8",
    "torch.bool": "i1",
}
SCALARS = {"i32": "i32", "i64": "i64", "f32": "fp32", "f64": "fp64"}

_made: dict[tuple, Compiled] = {}
_alone = threading.Lock()  # triton has one compilation folder per process


def compile(kernel: TritonKernel, kinds: Kinds, arch: str) -> Compiled:
    """`kernel` for `arch`, from the cache if nothing that it depends on has changed.

    Unlike with triton's own launch, integers equal to 1 remain arguments. What must be specialised
    on them belongs in `TritonKernel.constexprs`, which the interpreter uses too.

    Raises:
        CompileError: compilation fails; the message is triton's.
        ToolchainError: triton interprets in this process.
    """
    import triton
    from triton.compiler import ASTSource

    fn = kernel.fn
    if not isinstance(fn, triton.JITFunction):
        raise ToolchainError(
            f"{fn.__name__}: triton interprets in this process and cannot compile; "
            "call kernelwright.toolchain.modes.compile_only() before the first rung is imported"
        )
    key = (fn, repr(sorted(kernel.constexprs.items())), kinds, kernel.num_warps,
           kernel.num_stages, arch)  # fmt: skip
    if key in _made:
        return _made[key]
    signature, attributes, options = specialised(kernel, kinds)
    source = ASTSource(fn, signature, kernel.constexprs, attributes)
    what = f"compiling {fn.__name__} for {arch}"

    def build(_: Path) -> cache.Files:
        return _compiled(source, options, arch).files()

    entry = cache.get_or_build("triton", _key(source, options, arch), what, build)
    _made[key] = Compiled.of(cache.read(entry))
    return _made[key]


def _key(source, options: dict, arch: str) -> str:
    """A key of a kernel's sources, its compiler, and the settings that affect triton's code."""
    import triton
    from triton._C.libtriton import get_cache_invalidating_env_vars

    settings = sorted(get_cache_invalidating_env_vars().items())
    ptxas = str(tools.tritons_ptxas(arch))
    return cache.key(
        [triton.__version__, source.hash(), repr(options), arch, ptxas, repr(settings)]
    )


def _compiled(source, options: dict, arch: str) -> Compiled:
    import triton
    from triton.backends.compiler import GPUTarget

    name = source.fn.__name__
    target = GPUTarget("cuda", int("".join(filter(str.isdigit, arch))), 32)
    try:
        # triton's own cache would store all files a second time, without checksums; files that
        # other threads compile meanwhile go here too
        with _alone, triton.knobs.cache.scope():
            triton.knobs.cache.dir = str(cache.of_process())
            kernel = triton.compile(source, target=target, options=options)
    except Exception as e:  # each stage of triton raises its own types
        raise CompileError(f"triton rejected {name} for {arch}:\n{e}") from e
    facts = kernel.metadata
    if facts.global_scratch_size:
        raise ToolchainError(
            f"{name} needs {facts.global_scratch_size} bytes of triton's global scratch per "
            "program; tensor descriptors made inside a kernel are not supported"
        )
    return Compiled(
        name=facts.name,
        arch=arch,
        cubin=kernel.asm["cubin"],
        ptx=kernel.asm["ptx"],
        ttgir=kernel.asm["ttgir"],
        shared=facts.shared,
        threads=32 * facts.num_warps,
    )


def specialised(kernel: TritonKernel, kinds: Kinds) -> tuple[dict, dict, dict]:
    """What triton specializes a kernel on besides its constexprs: the arguments' types, which of
    them are divisible by 16, and options.

    Raises:
        ToolchainError: the plan's arguments do not match the kernel's parameters.
    """
    signature, attributes = {}, {}
    rest = iter(kinds)
    for i, name in enumerate(kernel.fn.arg_names):
        if name in kernel.constexprs:
            signature[name] = "constexpr"
            continue
        kind, divisible = next(rest, (None, False))
        if kind is None:
            raise ToolchainError(f"{kernel.fn.__name__}: its plan passes no {name}")
        signature[name] = kind
        if divisible:
            attributes[(i,)] = [["tt.divisibility", 16]]
    if next(rest, None) is not None:
        raise ToolchainError(f"{kernel.fn.__name__}: its plan passes more arguments than it takes")
    options = {"num_warps": kernel.num_warps, "num_stages": kernel.num_stages}
    return signature, attributes, options
