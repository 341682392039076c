"""Which modules of a transformers model are known, judged by the code of their forward.

transformers repeats the code in each model's file: a norm or an MLP of a new family is often word
for word that of an older one. A module is therefore known if its forward, with all that it calls,
has the same code as one of these, whatever its class is called. A module that computes anything
else is not replaced. Each replacement is also verified on a small input (equivalence.py).
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

from torch import nn

from . import equivalence, experts, heads, layers, mlps, norms, ropes
from .binding import is_ours, original
from .code import Essence, difference, essence, keyword_values
from .logits import head_and_loss

_ACTIVATIONS = {  # class of transformers.activations to the function it computes
    "SiLUActivation": "silu",
    "NewGELUActivation": "gelu_tanh",
    "GELUTanh": "gelu_tanh",
    "FastGELUActivation": "gelu_tanh",
    "GELUActivation": "gelu",
    "ReLUSquaredActivation": "relu2",
}

# decoders whose masks are causal, some with a window, unless their config says otherwise
_CAUSAL = (
    "llama.LlamaModel",
    "gemma.GemmaModel",
    "mistral.MistralModel",
    "qwen2.Qwen2Model",
    "gemma2.Gemma2Model",
    "gemma3.Gemma3TextModel",
    "gpt2.GPT2Model",
)
_HEAD = "its head and loss are not a known combination"
_EXPERTS = "its experts are not computed in a known form"
_UNKNOWN = {  # ending of a class's name to the reason why it is not replaced
    "Norm": "its formula is not a known one",
    "MLP": "its layers and activation are not in a known order",
    "DecoderLayer": "its sums and norms are not in a known order",
    "ForCausalLM": _HEAD,
    "LMHeadModel": _HEAD,
    "ForConditionalGeneration": _HEAD,
    "ForSequenceClassification": _HEAD,
    "ForTokenClassification": _HEAD,
    "ForQuestionAnswering": _HEAD,
    "ForMaskedLM": _HEAD,
    "Experts": _EXPERTS,
    "SparseMoeBlock": _EXPERTS,
    "MoE": _EXPERTS,
    "Moe": _EXPERTS,
}


@dataclass(frozen=True)
class Replacement:
    """The replacement of a module's forward.

    Attributes:
        what: the part of the model, as named in the report.
        by: the operators.
        forwards: the replacing function, by the name of a child ("" is the module itself).
        kept: why a part of this is not replaced.
        rotates: for an attention: the functions that are replaced, their replacements, their kinds.
        order: for a layer, an MLP or experts: the order of its parts.
        pairs: for a layer: the children whose results are tuples.
    """

    what: str
    by: str
    forwards: dict[str, Callable[..., Any]]
    kept: str = ""
    rotates: tuple[tuple[Callable[..., Any], Callable[..., Any], ropes.Rope], ...] = ()
    order: layers.Layer | mlps.MLP | experts.Experts | None = None
    pairs: tuple[str, ...] = ()


def replacement(module: nn.Module) -> Replacement | str | None:
    """The replacement, or why there is none, or None if the module is not one to replace."""
    new = _known(module)
    if isinstance(new, Replacement):
        return equivalence.refusal(module, new) or new
    return new


def _known(module: nn.Module) -> Replacement | str | None:
    cls = original(module)
    own = essence(cls.forward, cls)
    for reference, make in KNOWN.items():
        if difference(own, _reference(reference)) is None:
            return make(module)
    name = class_name(module)
    if name.endswith("Attention") or _rotations(cls):
        return _attention(module)
    if hasattr(module, "get_output_embeddings") and (head := module.get_output_embeddings()):
        return _language_model(module, head)
    if any("Experts" in class_name(child) for child in module.children()):
        return None  # a router and experts, which are reported on their own lines
    return next((why for ending, why in _UNKNOWN.items() if name.endswith(ending)), None)


def class_name(module: nn.Module) -> str:
    """The name of a module's class, ignoring the subclass that FSDP makes."""
    return next(c.__name__ for c in type(module).__mro__ if not c.__name__.startswith("FSDP"))


