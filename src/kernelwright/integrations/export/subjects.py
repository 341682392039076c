"""What `kernelwright export` takes: a preset, the folder of a checkpoint, or an operator."""

from __future__ import annotations

import contextlib
import difflib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernelwright import models
from kernelwright.contract import Case, Ladder
from kernelwright.integrations import transformers as patches
from kernelwright.models.pretrained import CONFIG
from kernelwright.ops import PUBLIC
from kernelwright.support import generated_code
from kernelwright.support.errors import UsageError
from kernelwright.support.extras import need

from .program import Sizes

#: Arguments of operators that are weights of a model; their sizes are fixed.
WEIGHTS = frozenset(("b", "bias", "packed", "scales", "w", "weight"))
HEADS = frozenset("qkv")  # arguments (batch, heads, length, width); the number of heads is fixed
#: Results of operators that the public functions do not return.
STATISTICS = frozenset(("at", "lse", "max_sum", "mean", "rstd", "totals", "var", "z"))
TRACED = 2, 16  # batch and length of the inputs that a model is traced with


@dataclass(frozen=True)
class Subject:
    """What `trace` takes.

    Attributes:
        what: for messages: the model, or the operator and its case.
    """

    what: str
    module: nn.Module
    args: tuple[torch.Tensor, ...]
    sizes: Sizes
    results: tuple[str, ...]


class LogitsOf(nn.Module):
    """A transformers model as a function of the tokens alone, that returns the logits."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, use_cache=False).logits


class TokensToLogits(nn.Module):
    """One of our models, without targets and cache."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(tokens)


def of_model(name: str, *, dtype: torch.dtype | None = None, device: str = "cpu") -> Subject:
    """A preset with random weights, or the model of a checkpoint's folder: one of ours for GPT-2
    and Llama, otherwise the patched transformers model.

    Args:
        dtype: of the weights; by default float32, or as the checkpoint has them.

    Raises:
        UsageError: there is no such preset or folder, or the checkpoint is damaged.
    """
    folder = Path(name)
    if name in models.PRESETS:
        model = models.build(name).to(device=device, dtype=dtype or torch.float32)
        module, context = TokensToLogits(model), model.config.context
        vocabulary = model.config.vocabulary
    elif folder.is_dir():
        module, vocabulary, context = _of_folder(folder, dtype, device)
    else:
        known = ", ".join(models.PRESETS)
        close = difflib.get_close_matches(name, (*PUBLIC, *models.PRESETS), n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(
            f"{name}: is not an operator, a preset ({known}) or the folder of a checkpoint{meant}"
        )
    return of_language_model(module, vocabulary, context, what=name, device=device)


def of_language_model(
    module: nn.Module, vocabulary: int, context: int, *, what: str, device: str = "cpu"
) -> Subject:
    """A model from tokens (batch, length) to logits."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(vocabulary, TRACED, generator=generator).to(device)
    sizes: Sizes = ({0: "batch", 1: ("length", context)},)
    return Subject(what, module.eval(), (tokens,), sizes, ("logits",))


def of_patched(model: Any, *, what: str) -> Subject:
    """A patched transformers model from tokens to logits."""
    config = model.config.get_text_config()
    return of_language_model(
        LogitsOf(model), config.vocab_size, config.max_position_embeddings, what=what,
        device=str(model.device),
    )  # fmt: skip


def _of_folder(folder: Path, dtype: torch.dtype | None, device: str) -> tuple[nn.Module, int, int]:
    path = folder / CONFIG
    try:
        kind = json.loads(path.read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError) as e:
        raise UsageError(f"{path} cannot be read ({e}): {folder} is not a checkpoint") from None
    if kind in ("gpt2", "llama"):
        with contextlib.suppress(UsageError):  # a feature that our models do not have
            model = models.from_pretrained(folder, device=device, dtype=dtype)
            return TokensToLogits(model), model.config.vocabulary, model.config.context
    transformers = need("transformers", "test", f"a checkpoint of model_type {kind!r}")
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=dtype or "auto"
        )
    except (OSError, ValueError, KeyError) as e:
        first = str(e).strip().splitlines()[0]
        raise UsageError(f"{folder}: transformers cannot load it: {first}") from None
    with contextlib.redirect_stdout(io.StringIO()):
        patches.patch(model)
    config = model.config.get_text_config()
    return LogitsOf(model.to(device)), config.vocab_size, config.max_position_embeddings


def of_operator(ladder: Ladder, case: Case | None = None, device: str = "cpu") -> Subject:
    """An operator with the arguments of a case; by default its first float32 case of ordinary
    values. Dimensions other than the last, of weights and of heads are dynamic, if the operator
    allows it."""
    op, case = ladder.operator, case or _ordinary(ladder)
    given = op.with_defaults(op.inputs(case, device))
    tensors = {n: v.contiguous() for n, v in given.items() if isinstance(v, torch.Tensor)}
    lists = [n for n, v in given.items() if isinstance(v, (list, tuple)) and v
             and isinstance(v[0], torch.Tensor)]  # fmt: skip
    if lists:
        raise UsageError(f"{op.name}: its argument {lists[0]} is a list of tensors")
    rest = {n: v for n, v in given.items() if n not in tensors}
    module = _call(op, tensors, rest)
    sizes = tuple(dict.fromkeys(_dynamic(n, t.ndim)) for n, t in tensors.items())
    results = _public(op)
    return Subject(f"{op.name}, case {case.id}", module, tuple(tensors.values()), sizes, results)


def _dynamic(name: str, ndim: int) -> tuple[int, ...]:
    """The dimensions of an operator's argument that are dynamic, if the operator allows it."""
    if name in WEIGHTS:
        return ()
    return (0, 2) if name in HEADS and ndim == 4 else tuple(range(ndim - 1))


def _ordinary(ladder: Ladder) -> Case:
    cases = [c for c in ladder.operator.cases if c.use == "verify" and c.values == "normal"]
    good = [c for c in cases if c.layout == "contiguous" and min((2, *c.shape)) > 1]
    floats = [c for c in good if c.dtype == torch.float32]
    several = [c for c in floats if len(c.shape) > 1 and c.shape[-1] >= 16]
    return next(iter(several or floats or good or ladder.operator.cases))


def _public(op: Any) -> tuple[str, ...]:
    return tuple(r for r in op.results if r not in STATISTICS) or op.results


def _call(op: Any, tensors: dict[str, torch.Tensor], rest: dict[str, Any]) -> nn.Module:
    """A module whose forward takes an operator's tensors by their names, and returns what its
    public function does."""
    overload = getattr(torch.ops.kernelwright, op.torch_name).default
    given = ", ".join(a.name if a.name in tensors else f"rest[{a.name!r}]" for a in op.args)
    results = op.results[0] if len(op.results) == 1 else f"({', '.join(op.results)})"
    source = f"""
def forward(self, {", ".join(tensors)}):
    {results} = overload({given})
    return {", ".join(_public(op))}
"""
    names = {"overload": overload, "rest": rest}
    forward = generated_code.function(source, "forward", names, op.name)
    return type(op.torch_name, (nn.Module,), {"forward": forward})().eval()
