"""The result of compiling one kernel, in any of the languages."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from kernelwright.support.errors import ToolchainError

# The kinds of kernel parameters, by the types that PTX gives them.
_PTX_KINDS = {
    "u64": "pointer", "b64": "pointer", "s64": "pointer",
    "u32": "i32", "b32": "i32", "s32": "i32",
    "f32": "f32", "f64": "f64",
    "u8": "struct", "s8": "struct", "b8": "struct",
    "u16": "struct", "s16": "struct", "b16": "struct",
}  # fmt: skip
#: Kinds that look the same in PTX as another one.
_SAME = {"i64": "pointer", "tensor_map": "struct"}
TENSOR_MAP_BYTES = 128  # of a CUtensorMap


@dataclass(frozen=True)
class Compiled:
    """One kernel for one architecture.

    Attributes:
        name: the symbol in the cubin.
        arch: "sm_90a".
        log: the compiler's output, with that of `ptxas -v` if it was used.
        ttgir: Triton's GPU IR, "" for other languages.
        shared: dynamic shared memory in bytes that the compiler requires (Triton).
        threads: threads of a block if the compiler determines them (Triton), else 0.
    """

    name: str
    arch: str
    cubin: bytes
    ptx: str
    log: str = ""
    ttgir: str = ""
    shared: int = 0
    threads: int = 0

    def files(self) -> dict[str, bytes]:
        """The files under which it is cached."""
        facts = {k: v for k, v in asdict(self).items() if k not in ("cubin", "ptx", "ttgir")}
        return {
            "kernel.cubin": self.cubin,
            "kernel.ptx": self.ptx.encode(),
            "kernel.ttgir": self.ttgir.encode(),
            "kernel.json": json.dumps(facts).encode(),
        }

    @staticmethod
    def of(files: dict[str, bytes]) -> Compiled:
        return Compiled(
            cubin=files["kernel.cubin"],
            ptx=files["kernel.ptx"].decode(),
            ttgir=files["kernel.ttgir"].decode(),
            **json.loads(files["kernel.json"]),
        )


def hidden_parameters(compiled: Compiled, kinds: tuple[str, ...]) -> int:
    """How many pointer parameters the compiler appended to the kernel's own.

    Args:
        kinds: the kinds of the arguments that the plan passes, from `Launch.kinds`.

    Raises:
        ToolchainError: the plan's arguments do not match the kernel's parameters. A launch would
            read garbage.
    """
    entry = re.search(rf"\.entry\s+{re.escape(compiled.name)}\s*\(([^)]*)\)", compiled.ptx)
    parameters = (
        re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)[^,[]*(\[\d+\])?", entry[1])
        if entry
        else []
    )
    types = ["".join(p) for p in parameters]
    declared = [_PTX_KINDS.get(t.partition("[")[0], t) for t in types]
    planned = [_SAME.get(k, k) for k in kinds]
    rest = declared[len(planned) :]
    if declared[: len(planned)] != planned or any(k != "pointer" for k in rest):
        raise ToolchainError(
            f"{compiled.name} takes ({', '.join(types)}), but its plan passes ({', '.join(kinds)})"
        )
    return len(rest)


def struct_sizes(compiled: Compiled) -> list[int]:
    """Sizes in bytes of the parameters that are structs or smaller than 32 bits, in order."""
    entry = re.search(rf"\.entry\s+{re.escape(compiled.name)}\s*\(([^)]*)\)", compiled.ptx)
    declared = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.[bus](8|16)\s+[\w$%]+(?:\[(\d+)\])?",
                       entry[1] if entry else "")  # fmt: skip
    return [int(bits) // 8 * int(count or 1) for bits, count in declared]