def _norm(by: str, forward: Callable[..., Any]):
    def make(module):
        weight = getattr(module, "weight", None)
        if weight is not None and not hasattr(module, "normalized_shape") and weight.ndim != 1:
            return f"its weight has {weight.ndim} dimensions"
        return Replacement("norm", by, {"": forward})

    return make


def _mlp(mlp: mlps.MLP):
    among = mlps.GATED if mlp.gated else mlps.PLAIN

    def make(module):
        act = getattr(module, mlp.act)
        by = among.get(_computes(act))
        if by is None:
            return _other_activation(act, among)
        new, kept = {"": _mlp_forward(mlp, by, type(act).forward)}, ""
        if is_linear(getattr(module, mlp.down)):
            new[mlp.down] = mlps.linear_of(by)
        else:
            kept = f"{mlp.down} is not a plain Linear: the activation is kept for its backward"
        return Replacement("MLP", by[0], new, kept, order=mlp)

    return make


def _of_experts(form: experts.Experts):
    def make(module):
        if why := experts.unfit(module):
            return why
        by, activation = (), None
        if not form.gates:
            by = mlps.GATED.get(_computes(module.act_fn), ())
            activation = type(module.act_fn).forward
            if not by:
                return _other_activation(module.act_fn, mlps.GATED)
        names = experts.arguments_of(original(module).forward)
        forward = _experts_forward(form, by, activation, names)
        shown = "moe_ffn" if by == ("swiglu",) else ", ".join(("grouped_mm", *by[:1]))
        return Replacement("experts", shown, {"": forward}, order=form)

    return make


_experts_forward = cache(experts.forward_of)
_mlp_forward = cache(mlps.forward_of)
_layer_forward = cache(layers.forward_of)


def _other_activation(act, among: dict[str, tuple[str, ...]]) -> str:
    kinds = dict.fromkeys(kind for kind, *_ in among.values())
    return f"its activation is {type(act).__name__}: supported are {' and '.join(kinds)}"


def _computes(act) -> str | None:
    """The name of the function that an activation's module computes, if it is known."""
    if not isinstance(act, nn.Module) or vars(act).get("forward"):
        return None
    return "silu" if isinstance(act, nn.SiLU) else _ACTIVATIONS.get(type(act).__name__)


def _gpt2_mlp(module):
    act = type(module.act)
    computes = _computes(module.act)
    if computes not in mlps.GPT2:
        return f"its activation is {act.__name__}: supported is gelu, exact or by tanh"
    new, order = {"": mlps.gpt2_mlp(mlps.GPT2[computes], act.forward)}, mlps.GPT2_ORDER
    if same_forward(module.c_fc, "transformers.pytorch_utils.Conv1D"):
        return Replacement("MLP", "bias_gelu", new | {"c_fc": mlps.conv1d_gelu}, order=order)
    kept = "c_fc is not a plain Conv1D: its bias is not fused"
    return Replacement("MLP", "gelu", new, kept, order=order)


def _layer(layer: layers.Layer, forward: Callable[..., Any] | None = None):
    def make(module):
        norm = _known(module.get_submodule(layer.norm))
        by = norm.by.partition("(")[0] if isinstance(norm, Replacement) else "norm"
        pairs = layer.pairs
        if getattr(module, "is_moe_layer", False):
            pairs = (*pairs, "feed_forward")
        new = forward or _layer_forward(layer, original(module).forward)
        return Replacement("residual", f"add_{by}", {"": new}, order=layer, pairs=pairs)

    return make


def _rotations(cls: type) -> dict[str, Callable[..., Any]]:
    """The functions with which an attention's forward rotates, by the names that it uses."""
    if "Attention" not in cls.__name__:
        return {}
    forward = inspect.unwrap(cls.forward)
    names = [n for n in forward.__code__.co_names if re.search("apply_.*rotary", n)]
    return {n: forward.__globals__[n] for n in names if n in forward.__globals__}


