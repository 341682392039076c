"""`kw.patch(model)`: a transformers model on Kernelwright's operators, and `kw.unpatch(model)`."""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import nn

from . import trl
from .binding import bind, is_ours, mark, patched, unbind
from .recognize import Replacement, class_name, replacement

_log = logging.getLogger("kernelwright.patch")


@dataclass(frozen=True)
class Line:
    """Modules of one class, and how they were replaced.

    Attributes:
        what: norm, residual, rope, MLP, experts or loss; the class's own name if nothing was
            replaced.
        module: the name of the class.
        count: the number of these modules in the model.
        by: the operators that replace it, or "".
        why: why nothing or only a part was replaced.
    """

    what: str
    module: str
    count: int
    by: str = ""
    why: str = ""


@dataclass(frozen=True)
class Report:
    """What `patch` replaced in a model and what it did not, and why."""

    model: str
    lines: tuple[Line, ...]

    @property
    def replaced(self) -> tuple[Line, ...]:
        return tuple(line for line in self.lines if line.by)

    def __str__(self) -> str:
        if not self.lines:
            return (
                f"{self.model}: nothing replaced: no norm, MLP, attention or loss was found in it"
            )
        rows = [
            (f"{x.count} x {x.module}", f"{x.what} by {x.by}" if x.by else "left as it is", x.why)
            for x in self.lines
        ]
        wide = [max(len(r[i]) for r in rows) for i in range(2)]
        lines = [f"  {a:{wide[0]}}  {b:{wide[1]}}  {c}".rstrip() for a, b, c in rows]
        return "\n".join((f"{self.model}:", *lines))

    def __repr__(self) -> str:
        some = ", ".join(dict.fromkeys(x.by for x in self.replaced)) or "nothing replaced"
        return f"<{self.model}: {some}>"


def patch(
    model: nn.Module,
    *,
    norm: bool = True,
    residual: bool = True,
    rope: bool = True,
    mlp: bool = True,
    experts: bool = True,
    loss: bool = True,
) -> Report:
    """Replace parts of a transformers model by Kernelwright's operators.

    The forwards of this model's norms, attentions (for rope), MLPs, decoder layers and loss are
    replaced, by subclasses of the same names; other models, parameters and state_dict are not
    changed. A part that is replaced already stays so. In training with labels, `output.logits` is
    None. docs: "Transformers models" explains this and lists the families.

    Args:
        model: a transformers model, or a PEFT model around one, on any device and of any floating
            dtype, before or after fully_shard, gradient checkpointing or the first call of
            torch.compile.
        norm, residual, rope, mlp, experts, loss: the parts to replace; `residual` is the addition
            of an attention's result before the norm that follows.

    Returns:
        What was replaced and what was not, and why. The first process also logs it, as INFO of the
        logger "kernelwright.patch"; to stderr if the program has not configured logging.

    Raises:
        TypeError: model is neither a transformers nor a PEFT model.
        ValueError: model is split by tensor parallelism.
    """
    model = _transformers_model(model)
    wanted = {"norm": norm, "residual": residual, "rope": rope, "MLP": mlp, "experts": experts,
              "loss": loss}  # fmt: skip
    lines: Counter[tuple[str, str, str, str]] = Counter()
    for module in list(model.modules()):
        line = _replace(module, wanted)
        if line is not None:
            lines[line] += 1
    counted = (Line(what, name, n, by, why) for (what, name, by, why), n in lines.items())
    report = Report(class_name(model), tuple(sorted(counted, key=lambda x: not x.by)))
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if not distributed or torch.distributed.get_rank() == 0:
        _announce(report)
    return report


def _replace(module: nn.Module, wanted: dict[str, bool]) -> tuple[str, str, str, str] | None:
    """Give a module its replacement; return (what, class, by, why) of its line, if it has one."""
    name = class_name(module)
    own = vars(module).get("forward")
    if own is not None and trl.is_head(own):
        if not wanted["loss"]:
            return name, name, "", "loss=False"
        forward = trl.head(own.__func__)
        mark(forward)
        module.forward = MethodType(forward, module)
        return "loss", name, "linear_cross_entropy", "in TRL's head"
    new = replacement(module)
    if own is not None and not is_ours(own):
        if not isinstance(new, Replacement):
            return None
        return name, name, "", f"its forward has been replaced already, by {_origin(own)}"
    if not isinstance(new, Replacement):
        return (name, name, "", new) if new else None
    if not wanted[new.what] and patched(module) is None:
        return name, name, "", f"{new.what.lower()}=False"
    for child, forward in new.forwards.items():
        bind(module.get_submodule(child), forward)
    return new.what, name, new.by, new.kept


def _announce(report: Report) -> None:
    ours = _log.parent
    assert ours is not None
    if not _log.hasHandlers():
        ours.addHandler(logging.StreamHandler())
    if ours.level == logging.NOTSET and ours.handlers:
        ours.setLevel(logging.INFO)
    _log.info("%s", report)


def is_patched(model: nn.Module) -> bool:
    """Whether `patch` has replaced a part of the model.

    Args:
        model: a transformers model, or a PEFT model around one.

    Raises:
        TypeError: model is neither a transformers nor a PEFT model.
    """
    modules = list(_transformers_model(model).modules())
    return any(patched(m) is not None or is_ours(vars(m).get("forward")) for m in modules)


def unpatch(model: nn.Module) -> None:
    """Undo `patch`: restore every forward of the model. A model that is not patched is not changed.

    Wrappers that Accelerate has put around a forward since are kept, around the restored forward.
    Another wrapper that still calls the replaced forward, such as that of torch.compile, is named
    in a warning.

    Raises:
        TypeError: model is neither a transformers nor a PEFT model.
    """
    model = _transformers_model(model)
    for name, module in model.named_modules():
        own = vars(module).get("forward")
        if is_ours(own) and (before := getattr(own.__func__, "before", None)) is not None:
            module.forward = MethodType(before, module)
        wrapper = unbind(module)
        if wrapper is not None:
            path = ".".join(("model", *filter(None, (name, "forward"))))
            warnings.warn(
                f"{path}: calls the replaced forward, which {_origin(wrapper)} has wrapped; set it "
                "again, or call unpatch first",
                stacklevel=2,
            )


def _origin(forward: Any) -> str:
    function = inspect.unwrap(getattr(forward, "__func__", forward))
    return getattr(function, "__module__", None) or type(forward).__name__


def _transformers_model(model: Any) -> nn.Module:
    """The model itself, or the model to which PEFT has added adapters."""
    transformers = sys.modules.get("transformers")  # is imported if the model is one of its models
    peft = sys.modules.get("peft")
    if peft is not None and isinstance(model, peft.PeftModel):
        return _transformers_model(model.get_base_model())
    inner = getattr(model, "_orig_mod", model)
    if transformers is None or not isinstance(model, transformers.PreTrainedModel):
        hint = ""
        if inner is not model:
            hint = "; patch it before torch.compile wraps it"
        raise TypeError(f"model: is a {type(model).__name__}, not a transformers model{hint}")
    if getattr(model, "_tp_size", None):
        raise ValueError("model: is split by tensor parallelism, which operators do not support")
    return model
