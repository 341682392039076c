"""Whole CUDA programs on the CPU: a .cu file with its host code, built and run as it is.

    tokens.py          C++ text as tokens
    cuda_builtins.py   CUDA's built-in names
    rewrite.py         launches, asm statements and extern shared arrays as C++
    asm.py             asm statements
    lockstep.py        accesses to volatile memory
    poison_locals.py   variables without a value, for the checks
    side_effects.py    whether kernels do more than write to memory
    loops/             code between barriers as loops over the threads of a block
    options.py         -D, -I and -std
    project.py         the folders in which a program's files are searched
    sources.py         the program's files
    torch_bindings.py  code that binds kernels to PyTorch, which is left out
    build.py           the executable
    run.py             runs it and reads the runtime's report
    checks.py          findings of the checks
    dissect.py         costs of accesses by line
    addr2line.py       addresses as lines
    sizes.py           names that decide how much work a program is
    errors.py          messages of the compiler
    host/              the host API: memory, launches, streams, events, graphs, device properties
    ../include/program headers of CUDA for programs, beside those for kernels
    ../libraries/      NVIDIA's libraries

Device memory is memory of the process; work in streams is done when it is issued.
"""

from __future__ import annotations

from .options import Options, options
from .project import include_folders
from .run import Note, Result, debug_build, included_libraries, run

__all__ = [
    "Note",
    "Options",
    "Result",
    "debug_build",
    "include_folders",
    "included_libraries",
    "options",
    "run",
]
