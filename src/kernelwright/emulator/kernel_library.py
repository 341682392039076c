"""Loads libraries of kernels, launches kernels, and maps addresses to positions in library files.

Imports only the standard library, because subprocess_main.py, a process without PyTorch,
imports it too.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Any

SCALARS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float, "f64": c_double,
           "pointer": c_void_p}  # fmt: skip
ALIGNED = 64  # bytes; no parameter needs a larger alignment
#: A key of SCALARS and a value, which is the address of a pointer; or "struct" and its bytes in
#: hexadecimal.
Argument = tuple[str, int | float | str]


class Index(Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]


class Library(Structure):
    _fields_ = [("module", c_uint64), ("bytes", c_uint64), ("dynamic", c_uint64)]


class RawLaunch(Structure):
    """runtime.h's Launch."""

    _fields_ = [
        ("entry", c_void_p),
        ("arguments", c_void_p),
        ("library", Library),
        ("grid", Index),
        ("block", Index),
        ("shared", c_uint64),
        ("seed", c_uint64),
        ("block_seed", c_uint64),
        ("patience", c_double),
        ("workers", c_uint),
        ("cluster", c_uint),
        ("observer", c_void_p),
    ]


@cache
def runtime(path: str) -> ctypes.CDLL:
    lib = ctypes.CDLL(path)
    lib.kw_launch.argtypes, lib.kw_launch.restype = (POINTER(RawLaunch),), c_char_p
    lib.kw_library.argtypes = (c_void_p, c_void_p, POINTER(Library))
    lib.kw_library.restype = ctypes.c_bool
    return lib


@cache
def load(path: str, runtimes: str) -> tuple[ctypes.CDLL, Library]:
    """A library of kernels, and its shared memory. `runtimes`: the runtime's library."""
    lib = ctypes.CDLL(path, mode=os.RTLD_NOW)
    lib.kw_dynamic_shared.restype = c_void_p
    shared = Library()
    inside = ctypes.cast(lib.kw_run_0, c_void_p)
    runtime(runtimes).kw_library(inside, lib.kw_dynamic_shared(), byref(shared))
    return lib, shared


def parameter_kinds(path: str, runtimes: str, number: int) -> tuple[str, ...]:
    """The kinds of a kernel's parameters."""
    listed = getattr(load(path, runtimes)[0], f"kw_kinds_{number}")
    listed.restype = POINTER(c_char_p)
    listing, names = listed(), []
    while (name := listing[len(names)]) is not None:
        names.append(name.decode())
    return tuple(names)


def launch(
    *,
    path: str,
    runtimes: str,
    number: int,
    arguments: Sequence[Argument],
    grid: Sequence[int],
    block: Sequence[int],
    **fields: float | None,
) -> str | None:
    """Run kernel `number` of a library. Returns None or an error message, in which instructions are
    written "@file@0x7f@", with the address in that file.

    Args:
        fields: the other fields of `Launch`.
    """
    lib, shared = load(path, runtimes)
    held = [_held(kind, value) for kind, value in arguments]
    pointers = (c_void_p * len(held))(*(address for _, address in held))
    it = RawLaunch(
        entry=ctypes.cast(getattr(lib, f"kw_run_{number}"), c_void_p).value,
        arguments=ctypes.addressof(pointers),
        library=shared,
        grid=Index(*grid),
        block=Index(*block),
        **fields,
    )
    wrong = runtime(runtimes).kw_launch(byref(it))
    return _with_files(wrong.decode(errors="replace")) if wrong else None


def _held(kind: str, value: float | str) -> tuple[Any, int]:
    """An object that holds an argument, and its address."""
    if kind != "struct":
        scalar = SCALARS[kind](value)
        return scalar, ctypes.addressof(scalar)
    data = bytes.fromhex(str(value))
    buffer = ctypes.create_string_buffer(len(data) + ALIGNED)
    address = -(-ctypes.addressof(buffer) // ALIGNED) * ALIGNED
    ctypes.memmove(address, data, len(data))
    return buffer, address


def _with_files(message: str) -> str:
    def placed(match: re.Match[str]) -> str:
        path, inside = position_in_file(int(match[1], 16))
        return f"@{path}@{inside:#x}@"

    return re.sub(r"@(0x[0-9a-f]+)@", placed, message)


def position_in_file(address: int) -> tuple[str, int]:
    """The library that contains an address, and the corresponding address in its file."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, _, offset, _, _, *path = line.split(maxsplit=5)
            start, end = (int(x, 16) for x in span.split("-"))
            if path and start <= address < end:
                file = path[0].rstrip("\n")
                return file, _virtual(file, address - start + int(offset, 16))
    return "", address


@cache
def _segments(path: str) -> tuple[tuple[int, int, int], ...]:
    """(offset in the file, address, bytes) of a library file's loadable segments."""
    with open(path, "rb") as file:
        data = file.read()
    headers, size, count = (
        int.from_bytes(data[32:40], "little"),
        int.from_bytes(data[54:56], "little"),
        int.from_bytes(data[56:58], "little"),
    )
    segments = []
    for at in range(headers, headers + size * count, size):
        if int.from_bytes(data[at : at + 4], "little") == 1:
            offset, address, _, length = (
                int.from_bytes(data[at + k : at + k + 8], "little") for k in (8, 16, 24, 32)
            )
            segments.append((offset, address, length))
    return tuple(segments)


def _virtual(path: str, offset: int) -> int:
    """The virtual address of an offset in a library file."""
    for begin, address, length in _segments(path):
        if begin <= offset < begin + length:
            return offset - begin + address
    return offset
