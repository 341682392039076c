"""Which modules of a transformers model are known, by the code of their forward.

transformers writes each model's file out in full: a norm or an MLP of a new family is word for
word that of an old one. So a module is known when its forward is the same code as one of these,
with all that it calls, whatever its class is called, and one that computes anything else is left
alone. What is known is tried besides (trial.py).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

from torch import nn

from . import forwards, trial
from .code import Essence, difference, essence, keyword_values
from .loss import causal_lm

_PLAIN_ACTIVATIONS = {  # class of transformers.activations to what it computes
    "SiLUActivation": "silu",
    "NewGELUActivation": "gelu_tanh",
    "GELUTanh": "gelu_tanh",
    "FastGELUActivation": "gelu_tanh",
    "GELUActivation": "gelu",
}
_GATED = {
    "silu": (forwards.swiglu_mlp, forwards.linear_of_swiglu, "swiglu"),
    "gelu": (forwards.geglu_mlp, forwards.linear_of_geglu, "geglu"),
    "gelu_tanh": (forwards.geglu_tanh_mlp, forwards.linear_of_geglu_tanh, "geglu"),
}
_GPT2 = {"gelu": forwards.gpt2_gelu_mlp, "gelu_tanh": forwards.gpt2_gelu_tanh_mlp}


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
_UNKNOWN = {  # ending of a class's name to why it is left
    "Norm": "its formula is none that is known here",
    "MLP": "not act(gate) * up, nor GPT-2's",
    "DecoderLayer": "its sums and norms follow each other in another order",
    "ForCausalLM": "its head and loss are none that are known here",
    "LMHeadModel": "its head and loss are none that are known here",
    "ForConditionalGeneration": "its head and loss are none that are known here",
    "ForSequenceClassification": "its head and loss are none that are known here",
    "ForTokenClassification": "its head and loss are none that are known here",
    "ForQuestionAnswering": "its head and loss are none that are known here",
    "ForMaskedLM": "its head and loss are none that are known here",
}


@dataclass(frozen=True)
class Replacement:
    """What a module's forward becomes.

    Attributes:
        what: the part of the model, as the report calls it.
        by: the operators.
        forwards: by name of a child ("" is the module itself), the function that replaces it.
        kept: why a part of this stays as it was.
        rotates: of an attention the function that ours stands for.
    """

    what: str
    by: str
    forwards: dict[str, Callable[..., Any]]
    kept: str = ""
    rotates: Callable[..., Any] | None = None


def replacement(module: nn.Module) -> Replacement | str | None:
    """What replaces the module's forward, or why nothing does, or None where nothing is due."""
    new = _known(module)
    if isinstance(new, Replacement):
        return trial.refusal(module, new) or new
    return new


def _known(module: nn.Module) -> Replacement | str | None:
    own = essence(type(module).forward, type(module))
    for reference, make in KNOWN.items():
        if difference(own, _reference(reference)) is None:
            return make(module)
    name = class_name(module)
    if name.endswith("Attention"):
        return _attention(module)
    return next((why for ending, why in _UNKNOWN.items() if name.endswith(ending)), None)


def class_name(module: nn.Module) -> str:
    """The name of its class; of its own where FSDP has put another in front."""
    return next(c.__name__ for c in type(module).__mro__ if not c.__name__.startswith("FSDP"))


def _rms_norm(module):
    return Replacement("norm", "rms_norm", {"": forwards.llama_norm})


def _gemma_norm(module):
    return Replacement("norm", "rms_norm(offset=1)", {"": forwards.gemma_norm})


def _layer_norm(module):
    return Replacement("norm", "layer_norm", {"": forwards.layer_norm})


def _gated_mlp(module):
    act = type(module.act_fn).__name__
    computes = "silu" if isinstance(module.act_fn, nn.SiLU) else _PLAIN_ACTIVATIONS.get(act)
    if computes not in _GATED or vars(module.act_fn).get("forward"):
        return f"its activation is {act}: there are swiglu and geglu"
    mlp, linear, operator = _GATED[computes]
    new = {"": mlp}
    if is_linear(module.down_proj):
        return Replacement("MLP", operator, new | {"down_proj": linear})
    kept = "down_proj is no plain Linear: the activation is kept for its backward"
    return Replacement("MLP", operator, new, kept)


def _gpt2_mlp(module):
    act = type(module.act).__name__
    computes = _PLAIN_ACTIVATIONS.get(act)
    if computes not in _GPT2:
        return f"its activation is {act}: there is gelu, exact or by tanh"
    new = {"": _GPT2[computes]}
    if same_forward(module.c_fc, "transformers.pytorch_utils.Conv1D"):
        return Replacement("MLP", "bias_gelu", new | {"c_fc": forwards.conv1d_gelu})
    return Replacement("MLP", "gelu", new, "c_fc is no plain Conv1D: its bias is not fused")


