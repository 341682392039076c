"""Proof: a rung is dispatched by default only if its current source has passed on a GPU.

`source_hash` covers everything that determines, for a given call and config, a rung's machine code
and launches:

- the definitions in this package that its entry uses and, for a GPU rung, those that its `supports`
  function uses (`support.imports`);
- for a GPU rung, the definitions that every plan uses, a tensor's spec and a GPU (`ARGUMENTS`), and
  the compilers' options (`COMPILER`);
- its CUDA C++ sources and the headers that they include (`support.includes`).

These are hashed in forms that leave out what changes no launch: comments, docstrings, layout,
annotations, messages and local names (`support.python_form`, `support.cuda_form`), and reasons that
nothing reads (`support.reasons`). Not covered are the selection of rungs and configs, since each is
proven separately; the operator's specification, which belongs to no rung; the code that launches
plans, which is the same for all; and another operator's public function, whose rungs have hashes of
their own. Versions of compilers and libraries are stored in the records.

A checkout computes its hashes. An installed package ships them in `data/hashes.json`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from functools import cache
from itertools import chain
from pathlib import Path

from kernelwright.contract import Ladder, Rung
from kernelwright.support import cuda_form, includes
from kernelwright.support.imports import CannotFollow, Packages, Target
from kernelwright.support.settings import CHECKOUT, DATA, settings

from . import data

PACKAGE = __name__.split(".")[0]
PROVEN = DATA / "proven.json"
HASHES = DATA / "hashes.json"

ARGUMENTS = ("contract.signature", "TensorSpec"), ("contract.operator", "Gpu")
COMPILER = {
    "cuda": (("toolchain.nvrtc", "FLAGS"),),
    "triton": (("toolchain.build", "_triton"), ("toolchain.triton_aot", "specialised")),
}


@cache
def source_hash(ladder: Ladder, rung: Rung) -> str:
    """First 16 hex digits of the SHA-256 of everything that the rung depends on.

    Raises:
        CannotFollow: a part of the rung is looked up by a name that does not appear in its code.
    """
    if ladder.package.startswith(f"{PACKAGE}.") and not CHECKOUT:
        return _hashes()[f"{ladder.name}.{rung.name}"]
    return computed_hash(ladder, rung)


def computed_hash(ladder: Ladder, rung: Rung, package: str = PACKAGE) -> str:
    """`source_hash` computed from the current files.

    Args:
        package: the import name of the Kernelwright that the ladder belongs to: this one or another
            commit's. The name itself is not hashed.
    """
    digest = hashlib.sha256()
    shared = _shared(package, rung.backend) if rung.is_gpu else ()
    for part in (*parts(ladder, rung, package), *shared):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:16]


def parts(ladder: Ladder, rung: Rung, package: str = PACKAGE) -> list[str]:
    """Names and code of the rung's own parts: its entry, its `supports`, its sources."""
    packages = _packages(package, ladder.package)
    texts = packages.texts([_entry(ladder, rung)], _supports(ladder, rung))
    texts.append(rung.entry.split(":")[1])
    # two folders may have a header of the same name
    files = sorted(_files(ladder, rung, package))
    for name, code in sorted(zip((p.name for p in files), cuda_form.codes(files), strict=True)):
        texts += name, code
    return texts


def proven_on(ladder: Ladder, rung: Rung) -> tuple[str, ...]:
    """Machines on which the rung's current source passed."""
    return tuple(_proven().get(f"{ladder.name}.{rung.name}", {}).get(source_hash(ladder, rung), ()))


@cache
def _proven() -> dict[str, dict[str, list[str]]]:
    """The proofs in the shipped and the user's own records: machines by hash by rung."""
    machines_by_rung: dict[str, dict[str, list[str]]] = {}
    own = settings().records
    for path in (PROVEN, own / PROVEN.name) if own else (PROVEN,):
        for rung, by_hash in data.document(path, {}).items():
            for digest, machines in by_hash.items():
                known = machines_by_rung.setdefault(rung, {}).setdefault(digest, [])
                known += [m for m in machines if m not in known]
    return machines_by_rung


@cache
def _hashes() -> dict[str, str]:
    return data.document(HASHES, {})


def _files(ladder: Ladder, rung: Rung, package: str) -> set[Path]:
    """The rung's CUDA C++ sources and our headers that they include."""
    shared = _folder(package) / "include"
    return {p for name in rung.sources for p in includes.files(ladder.folder / name, shared)}


def _entry(ladder: Ladder, rung: Rung) -> Target:
    module, entry = rung.entry.split(":")
    return f"{ladder.package}.{module}", (entry,)


def _supports(ladder: Ladder, rung: Rung) -> list[Target]:
    given = rung.supports if rung.is_gpu else None
    return [_named(given, ladder.package)] if given else []


@cache
def _shared(package: str, backend: str) -> list[str]:
    """Names and code of the definitions that affect every GPU rung in a language."""
    return Packages({package: _folder(package)}).texts(_shared_roots(package, backend))


def _shared_roots(package: str, backend: str) -> list[Target]:
    named = (*ARGUMENTS, *COMPILER.get(backend, ()))
    return [(f"{package}.{module}", (name,)) for module, name in named]


def _named(function: object, package: str) -> Target:
    """The name to which a function is bound in its own module, or in a module of the package.

    Raises:
        CannotFollow: it has none.
    """
    own = getattr(function, "__module__", "")
    inside = (m for m in list(sys.modules) if f"{m}.".startswith(f"{package}."))
    for module in chain([own], inside):
        for name, value in vars(sys.modules[module]).items():
            if value is function:
                return module, (name,)
    raise CannotFollow(f"{package}: {function} is not bound to a name at the top level of a module")


@cache
def _packages(package: str, own: str) -> Packages:
    """A Kernelwright package and that of one of its ladders; the other ladders are closed."""
    every = sys.modules[f"{package}.dispatch.registry"].ladders()
    return Packages(
        {root: _folder(root) for root in {package, own.split(".")[0]}},
        {x.package for x in every} - {own},
    )


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec and spec.submodule_search_locations, package
    return Path(next(iter(spec.submodule_search_locations)))
