"""kw.patch on small random models: what is replaced, what is not and why, and unpatching."""

import copy
import io
import logging
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForSequenceClassification,
)
from transformers.models.llama import modeling_llama

import kernelwright as kw
from kernelwright.integrations.transformers import recognize
from support.patched_models import FAMILIES, VOCABULARY, batch, families_table, make, patched, step
from support.paths import ROOT

families = pytest.mark.parametrize("family", FAMILIES)
pytestmark = pytest.mark.usefixtures("few_threads")


@families
def test_the_report_names_what_is_replaced(family, caplog):
    caplog.set_level(logging.INFO, "kernelwright")
    model = make(family)
    report = kw.patch(model)
    ours = [r.getMessage() for r in caplog.records if r.name == "kernelwright.patch"]
    assert ours == [str(report)]
    parts = {line.what for line in report.replaced}
    assert parts >= {"norm", "MLP", "residual", "loss"}
    assert ("rope" in parts) == (family != "GPT-2")
    assert repr(report).startswith(f"<{type(make(family)).__name__}: ")
    left = {line.why for line in report.lines if not line.by}
    assert left == ({"calls no known function that rotates"} if family == "GPT-2" else set())


def test_every_norm_layer_and_mlp_is_replaced():
    report = kw.patch(make("Gemma 3"))
    assert {(x.module, x.count) for x in report.lines} == {
        ("Gemma3ForCausalLM", 1), ("Gemma3DecoderLayer", 2), ("Gemma3Attention", 2),
        ("Gemma3MLP", 2), ("Gemma3RMSNorm", 13),
    }  # fmt: skip


@pytest.mark.cover
@pytest.mark.parametrize("family", ["DeepSeek V3", *FAMILIES])
def test_a_rope_that_is_reported_is_called(family, monkeypatch):
    """DeepSeek's attentions have two functions, and the config chooses one."""
    calls, rope = [], kw.rope
    monkeypatch.setattr(kw, "rope", lambda *args, **more: calls.append(1) or rope(*args, **more))
    model = make(family)
    report = kw.patch(model)
    calls.clear()
    step(model)
    assert bool(calls) == any(line.what == "rope" for line in report.replaced)


@pytest.mark.parametrize("part", ["norm", "residual", "rope", "MLP", "loss"])
def test_a_part_is_left_on_request(part):
    model = make()
    want = step(model)
    report = kw.patch(model, **{part.lower(): False})
    assert part not in {line.what for line in report.replaced}
    assert f"{part.lower()}=False" in {line.why for line in report.lines}
    assert {"norm", "residual", "rope", "MLP", "loss"} - {part} == {
        line.what for line in report.replaced
    }
    torch.testing.assert_close(step(model)["loss"], want["loss"])
    assert part in {line.what for line in kw.patch(model).replaced}


def test_is_patched():
    model = make()
    assert not kw.is_patched(model)
    kw.patch(model, norm=False, residual=False, mlp=False, loss=False)
    assert kw.is_patched(model)
    kw.unpatch(model)
    assert not kw.is_patched(model)
    with pytest.raises(TypeError, match="model: is a Linear"):
        kw.is_patched(nn.Linear(2, 2))


def test_the_report_without_logging_and_silenced(monkeypatch, capsys):
    """It goes to stderr if the program has not configured logging, unless it silences us."""
    ours = logging.getLogger("kernelwright")
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(ours, "handlers", [])
    try:
        report = kw.patch(make())
        assert capsys.readouterr().err == f"{report}\n"
        ours.setLevel(logging.WARNING)
        kw.patch(make())
        assert capsys.readouterr() == ("", "")
    finally:
        ours.setLevel(logging.NOTSET)


def test_the_table_of_families_in_the_docs():
    page = (ROOT / "docs" / "patch.md").read_text()
    assert families_table() in page, families_table()


