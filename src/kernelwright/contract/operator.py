"""The specification of an operator, its rungs and its ladder."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from kernelwright.support.errors import INCONCLUSIVE, UserError

from .case import Case
from .layout import normalise
from .sharding import Split
from .signature import TensorSpec

#: `sharding(arguments, results)`, tensors given as specs: all ways to split one dimension.
Sharding = Callable[[Mapping[str, Any], Mapping[str, TensorSpec]], Iterable[Split]]

BACKENDS = ("torch", "inductor", "triton", "cuda", "numba")


@dataclass(frozen=True)
class Cost:
    """The minimum memory traffic and arithmetic of an operator, computed from its inputs.

    Attributes:
        reads, writes: bytes of each stream that must cross DRAM, read and written.
        flops: arithmetic operations.
        products: the operations among them that belong to matrix products, by the operands' dtype
            as written in a case's id ("bf16"), or "tf32" for float32 operands rounded to it. Each
            is compared with the rate of cuBLAS's products of that kind.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    flops: int = 0
    products: Mapping[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(self.reads) + sum(self.writes)

    @property
    def mix(self) -> str:
        """The roof it is compared with: "r1w1" is a copy, "r1w0" a read, "r2w1" two reads per
        write. A stream below 1/64 of the largest is ignored."""
        top = max((*self.reads, *self.writes), default=0)
        many = [sum(64 * b >= top > 0 for b in side) for side in (self.reads, self.writes)]
        return f"r{many[0]}w{many[1]}"


@dataclass(frozen=True)
class Arg:
    """One argument or result of a schema. `kind` is the schema's type without alias marks."""

    name: str
    kind: str  # "Tensor", "Tensor?", "Tensor[]", "int", "int[]", "float", "bool", "str", ...
    mutated: bool = False
    default: Any = None

    @property
    def is_tensor(self) -> bool:
        return self.kind.startswith("Tensor")


@dataclass(frozen=True, eq=False)
class Operator:
    """The specification of a function of tensors, independent of any rung.

    A forward and its backward are two operators ("softmax", "softmax.backward"). Every callable
    takes the schema's arguments by name.

    Attributes:
        name: "softmax" or "softmax.backward".
        schema: torch schema with named results, "(Tensor x, int dim) -> (Tensor y)". Tensor
            results are allocated for the rungs. Arguments of type float are read at each call;
            kernels are specialized on int, bool and str arguments.
        reference: plain PyTorch that runs in float64; it defines the correct result.
        inputs: makes the arguments of a case on a device, with `contract.inputs`.
        cases: what is verified and timed.
        cost: the `Cost` of the given arguments.
        outputs: the specs of the results, from the arguments (tensors or specs). Fake tensors and
            the allocations for rungs are both made from it.
        layout: "dense" (element order does not matter: any dense strides are taken flat when all
            tensors agree), "rows" (contiguous last dimension, one row stride) or "any" (rungs
            receive the original strides). Arguments with another layout are copied to contiguous.
        contiguous: the arguments whose strides no rung reads, saved statistics for example; they
            are copied to contiguous whatever the layout.
        properties: named checks of (arguments, results) that need no reference; each returns what
            is wrong, or None.
        exact: results must equal the reference bit for bit (integers, masks).
        noise: where terms cancel: for each result, the absolute rounding error that a good order
            of operations makes in the accumulation dtype, a float64 tensor of the result's shape,
            from the arguments. It must come from an error analysis, not from a measurement.
        large: for arguments of more than 2^31 elements, {name: (float64 result, its noise)} of the
            results of few elements that combine so many that PyTorch's own error is large.
        sharding: along which dimensions its tensors may be split; None if results depend on an
            element's index in the whole tensor (a random mask).
        source: where the definition comes from (a paper, a PyTorch function).
    """

    name: str
    schema: str
    reference: Callable
    inputs: Callable[[Case, str], dict[str, Any]]
    cases: tuple[Case, ...]
    cost: Callable[..., Cost]
    outputs: Callable[..., tuple[TensorSpec, ...]]
    layout: str = "dense"
    contiguous: tuple[str, ...] = ()
    properties: dict[str, Callable[[dict, tuple], str | None]] = field(default_factory=dict)
    exact: bool = False
    noise: Callable[..., tuple[torch.Tensor, ...]] | None = None
    large: Callable[..., dict[str, tuple[torch.Tensor, torch.Tensor]]] | None = None
    sharding: Sharding | None = None
    source: str = ""

    def __post_init__(self):
        assert self.layout in ("dense", "rows", "any"), self.layout
        unknown = set(self.contiguous) - {a.name for a in self.args}
        assert not unknown, f"{self.name}: no arguments of the schema: {unknown}"

    @cached_property
    def args(self) -> tuple[Arg, ...]:
        parsed = torch._C.parse_schema(f"kernelwright::op{self.schema}")
        return tuple(_arg(a) for a in parsed.arguments)

    @cached_property
    def results(self) -> tuple[str, ...]:
        parsed = torch._C.parse_schema(f"kernelwright::op{self.schema}")
        return tuple(r.name or f"out{i}" for i, r in enumerate(parsed.returns))

    @property
    def torch_name(self) -> str:
        """Its name under torch.ops.kernelwright."""
        return self.name.replace(".", "_")

    @property
    def mutated(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.args if a.mutated)

    def normalise(self, specs: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """(the specs that rungs see, the names of the arguments to copy to contiguous)."""
        return normalise(self.layout, specs, self.contiguous)

    def with_defaults(self, args: dict[str, Any]) -> dict[str, Any]:
        """All arguments in the schema's order, with the schema's defaults for those not given."""
        return {a.name: args.get(a.name, a.default) for a in self.args}

    def case(self, case_id: str) -> Case:
        for c in self.cases:
            if c.id == case_id:
                return c
        raise KeyError(f"{self.name} has no case {case_id!r}")


def _arg(a) -> Arg:
    kind = str(a.type)
    optional = kind.startswith("Optional[")
    kind = kind.removeprefix("Optional[").removesuffix("]") if optional else kind
    kind = {"List[Tensor]": "Tensor[]", "List[int]": "int[]"}.get(kind, kind)
    mutated = a.alias_info is not None and a.alias_info.is_write
    default = a.default_value if a.has_default_value() else None
    return Arg(a.name, kind + "?" if optional else kind, mutated, default)


@dataclass(frozen=True)
class Gpu:
    """The properties of a device that plans may depend on."""

    capability: tuple[int, int]  # (9, 0)
    sms: int
    shared_per_block: int  # bytes a block may opt in to
    l2_bytes: int
    name: str = ""

    @property
    def arch(self) -> str:
        """The name that NVRTC and ptxas use. The "a" variants have instructions of one generation
        only, such as wgmma. Other rungs are compiled for the same variant, so that the code that is
        proven is the code that runs."""
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


#: The machine that rungs are planned for if there is no GPU. The shipped records are from it.
H200 = Gpu((9, 0), 132, 232_448, 62_914_560, "NVIDIA H200")

Config = dict[str, Any]

#: Rungs that use only PyTorch: a formula in its operators, its own operator, torch.compile.
PYTORCHS = ("manual", "native", "compiled")


@dataclass(frozen=True, eq=False)
class Rung:
    """One way to compute an operator.

    Attributes:
        name: states the technique: "cuda_warp", "triton_online".
        backend: one of BACKENDS. "torch" and "inductor" entries are functions over tensors; the
            others' are `plan(gpu, config, **specs) -> Plan`.
        entry: "module:function" inside the subject's package; imported when first needed.
        idea: one line.
        supports: `supports(gpu, **specs)` returns why the rung cannot run a call, or None.
        configs: the launch parameters to choose from; every one is verified. The first is the
            default, unless `heuristic(gpu, **specs)` chooses.
        dispatchable: whether it may be dispatched by default; False for a teaching step.
        deterministic: the same inputs give the same bits.
        sources: the files that it compiles, in the subject's folder: "cuda_warp.cu".
        syncs_host: in PyTorch, reads numbers back to the host, so no CUDA graph can capture it.
        aten: in PyTorch, `aten(gpu, **specs)` returns the name of the function that makes the same
            call in C++ (toolchain/cpp_extension/aten_calls.h), or None.
    """

    name: str
    backend: str
    entry: str
    idea: str
    supports: Callable[..., str | None] | None = None
    configs: tuple[Config, ...] = ({},)
    heuristic: Callable[..., Config] | None = None
    dispatchable: bool = True
    deterministic: bool = True
    sources: tuple[str, ...] = ()
    syncs_host: bool = False
    aten: Callable[..., str | None] | None = None

    def __post_init__(self):
        assert self.backend in BACKENDS, self.backend

    @property
    def is_gpu(self) -> bool:
        """Written for a GPU: needs a passing GPU record before it is dispatched by default."""
        return self.backend in ("triton", "cuda", "numba")

    @property
    def is_ours(self) -> bool:
        """Written in this package, in any language, rather than PyTorch's own."""
        return self.name not in PYTORCHS


@dataclass(frozen=True, eq=False)
class Ladder:
    """An operator and its rungs, from the simple formula to the limit of the hardware.

    Attributes:
        folder: the subject's folder; `package` its import name.
        order: `order(gpu, **specs)`: names of the rungs to try, best first, if no tuned table has
            an entry. "native" is always tried last.
        bucket: `bucket(**specs)`: the key of a call in the tuned table.
        peers: "peers:PEERS" in the subject's package: other libraries' functions, for timing.
        public: needed if the public function's arguments differ from the operator's:
            `public(**args)` returns its positional and keyword arguments. They also suit the
            function of the ladder's name in torch.nn.functional, if there is one.
        emulated: PyTorch has no operator that does the same work, and the PyTorch rungs emulate it
            in many steps (random bits in integer arithmetic): ratios to them are not speedups.
    """

    operator: Operator
    rungs: tuple[Rung, ...]
    package: str
    order: Callable[..., tuple[str, ...]]
    bucket: Callable[..., str]
    peers: str | None = None
    public: Callable[..., tuple[tuple, dict[str, Any]]] | None = None
    emulated: bool = False

    def __post_init__(self):
        names = [r.name for r in self.rungs]
        assert len(set(names)) == len(names), names
        assert "native" in names, f"{self.operator.name} has no native rung"

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(r.name for r in self.rungs)

    def rung(self, name: str) -> Rung:
        for r in self.rungs:
            if r.name == name:
                return r
        close = difflib.get_close_matches(name, self.names, n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise UnknownRung(
            f"rung {name!r}: {self.name} has no such rung; {meant}it has {', '.join(self.names)}"
        )

    @cached_property
    def folder(self) -> Path:
        import importlib.util

        spec = importlib.util.find_spec(self.package)
        assert spec and spec.origin, self.package
        return Path(spec.origin).parent

    def module_of(self, rung: Rung) -> Path:
        """The file of the module that a rung's entry names."""
        module, _ = rung.entry.split(":")
        return self.folder.joinpath(*module.split(".")).with_suffix(".py")


class UnknownRung(UserError, ValueError):
    """The ladder has no rung of the given name."""


class Unsupported(UserError, ValueError):
    """A rung that was selected by name does not support the call."""

    exit_code = INCONCLUSIVE