def _layer(forward, norm):
    def make(module):
        return Replacement("residual", f"add_{norm}", {"": forward})

    return make


def _attention(module):
    """The attention's forward with another apply_rotary_pos_emb; the code is its own."""
    forward = inspect.unwrap(type(module).forward)
    rope = forward.__globals__.get("apply_rotary_pos_emb")
    if "apply_rotary_pos_emb" not in forward.__code__.co_names or rope is None:
        return "rotates nothing by apply_rotary_pos_emb"
    other = difference(essence(rope), _reference("llama.apply_rotary_pos_emb"))
    if other is not None:
        calls = f"calls another {other} than" if other else "is not"
        return f"its apply_rotary_pos_emb {calls} Llama's"
    if heads := set(keyword_values(forward, "unsqueeze_dim")) - {1, 2}:
        return f"its heads are at unsqueeze_dim={heads.pop()}"
    return Replacement("rope", "rope", {"": _with_rope(type(module).forward)}, rotates=rope)


@cache
def _with_rope(forward):
    """The same code, in which `apply_rotary_pos_emb` means ours.

    Its globals have no __name__: torch.compile would look names up in the module of that name.
    """
    import kernelwright as kw

    names = {k: v for k, v in forward.__globals__.items() if k != "__name__"}
    names["apply_rotary_pos_emb"] = kw.rope
    new = FunctionType(
        forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__
    )
    new.__kwdefaults__ = forward.__kwdefaults__
    return new


def _causal_lm(softcaps: bool, output: str):
    def make(module):
        head = module.get_output_embeddings()
        if not is_linear(head):
            return f"its head is a {type(head).__name__}, no plain Linear"
        from transformers.loss.loss_utils import ForCausalLMLoss

        if module.loss_function is not ForCausalLMLoss:
            return "it has a loss function of its own"
        own = type(module).forward
        causal = any(same_forward(module.base_model, name) for name in _CAUSAL)
        new = {"": causal_lm(own, softcaps, output, causal), "lm_head": forwards.head_and_loss}
        return Replacement("loss", "linear_cross_entropy", new)

    return make


# transformers' class or function to what makes the replacement
KNOWN: dict[str, Callable[[Any], Replacement | str]] = {
    "llama.LlamaRMSNorm": _rms_norm,
    "gemma.GemmaRMSNorm": _gemma_norm,
    "torch.nn.LayerNorm": _layer_norm,
    "llama.LlamaMLP": _gated_mlp,
    "gpt2.GPT2MLP": _gpt2_mlp,
    "llama.LlamaDecoderLayer": _layer(forwards.llama_layer, "rms_norm"),
    "gemma2.Gemma2DecoderLayer": _layer(forwards.gemma2_layer, "rms_norm"),
    "gpt2.GPT2Block": _layer(forwards.gpt2_layer, "layer_norm"),
    "llama.LlamaForCausalLM": _causal_lm(False, "CausalLMOutputWithPast"),
    "gemma2.Gemma2ForCausalLM": _causal_lm(True, "CausalLMOutputWithPast"),
    "gpt2.GPT2LMHeadModel": _causal_lm(False, "CausalLMOutputWithCrossAttentions"),
}


def mark(forward: Callable[..., Any]) -> None:
    """Functions that `patch` binds are marked, so that copies of a model are undone as well. A
    bound method is pickled as an attribute of the function's name: the class's own forward."""
    forward.__kernelwright__, forward.__name__ = True, "forward"


def is_ours(forward: Any) -> bool:
    return hasattr(getattr(forward, "__func__", None), "__kernelwright__")


def is_linear(module: nn.Module) -> bool:
    """Does it compute what nn.Linear does, now?"""
    return same_forward(module, "torch.nn.Linear")


def same_forward(module: nn.Module, reference: str) -> bool:
    own, cls = vars(module).get("forward"), type(module)
    same = difference(essence(cls.forward, cls), _reference(reference)) is None
    return same and (own is None or is_ours(own))


@cache
def _reference(name: str) -> Essence | None:
    """The essence of a class's forward, or of a function; None where another library has put its
    own in the module, as Liger does: what that computes is not known by where it stands."""
    path, _, attribute = name.rpartition(".")
    if "." not in path:
        path = f"transformers.models.{path}.modeling_{path}"
    found = getattr(importlib.import_module(path), attribute)
    owner = found if inspect.isclass(found) else None
    function = found.forward if owner else found
    known = inspect.unwrap(function).__module__.partition(".")[0] == path.partition(".")[0]
    return essence(function, owner) if known else None