def test_patching_twice_is_harmless():
    model = make()
    once = kw.patch(model)
    forwards = {n: m.forward for n, m in model.named_modules()}
    assert kw.patch(model) == once
    assert {n: m.forward for n, m in model.named_modules()} == forwards
    kw.unpatch(model)
    assert not any("forward" in vars(m) for m in model.modules())


@families
def test_unpatch_restores_every_bit(family):
    model = make(family)
    before = {n: (type(m), dict(vars(m))) for n, m in model.named_modules()}
    want = step(model)
    kw.patch(model)
    step(model)
    kw.unpatch(model)
    for name, module in model.named_modules():
        cls, attributes = before[name]
        assert type(module) is cls
        assert list(vars(module)) == list(attributes)
        assert all(vars(module)[k] is v or vars(module)[k] == v for k, v in attributes.items())
    found = step(model)
    assert all(torch.equal(found[name], want[name]) for name in want)


def test_unpatch_without_patch():
    model = make()
    before = {n: dict(vars(m)) for n, m in model.named_modules()}
    kw.unpatch(model)
    assert all(list(vars(m)) == list(before[n]) for n, m in model.named_modules())


def test_other_models_are_untouched():
    names = dict(vars(modeling_llama))
    other = make()
    want = step(other)
    model = patched()
    assert vars(modeling_llama) == names
    assert not any("forward" in vars(m) for m in other.modules())
    found = step(other)
    assert all(torch.equal(found[name], want[name]) for name in want)
    assert (
        model.model.layers[0].self_attn.forward.__func__
        is not type(other.model.layers[0].self_attn).forward
    )


def test_copies_and_files(tmp_path):
    model = make()
    before = {n: t.clone() for n, t in model.state_dict().items()}
    kw.patch(model)
    assert list(model.state_dict()) == list(before)
    want = step(model)
    twin = copy.deepcopy(model)
    assert twin.model.norm.forward.__self__ is twin.model.norm
    torch.testing.assert_close(step(twin)["loss"], want["loss"])
    kw.unpatch(twin)
    assert not any("forward" in vars(m) for m in twin.modules())
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for back in (pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
        torch.testing.assert_close(step(back)["loss"], want["loss"])  # unpatched, as documented
        kw.patch(back)
        torch.testing.assert_close(step(back)["loss"], want["loss"])
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).train()
    torch.testing.assert_close(step(loaded)["loss"], want["loss"])


def test_modules_put_around_others_afterwards():
    class Adapter(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base

        def forward(self, x):
            return self.base(x)

    model = make()
    want = step(model)["loss"]
    kw.patch(model)
    layer = model.model.layers[0]
    layer.mlp.down_proj = Adapter(layer.mlp.down_proj)
    layer.post_attention_layernorm = Adapter(layer.post_attention_layernorm)
    model.lm_head = Adapter(model.lm_head)
    torch.testing.assert_close(step(model)["loss"], want)
    fresh = make()
    fresh.model.layers[0].mlp.down_proj = Adapter(fresh.model.layers[0].mlp.down_proj)
    report = kw.patch(fresh)
    assert "down_proj is not a plain Linear" in str(report)
    torch.testing.assert_close(step(fresh)["loss"], want)


def test_a_forward_that_another_patch_replaced_stays():
    model = make()
    norm = model.model.norm
    norm.forward = lambda x: x
    report = kw.patch(model)
    assert "1 x LlamaRMSNorm" in str(report) and "has been replaced already" in str(report)
    kw.unpatch(model)
    assert "forward" in vars(norm)


def test_a_class_that_another_patch_put_into_transformers(monkeypatch):
    """Liger's: code equal to the patched class's need not compute what the original did."""

    class Norm(modeling_llama.LlamaRMSNorm):
        def forward(self, hidden_states):
            return super().forward(hidden_states) * 2

    monkeypatch.setattr(modeling_llama, "LlamaRMSNorm", Norm)
    recognize._reference.cache_clear()
    model = make()
    want = step(model)["loss"]
    report = kw.patch(model)
    recognize._reference.cache_clear()
    assert "5 x Norm" in str(report) and "norm" not in {x.what for x in report.replaced}
    torch.testing.assert_close(step(model)["loss"], want)


def test_hooks_see_every_module():
    model, seen = patched(), set()
    for name, module in model.named_modules():
        module.register_forward_hook(lambda *_, n=name: seen.add(n))
    ids, labels = batch()
    model(input_ids=ids, labels=labels)
    assert {n for n, _ in model.named_modules()} - seen <= {
        "model.layers", *(f"model.layers.{i}.mlp.act_fn" for i in range(2))
    }  # fmt: skip


# unsupported families, and objects that are not models


def test_an_unknown_family_gets_what_is_known_of_it():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
             "intermediate_size": 48, "vocab_size": VOCABULARY}  # fmt: skip
    bert = BertForMaskedLM(BertConfig(**sizes)).eval()
    ids, _ = batch()
    want = bert(input_ids=ids).logits
    report = kw.patch(bert)
    assert {x.module for x in report.replaced} == {"LayerNorm"}
    torch.testing.assert_close(bert(input_ids=ids).logits, want)


