"""kw.patch on small random models: what it replaces, equal numbers, and how it is undone."""

import copy
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

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
from kernelwright.contract import Unsupported
from kernelwright.contract.compare import FACTOR, ULPS, measure
from kernelwright.integrations.transformers import forwards, known
from patched_models import FAMILIES, VOCABULARY, InFloat64, batch, families_table, make, step

HERE = Path(__file__).parent
GPU_RUNGS = {
    "triton": {
        "rms_norm": "triton_row", "add_rms_norm": "triton_row", "swiglu": "triton_rows",
        "rope": "triton_token", "linear_cross_entropy": "chunked",
        "cross_entropy_with_grad_": "triton_online",
    },
    "cuda": {
        "rms_norm": "cuda_warp", "add_rms_norm": "cuda_warp", "swiglu": "cuda_vec16",
        "rope": "cuda_vec16", "linear_cross_entropy": "chunked",
        "cross_entropy_with_grad_": "cuda_block",
    },
}  # fmt: skip
REPLACEMENTS = {"Llama": forwards.llama_norm, "Gemma": forwards.gemma_norm}
families = pytest.mark.parametrize("family", FAMILIES)
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
dtypes = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)


def over_budget(patched, unpatched, reference, dtype):
    """The results of a patched model that err too much, each in a line.

    Args:
        patched, unpatched, reference: {name: tensor}; the reference is the unpatched model's, in
            float64.
        dtype: of the model. A tensor may err twice as much as the unpatched model's, over the
            whole of it, plus 2 ulp of this dtype.
    """
    eps, wrong = torch.finfo(dtype).eps, []
    for name, ref in reference.items():
        mine, theirs = (
            measure(x[name].flatten(), ref.flatten()).norm for x in (patched, unpatched)
        )
        if not mine <= FACTOR * theirs + ULPS * eps:
            wrong.append(f"{name}: error {mine:.3g}, unpatched {theirs:.3g}")
        if patched[name].dtype != unpatched[name].dtype:
            wrong.append(f"{name}: is {patched[name].dtype}, unpatched {unpatched[name].dtype}")
    return wrong


def compare(family="Llama", dtype=torch.float32, run=step, **changes):
    model, wide = make(family, dtype, **changes), make(family, dtype, **changes).double()
    unpatched = run(model)
    with InFloat64():
        reference = step(wide)
    kw.patch(model)
    patched = run(model)
    assert over_budget(patched, unpatched, reference, dtype) == []


def patched(family="Llama", **changes):
    model = make(family, **changes)
    kw.patch(model)
    return model


@pytest.fixture(autouse=True)
def few_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# the numbers


@dtypes
@families
def test_losses_gradients_and_logits_are_the_unpatched_ones(family, dtype):
    compare(family, dtype)


def test_the_budget_is_exceeded_by_what_is_wrong():
    model = make()
    unpatched = step(model)
    with InFloat64():
        reference = step(make().double())
    model.model.norm.variance_epsilon = 1e-3
    wrong = over_budget(step(model), unpatched, reference, torch.float32)
    assert any(line.startswith("loss") for line in wrong) and len(wrong) > 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@families
def test_under_autocast(family, dtype):
    def run(model):
        ids, labels = batch()
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            out = model(input_ids=ids, labels=labels)
            with torch.no_grad():
                logits = model.eval()(input_ids=ids).logits
        model.train()
        out.loss.backward()
        found = {f"gradient of {n}": p.grad.clone() for n, p in model.named_parameters()}
        return {"loss": out.loss.detach(), "logits": logits, **found}

    model, wide = make(family, dtype), make(family, dtype).double()
    unpatched = run(model)
    with InFloat64():
        reference = step(wide)
    kw.patch(model)
    assert over_budget(run(model), unpatched, reference, torch.bfloat16) == []


