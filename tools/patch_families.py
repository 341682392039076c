"""Which parts of every family in the installed transformers `kw.patch` replaces: docs/families.md.

    python -m tools.patch_families

A class is counted as replaced if its forward is known by its code. `patch` looks further at each
module: its activation, the shape of its weight, the numbers of a small input. So a module of a
class that is listed here may stay; `patch` then says why.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import transformers
from torch import nn

from kernelwright.integrations.transformers import experts, layers, mlps, norms, recognize
from kernelwright.integrations.transformers.code import difference, essence

PAGE = Path(__file__).parents[1] / "docs" / "families.md"
PARTS = ("norm", "sum and norm", "rope", "MLP", "experts", "loss")
_KNOWN = {
    "norm": norms.NORMS,
    "sum and norm": {**layers.LAYERS, **layers.WRITTEN},
    "MLP": {**mlps.MLPS, "gpt2.GPT2MLP": None},
    "experts": experts.EXPERTS,
}
_ENDINGS = {  # of the names of classes that are of a part, if none of their code is known
    "norm": ("RMSNorm", "LayerNorm", "L2Norm", "RMSNormGated"),
    "sum and norm": ("DecoderLayer", "EncoderLayer"),
    "rope": (),
    "MLP": ("MLP", "FeedForward", "FFN"),
    "experts": ("Experts",),
    "loss": ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"),
}


def part_of(cls: type) -> tuple[str, bool] | None:
    """(part of a model, whether it is known), or None of what is no such part."""
    own = essence(cls.forward, cls)
    for part, references in _KNOWN.items():
        if any(difference(own, recognize._reference(name)) is None for name in references):
            return part, True
    if rotations := recognize._rotations(cls):
        return "rope", all(map(recognize._rope_of, rotations.values()))
    if cls.__name__.endswith(_ENDINGS["loss"]):
        return "loss", _notes_logits(cls)
    return next(((p, False) for p, ends in _ENDINGS.items() if cls.__name__.endswith(ends)), None)


def _notes_logits(cls: type) -> bool:
    forward = inspect.unwrap(cls.forward)
    return "labels" in inspect.signature(cls.forward).parameters and bool(
        {"lm_head", "embed_out"} & set(forward.__code__.co_names)
    )


def classes() -> Iterator[tuple[str, type]]:
    """(family, class of a module), of every family that can be imported here."""
    folder = Path(transformers.__file__).parent / "models"
    for path in sorted(folder.glob("*/modeling_*.py")):
        family = path.parent.name
        try:
            module = importlib.import_module(f"transformers.models.{family}.{path.stem}")
        except ModuleNotFoundError as e:
            print(f"{family} is left out: it needs {e.name}", file=sys.stderr)
            continue
        for cls in vars(module).values():
            if (
                inspect.isclass(cls)
                and issubclass(cls, nn.Module)
                and cls.__module__ == module.__name__
                and cls.forward is not nn.Module.forward
            ):
                yield family, cls


def page() -> str:
    """The page's text."""
    families: dict[str, dict[tuple[str, bool], list[str]]] = defaultdict(lambda: defaultdict(list))
    for family, cls in classes():
        if (part := part_of(cls)) is not None:
            families[family][part].append(cls.__name__)
    served = {f: parts for f, parts in families.items() if any(known for _, known in parts)}
    counts = {
        part: [sum(len(x.get((part, yes), ())) for x in families.values()) for yes in (True, False)]
        for part in PARTS
    }
    total = len(families)
    lines = [
        "# Model families and `kw.patch`",
        "",
        "`python -m tools.patch_families` generates this page from transformers",
        f"{transformers.__version__}. {len(served)} of {total} families with such parts have",
        "classes whose code `patch` recognizes. In a model, `patch` also examines and tests each",
        "module (its activation, for example) and reports why it leaves one unchanged. `+` means",
        "that classes of a part are recognized; a name is that of a class that is left unchanged.",
        "`nn.LayerNorm` and `nn.RMSNorm` are replaced in every family.",
        "",
        "| part | classes recognized | classes left unchanged |",
        "| --- | ---: | ---: |",
        *(f"| {part} | {yes} | {no} |" for part, (yes, no) in counts.items()),
        "",
        f"| family | {' | '.join(PARTS)} |",
        "| --- " * (len(PARTS) + 1) + "|",
        *(f"| {f} | {' | '.join(_cell(parts, p) for p in PARTS)} |" for f, parts in served.items()),
        "",
    ]
    return "\n".join(lines)


def _cell(parts: dict[tuple[str, bool], list[str]], part: str) -> str:
    known_, left = parts.get((part, True), []), parts.get((part, False), [])
    return ", ".join((*(["+"] if known_ else []), *(f"`{name}`" for name in left)))


def main() -> int:
    PAGE.write_text(page())
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