def test_every_part_that_stays_is_named_with_the_reason():
    report = kw.patch(make("GPT-OSS"))
    assert {x.what for x in report.lines} == {"norm", "rope", "residual", "experts", "loss"}
    assert report.lines == report.replaced
    olmo = {x.module: x.why for x in kw.patch(make("OLMo 2")).lines if not x.by}
    assert olmo == {"Olmo2DecoderLayer": "its sums and norms are not in a known order"}


def test_a_head_that_is_no_language_models_is_named():
    sizes = make().config.to_dict()
    model = LlamaForSequenceClassification(LlamaConfig(**sizes)).eval()
    ids, _ = batch()
    want = model(input_ids=ids, labels=torch.tensor([0, 1])).loss
    (line,) = (x for x in kw.patch(model).lines if not x.by)
    assert (line.module, line.why) == (
        "LlamaForSequenceClassification", "its head and loss are not a known combination"
    )  # fmt: skip
    torch.testing.assert_close(model(input_ids=ids, labels=torch.tensor([0, 1])).loss, want)


def test_a_module_with_other_code_is_left_alone():
    model = make()

    class OtherRMSNorm(modeling_llama.LlamaRMSNorm):
        def forward(self, hidden_states):
            return super().forward(hidden_states) * 2

    model.model.norm.__class__ = OtherRMSNorm
    want = step(model)["loss"]
    report = kw.patch(model)
    assert "1 x OtherRMSNorm" in str(report) and "its formula is not a known one" in str(report)
    torch.testing.assert_close(step(model)["loss"], want)


def test_a_gate_with_another_activation_is_left_alone():
    model = make(hidden_act="relu")
    assert "its activation is ReLU: supported are swiglu and geglu" in str(kw.patch(model))


def test_nothing_to_replace():
    from transformers import ResNetConfig, ResNetModel

    model = ResNetModel(ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1]))
    report = kw.patch(model)
    assert not report.lines and "nothing replaced" in str(report) and "nothing" in repr(report)


def test_what_is_no_transformers_model():
    with pytest.raises(TypeError, match="model: is a Linear, not a transformers model"):
        kw.patch(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="model: is a Linear, not a transformers model"):
        kw.unpatch(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="model: is a NoneType, not a transformers model"):
        kw.patch(None)
    with pytest.raises(TypeError, match=r"OptimizedModule.*patch it before torch\.compile"):
        kw.patch(torch.compile(make()))
    model = make()
    model._tp_size = 2
    with pytest.raises(ValueError, match="model: is split by tensor parallelism"):
        kw.patch(model)


def test_transformers_is_imported_only_when_used():
    code = (
        "import sys, kernelwright as kw, kernelwright.ops\n"
        "from torch import nn\n"
        "try: kw.patch(nn.Linear(1, 1))\n"
        "except TypeError as e: assert 'not a transformers model' in str(e)\n"
        "assert 'transformers' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