def test_norms_keep_their_dtypes_under_autocast():
    """PyTorch's autocast takes rms_norm to float32 on a GPU; these modules are no such call."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for family, weights in (("Llama", torch.bfloat16), ("Llama", torch.float32), ("Gemma", None)):
        norm = make(family, weights or torch.float32).get_decoder().norm.to(device)
        x = torch.randn(3, 32, device=device, dtype=torch.bfloat16)
        with torch.autocast(device, torch.bfloat16):
            want = norm(x).dtype
            norm.forward = REPLACEMENTS[family].__get__(norm)
            assert norm(x).dtype == want == (weights or torch.bfloat16)
            y, h = norm(x, x)
            assert (y.dtype, h.dtype) == (want, torch.bfloat16)


@pytest.mark.parametrize("language", GPU_RUNGS)
def test_gpu_rungs_serve_the_model(language):
    def run(model):
        with kw.use(GPU_RUNGS[language]):
            return step(model)

    compare(run=run)


@pytest.mark.parametrize("operator", [x for x in GPU_RUNGS["cuda"] if "linear" not in x])
def test_the_rung_that_is_asked_for_serves(operator):
    """No kernel takes float64: a model that calls the operator says so."""
    model = patched(dtype=torch.float64)
    asked = {operator: GPU_RUNGS["cuda"][operator], "linear_cross_entropy": "chunked"}
    with kw.use(asked), pytest.raises(Unsupported, match=f"^{operator}"):
        step(model)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "gelu"},
        {"hidden_act": "gelu_pytorch_tanh"},
        {"mlp_bias": True, "attention_bias": True},
        {"tie_word_embeddings": True},
        {"attn_implementation": "eager"},
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}},
    ],
    ids=lambda c: next(iter(c)),
)
def test_configs_of_llama(changes):
    compare(**changes)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])
def test_activations_of_gpt2(activation):
    compare("GPT-2", activation_function=activation)


def test_gpt2_with_cross_attention():
    model = make("GPT-2", add_cross_attention=True).eval()
    ids, labels = batch()
    encoded = torch.randn(2, 5, 32)
    want = model(input_ids=ids, encoder_hidden_states=encoded).logits
    kw.patch(model)
    torch.testing.assert_close(model(input_ids=ids, encoder_hidden_states=encoded).logits, want)
    out = model.train()(input_ids=ids, labels=labels, encoder_hidden_states=encoded)
    assert out.logits is None and out.loss.isfinite()


# the loss


@pytest.mark.parametrize(
    "more",
    [
        {"num_items_in_batch": 7},
        {"num_items_in_batch": torch.tensor(7)},
        {"shift_labels": batch()[0].roll(-1, 1)},
    ],
    ids=lambda m: next(iter(m)),
)
def test_options_of_the_loss(more):
    model = make()
    want = step(model, **more)
    kw.patch(model)
    found = step(model, **more)
    for name in want:
        torch.testing.assert_close(found[name], want[name], msg=lambda m, n=name: f"{n}: {m}")


@families
def test_logits_are_there_unless_a_model_in_training_is_given_labels(family):
    model = patched(family)
    ids, labels = batch()
    out = model(input_ids=ids, labels=labels)
    assert out.logits is None and out.loss.requires_grad
    assert model(input_ids=ids).logits.shape == (2, 17, VOCABULARY)
    both = model(input_ids=ids, labels=labels, skip_logits=False)
    torch.testing.assert_close(both.loss, out.loss)
    assert both.logits.shape == (2, 17, VOCABULARY)
    model.eval()
    assert model(input_ids=ids, labels=labels).logits.shape == (2, 17, VOCABULARY)
    assert model(input_ids=ids, labels=labels, skip_logits=True).logits is None
    assert model.train()(ids, labels=labels, return_dict=False)[0] == out.loss
    states = model(ids, labels=labels, output_hidden_states=True).hidden_states
    assert len(states) == 3


def test_a_loss_that_is_not_transformers_own():
    model = patched()
    model.loss_function = lambda logits, labels, **_: logits.sum()
    ids, labels = batch()
    out = model(input_ids=ids, labels=labels)
    assert out.loss == out.logits.sum()
    other = make()
    other.loss_function = model.loss_function
    assert "it has a loss function of its own" in str(kw.patch(other))


def test_a_training_step_keeps_less():
    def kept(model):
        held = {}

        def pack(t):
            held[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        ids, labels = batch()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            loss = model(input_ids=ids, labels=labels).loss
        weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        return sum(n for at, n in held.items() if at not in weights), loss

    model = make(vocab_size=96, intermediate_size=512)
    (before, _), _ = kept(model), kw.patch(model)
    after, _ = kept(model)
    rows, layers = 34, 2
    assert before - after > rows * 4 * (512 * layers + VOCABULARY)


@pytest.mark.parametrize("more", [{}, {"num_items_in_batch": 3}], ids=["mean", "items"])
def test_labels_of_which_none_counts(more):
    ids, _ = batch()
    for labels, index in ((torch.full_like(ids, -100), -100), (torch.full_like(ids, 5), 5)):
        want = make()(input_ids=ids, labels=labels, ignore_index=index, **more).loss
        found = patched()(input_ids=ids, labels=labels, ignore_index=index, **more).loss
        torch.testing.assert_close(found, want, equal_nan=True)


def test_labels_that_are_wrong():
    model = patched()
    ids, labels = batch()
    with pytest.raises(IndexError, match="target: 900 is out of range for 96 classes"):
        model(input_ids=ids, labels=labels.masked_fill(labels > 0, 900))
    with pytest.raises(ValueError, match=r"labels: has shape \(2, 16\), should be \(2, 17\)"):
        model(input_ids=ids, labels=labels[:, 1:])


def test_a_part_of_the_model_that_trains():
    def gradients(model):
        for name, p in model.named_parameters():
            p.requires_grad_("layers.1" in name)
        ids, labels = batch()
        model(input_ids=ids, labels=labels).loss.backward()
        return {n: p.grad for n, p in model.named_parameters() if p.requires_grad}

    want, found = gradients(make()), gradients(patched())
    assert want.keys() == found.keys()
    for name in want:
        torch.testing.assert_close(found[name], want[name])


# what is replaced


@families
def test_the_report_names_what_is_replaced(family, capsys):
    report = kw.patch(make(family))
    assert capsys.readouterr().out == f"{report}\n"
    parts = {line.what for line in report.replaced}
    assert parts >= {"norm", "MLP", "residual", "loss"}
    assert ("rope" in parts) == (family != "GPT-2")
    assert repr(report).startswith(f"<{type(make(family)).__name__}: ")
    left = {line.why for line in report.lines if not line.by}
    assert left == ({"rotates nothing by apply_rotary_pos_emb"} if family == "GPT-2" else set())


def test_every_norm_layer_and_mlp_is_replaced():
    report = kw.patch(make("Gemma 3"))
    assert {(x.module, x.count) for x in report.lines} == {
        ("Gemma3ForCausalLM", 1), ("Gemma3DecoderLayer", 2), ("Gemma3Attention", 2),
        ("Gemma3MLP", 2), ("Gemma3RMSNorm", 13),
    }  # fmt: skip


def test_the_table_of_families_in_the_docs():
    page = (HERE.parent / "docs" / "patch.md").read_text()
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
    assert "down_proj is no plain Linear" in str(report)
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
    """Liger's: what is word for word what stands there now need not compute what stood there."""

    class Norm(modeling_llama.LlamaRMSNorm):
        def forward(self, hidden_states):
            return super().forward(hidden_states) * 2

    monkeypatch.setattr(modeling_llama, "LlamaRMSNorm", Norm)
    known._reference.cache_clear()
    model = make()
    want = step(model)["loss"]
    report = kw.patch(model)
    known._reference.cache_clear()
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


