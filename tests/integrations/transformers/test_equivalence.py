"""kw.patch tests its replacements: a wrong one is detected and not used."""

import re

import pytest
import torch
from torch import nn
from transformers.models.gemma import modeling_gemma
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gpt2 import modeling_gpt2
from transformers.models.llama import modeling_llama
from transformers.models.nanochat import modeling_nanochat

import kernelwright as kw
from kernelwright.integrations.transformers import code, equivalence, recognize
from support.patched_models import make
from support.small_models import logits, nanochat

pytestmark = pytest.mark.usefixtures("few_threads")
WIDE = equivalence.WIDE
LLAMAS = "llama.apply_rotary_pos_emb"


@pytest.fixture(autouse=True)
def nothing_tried(monkeypatch):
    monkeypatch.setattr(equivalence, "_seen", {})


class WrongNorm(modeling_llama.LlamaRMSNorm):
    def forward(self, hidden_states):
        mean = hidden_states.pow(2).mean(-1, keepdim=True)
        return self.weight * hidden_states / (mean.sqrt() + self.variance_epsilon)


class WrongGemmaNorm(modeling_gemma.GemmaRMSNorm):
    def forward(self, x):
        return self._norm(x) * self.weight


class WrongLayerNorm(nn.LayerNorm):
    def forward(self, input):
        return super().forward(input) + self.bias


class WrongMLP(modeling_llama.LlamaMLP):
    def forward(self, x):
        return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))


class WrongGradient(modeling_llama.LlamaMLP):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x).detach())


class WrongGPT2MLP(modeling_gpt2.GPT2MLP):
    def forward(self, hidden_states):
        return self.c_proj(self.act(self.c_fc(hidden_states) + 0.1))


class WrongLayer(modeling_llama.LlamaDecoderLayer):
    def forward(self, hidden_states, position_embeddings=None, **kwargs):
        x, _ = self.self_attn(hidden_states, position_embeddings=position_embeddings, **kwargs)
        hidden_states = hidden_states + self.input_layernorm(x)
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class WrongArguments(modeling_llama.LlamaDecoderLayer):
    def forward(self, hidden_states, position_embeddings=None, **kwargs):
        cos, sin = position_embeddings
        return super().forward(hidden_states, position_embeddings=(sin, cos), **kwargs)


class WrongGemmaLayer(modeling_gemma2.Gemma2DecoderLayer):
    def forward(self, hidden_states, **kwargs):
        return super().forward(hidden_states, **kwargs) + hidden_states


class WrongBlock(modeling_gpt2.GPT2Block):
    def forward(self, hidden_states, **kwargs):
        return super().forward(hidden_states, **kwargs) - self.ln_1(hidden_states)


@pytest.mark.parametrize(
    ("family", "name", "wrong", "reference"),
    [
        ("Llama", "model.norm", WrongNorm, "llama.LlamaRMSNorm"),
        ("Gemma", "model.norm", WrongGemmaNorm, "gemma.GemmaRMSNorm"),
        ("GPT-2", "transformer.ln_f", WrongLayerNorm, "torch.nn.LayerNorm"),
        ("Llama", "model.layers.1.mlp", WrongMLP, "llama.LlamaMLP"),
        ("Llama", "model.layers.1.mlp", WrongGradient, "llama.LlamaMLP"),
        ("GPT-2", "transformer.h.1.mlp", WrongGPT2MLP, "gpt2.GPT2MLP"),
        ("Llama", "model.layers.1", WrongLayer, "llama.LlamaDecoderLayer"),
        ("Llama", "model.layers.1", WrongArguments, "llama.LlamaDecoderLayer"),
        ("Gemma 2", "model.layers.1", WrongGemmaLayer, "gemma2.Gemma2DecoderLayer"),
        ("GPT-2", "transformer.h.1", WrongBlock, "gpt2.GPT2Block"),
    ],
)
def test_what_is_taken_for_a_known_forward_is_seen_to_be_another(
    family, name, wrong, reference, monkeypatch
):
    """Recognition by code is made to accept the wrong forward as the reference's."""
    model = make(family)
    module = model.get_submodule(name)
    assert not equivalence.refusal(module, recognize._known(module))
    module.__class__ = wrong
    taken = code.essence(wrong.forward, wrong)
    real = recognize._reference
    monkeypatch.setattr(recognize, "_reference", lambda n: taken if n == reference else real(n))
    report = kw.patch(model)
    (line,) = (x for x in report.lines if x.module == wrong.__name__)
    assert re.fullmatch(r"on a small input \S+ is off by \S+", line.why) and not line.by


def test_a_rope_that_is_taken_for_llamas_is_seen_to_be_another(monkeypatch):
    taken = code.essence(modeling_nanochat.apply_rotary_pos_emb)
    real = recognize._reference
    monkeypatch.setattr(recognize, "_reference", lambda n: taken if n == LLAMAS else real(n))
    model = nanochat()
    want = logits(model)
    report = kw.patch(model)
    assert re.search(r"left as it is +on a small input rope is off by \d", str(report))
    torch.testing.assert_close(logits(model), want)


def test_a_forward_that_cannot_be_tried_is_left_with_the_reason(monkeypatch):
    def broken(self, hidden_states, residual=None):
        raise ValueError("no such norm")

    monkeypatch.setitem(recognize.KNOWN, "llama.LlamaRMSNorm", recognize._norm("rms_norm", broken))
    report = kw.patch(make())
    assert "on a small input rms_norm fails: ValueError: no such norm" in str(report)
    assert "norm" not in {line.what for line in report.replaced}


def test_functions_of_one_code_are_tried_once(monkeypatch):
    tried = []
    real = equivalence._tried
    monkeypatch.setattr(
        equivalence, "_tried", lambda m, new: tried.append(new.what) or real(m, new)
    )
    kw.patch(make())
    assert sorted(tried) == ["MLP", "loss", "norm", "residual", "rope"]
    kw.patch(make())
    assert len(tried) == 5
    kw.patch(make(hidden_act="gelu"))
    kw.patch(make(hidden_act="gelu_pytorch_tanh"))
    assert sorted(tried[5:]) == ["MLP", "MLP"]


def test_a_trial_minds_no_mode_dtype_device_or_rung_that_is_set_around_it():
    want = kw.patch(make())
    equivalence._seen.clear()
    with torch.device("meta"):
        assert kw.patch(make()) == want
    equivalence._seen.clear()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with (
            torch.inference_mode(),
            torch.autocast("cpu", torch.bfloat16),
            kw.use(rms_norm="cuda_warp", rope="triton_token"),
        ):
            assert kw.patch(make()) == want
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_trial_draws_no_random_number_of_the_user():
    model = make()
    before = torch.get_rng_state()
    kw.patch(model)
    assert torch.equal(torch.get_rng_state(), before)