def _attention(module):
    """The attention's own forward, with its rotating functions replaced."""
    rotating, why = {}, []
    if not _rotations(original(module)):
        return "calls no known function that rotates"
    for name, rope in _rotations(original(module)).items():
        kind = _rope_of(rope)
        if kind is not None:
            rotating[name] = (rope, _ours(kind, rope), kind)
            continue
        other = difference(essence(rope), _reference("llama.apply_rotary_pos_emb"))
        why.append(f"its {name} {f'calls another {other} than' if other else 'is not'} Llama's")
    forward = inspect.unwrap(original(module).forward)
    if heads := set(keyword_values(forward, "unsqueeze_dim")) - {1, 2}:
        return f"its heads are at unsqueeze_dim={heads.pop()}"
    if not rotating:
        return "; ".join(why)
    names = tuple((name, ours) for name, (_, ours, _) in rotating.items())
    new = {"": _with_others(forward, names)}
    kept = f"not everywhere: {'; '.join(why)}" if why else ""
    return Replacement("rope", "rope", new, kept, rotates=tuple(rotating.values()))


def _rope_of(function: Callable[..., Any]) -> ropes.Rope | None:
    """The kind of a rotating function, if its code is known."""
    own = essence(function)
    known = (k for name, k in ropes.ROPES.items() if difference(own, _reference(name)) is None)
    return next(known, None)


@cache
def _ours(kind: ropes.Rope, own: Callable[..., Any]) -> Callable[..., Any]:
    return kind.replaces(own)


@cache
def _with_others(forward, others: tuple[tuple[str, Callable[..., Any]], ...]):
    """A function with the same code, in which some global names have other values.

    Its globals have no __name__, because torch.compile would look names up in that module.
    """
    names = {k: v for k, v in forward.__globals__.items() if k != "__name__"} | dict(others)
    new = FunctionType(
        forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__
    )
    new.__kwdefaults__ = forward.__kwdefaults__
    return new


def _language_model(module, head):
    own = original(module).forward
    code = inspect.unwrap(own).__code__
    name = next((n for n, child in module._modules.items() if child is head), None)
    if "labels" not in inspect.signature(own).parameters:
        return None
    if name is None or name not in code.co_names:
        return "its head is not called by its own forward"
    if not is_linear(head):
        return f"its head is a {type(head).__name__}, not a plain Linear"
    if not module.loss_function.__module__.startswith("transformers."):
        return "it has a loss function of its own"
    causal = any(same_forward(module.base_model, base) for base in _CAUSAL)
    loss = module.loss_function, getattr(module, "_loss_function", None)
    new = {"": heads.language_model(own, name, causal, *loss), name: head_and_loss}
    return Replacement("loss", "linear_cross_entropy", new)


# transformers' class or function to the function that makes the replacement
KNOWN: dict[str, Callable[[Any], Replacement | str]] = {
    **{reference: _norm(*how) for reference, how in norms.NORMS.items()},
    **{reference: _mlp(how) for reference, how in mlps.MLPS.items()},
    "gpt2.GPT2MLP": _gpt2_mlp,
    **{reference: _of_experts(how) for reference, how in experts.EXPERTS.items()},
    **{reference: _layer(how) for reference, how in layers.LAYERS.items()},
    **{reference: _layer(how, ours) for reference, (ours, how) in layers.WRITTEN.items()},
}


def is_linear(module: nn.Module) -> bool:
    """Whether the module currently computes what nn.Linear does."""
    return same_forward(module, "torch.nn.Linear")


def same_forward(module: nn.Module, reference: str) -> bool:
    own, cls = vars(module).get("forward"), original(module)
    same = difference(essence(cls.forward, cls), _reference(reference)) is None
    return same and (own is None or is_ours(own))


@cache
def _reference(name: str) -> Essence | None:
    """The essence of a class's forward, or of a function. None if this version of transformers does
    not have it, or if another library, such as Liger, has replaced it: its name then does not say
    what it computes."""
    path, _, attribute = name.rpartition(".")
    if "." not in path:
        path = f"transformers.models.{path}.modeling_{path}"
    try:
        definition = getattr(importlib.import_module(path), attribute, None)
    except ModuleNotFoundError as e:
        if not path.startswith(e.name or "?"):
            raise
        return None
    if definition is None:
        return None
    owner = definition if inspect.isclass(definition) else None
    function = definition.forward if owner else definition
    known = inspect.unwrap(function).__module__.partition(".")[0] == path.partition(".")[0]
    return essence(function, owner) if known else None