# where models run


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(reentrant):
    model = make()
    want = step(model)
    kw.patch(model)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    found = step(model, use_cache=False)
    for name in want:
        torch.testing.assert_close(found[name], want[name], msg=lambda m, n=name: f"{n}: {m}")


@families
def test_generate_gives_the_same_tokens(family):
    model = make(family).eval()
    ids, _ = batch(5)
    want = model.generate(ids, max_new_tokens=12, do_sample=False)
    kw.patch(model)
    assert torch.equal(model.generate(ids, max_new_tokens=12, do_sample=False), want)
    assert len(want[0].unique()) > 3


@pytest.mark.parametrize("family", ["Llama", "Gemma 2", "GPT-2"])
def test_torch_compile_in_one_graph(family):
    model = make(family)
    ids, labels = batch()
    want = step(model)
    kw.patch(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    model.zero_grad()
    out = compiled(input_ids=ids, labels=labels, use_cache=False)
    out.loss.backward()
    torch.testing.assert_close(out.loss, want["loss"])
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, want[f"gradient of {name}"], rtol=1e-4, atol=1e-5)


def test_torch_compile_calls_our_rope():
    model = patched()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph.code)
        return graph

    ids, _ = batch()
    with torch.no_grad():
        torch.compile(model, backend=backend, fullgraph=True)(input_ids=ids, use_cache=False)
    torch.compiler.reset()
    assert graphs[0].count("kernelwright.rope") == 2


def test_trainer_reports_the_same_losses(tmp_path):
    pytest.importorskip("accelerate")
    from transformers import Trainer, TrainingArguments

    data = [
        dict(zip(("input_ids", "labels"), pair, strict=True)) for pair in zip(*batch(), strict=True)
    ]

    def losses(model, bf16):
        arguments = TrainingArguments(
            output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=1, logging_steps=1,
            gradient_accumulation_steps=2, report_to=[], use_cpu=True, save_strategy="no",
            learning_rate=1e-3, disable_tqdm=True, eval_strategy="steps", eval_steps=2, bf16=bf16,
        )  # fmt: skip
        trainer = Trainer(model, arguments, train_dataset=data * 4, eval_dataset=data)
        trainer.train()
        history = trainer.state.log_history
        trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
        return [h[k] for h in history for k in ("loss", "eval_loss", "grad_norm") if k in h]

    for bf16, rel in ((False, 1e-3), (True, 3e-2)):
        want = losses(make(), bf16)
        assert len(want) >= 7
        assert losses(patched(), bf16) == pytest.approx(want, rel=rel)


def test_fsdp2_on_two_ranks():
    """Each rank has half of each parameter; loss and gradients are those of one process."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    done = subprocess.run(
        [sys.executable, str(HERE / "patched_fsdp.py")], env=env, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("LlamaForCausalLM:") == 3  # printed by rank 0 alone, each time


# what is no family of ours, and no model


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


def test_every_part_of_an_unknown_family_is_named_with_the_reason():
    from transformers import Olmo2Config, Olmo2ForCausalLM

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
             "intermediate_size": 48, "vocab_size": VOCABULARY, "pad_token_id": 0}  # fmt: skip
    model = Olmo2ForCausalLM(Olmo2Config(**sizes)).train()
    want = step(model)
    report = kw.patch(model)
    assert {x.what for x in report.replaced} == {"MLP", "loss"}
    assert {x.module: x.why for x in report.lines if not x.by} == {
        "Olmo2Attention": "its apply_rotary_pos_emb is not Llama's",
        "Olmo2RMSNorm": "its formula is none that is known here",
        "Olmo2DecoderLayer": "its sums and norms follow each other in another order",
    }
    found = step(model)
    for name in want:
        torch.testing.assert_close(found[name], want[name], msg=lambda m, n=name: f"{n}: {m}")


def test_a_head_that_is_no_language_models_is_named():
    sizes = make().config.to_dict()
    model = LlamaForSequenceClassification(LlamaConfig(**sizes)).eval()
    ids, _ = batch()
    want = model(input_ids=ids, labels=torch.tensor([0, 1])).loss
    (line,) = (x for x in kw.patch(model).lines if not x.by)
    assert (line.module, line.why) == (
        "LlamaForSequenceClassification", "its head and loss are none that are known here"
    )  # fmt: skip
    torch.testing.assert_close(model(input_ids=ids, labels=torch.tensor([0, 1])).loss, want)


def test_an_unknown_head_and_loss_are_named():
    from transformers import GraniteConfig, GraniteForCausalLM

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
             "intermediate_size": 48, "vocab_size": VOCABULARY, "pad_token_id": 0}  # fmt: skip
    report = kw.patch(GraniteForCausalLM(GraniteConfig(**sizes)))
    assert "its head and loss are none that are known here" in str(report)
    assert {x.what for x in report.replaced} == {"norm", "rope", "MLP"}


def test_a_module_with_other_code_is_left_alone():
    model = make()

    class OtherRMSNorm(modeling_llama.LlamaRMSNorm):
        def forward(self, hidden_states):
            return super().forward(hidden_states) * 2

    model.model.norm.__class__ = OtherRMSNorm
    want = step(model)["loss"]
    report = kw.patch(model)
    assert "1 x OtherRMSNorm" in str(report) and "its formula is none that is known" in str(report)
    torch.testing.assert_close(step(model)["loss"], want)


def test_a_gate_with_another_activation_is_left_alone():
    model = make(hidden_act="relu")
    assert "its activation is ReLU: there are swiglu and geglu" in str(kw.patch(model))


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


def test_transformers_is_imported_by_who_uses_it():
    code = (
        "import sys, kernelwright as kw, kernelwright.ops\n"
        "from torch import nn\n"
        "try: kw.patch(nn.Linear(1, 1))\n"
        "except TypeError as e: assert 'not a transformers model' in str(e)\n"
        "assert 'transformers' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
