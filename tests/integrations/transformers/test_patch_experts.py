"""kw.patch on mixtures of experts: equal results in every mode, and what is not replaced."""

import importlib
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.models.mixtral import modeling_mixtral

import kernelwright as kw
from kernelwright.contract.compare import FACTOR, ULPS, measure
from kernelwright.integrations.transformers import code, experts, recognize
from support.graphs import Graphs
from support.patched_models import batch, make, patched, step

pytestmark = pytest.mark.usefixtures("few_threads")

WIDE, DEEP, COUNT = 16, 24, 4


def module_of(reference="mixtral.MixtralExperts", dtype=torch.float32, act="silu"):
    """Random experts of a class, without a model."""
    family, name = reference.split(".")
    cls = getattr(importlib.import_module(f"transformers.models.{family}.modeling_{family}"), name)
    config = SimpleNamespace(
        hidden_size=WIDE, intermediate_size=DEEP, moe_intermediate_size=DEEP, hidden_act=act,
        num_experts=COUNT, num_local_experts=COUNT, swiglu_limit=1.0, swiglu_alpha=1.3,
        _experts_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    module = cls(config)
    for p in module.parameters():
        nn.init.normal_(p, std=0.5)
    return module.to(dtype)


def routed(tokens=6, dtype=torch.float32):
    """(tokens, indices of experts, weights): the last expert gets no tokens."""
    torch.manual_seed(1)
    weights, indices = torch.rand(tokens, COUNT - 1).topk(2)
    return torch.randn(tokens, WIDE, dtype=dtype), indices, weights


def replaced(module):
    """The module's forward as `patch` would replace it."""
    new = recognize.replacement(module)
    assert isinstance(new, recognize.Replacement), new
    return new.forwards[""].__get__(module)


@pytest.mark.parametrize("reference", experts.EXPERTS)
def test_every_form_of_experts(reference):
    module = module_of(reference)
    given = routed()
    torch.testing.assert_close(replaced(module)(*given), module(*given), rtol=1e-4, atol=1e-5)
    none = (t[:0] for t in given)
    assert replaced(module)(*none).shape == (0, WIDE)


def test_arguments_by_name_and_any_activation_that_is_known():
    module = module_of("gpt_oss.GptOssExperts")
    x, indices, weights = routed()
    found = replaced(module)(x, routing_weights=weights, router_indices=indices)
    torch.testing.assert_close(found, module(x, indices, weights), rtol=1e-4, atol=1e-5)
    module = module_of(act="gelu")
    assert recognize.replacement(module).by == "grouped_mm, geglu"
    torch.testing.assert_close(replaced(module)(*routed()), module(*routed()), rtol=1e-4, atol=1e-5)
    assert recognize.replacement(module_of(act="relu")) == (
        "its activation is ReLU: supported are swiglu and geglu"
    )


@pytest.mark.parametrize("reference", ["mixtral.MixtralExperts", "gpt_oss.GptOssExperts"])
@pytest.mark.parametrize("autocast", [False, True])
def test_in_bfloat16(reference, autocast):
    """The router's weights are float32, as in most models. The result has the input's dtype; its
    error and those of gradients are at most twice the unpatched module's plus a few ulp."""
    module, wide = (module_of(reference, d) for d in (torch.bfloat16, torch.float64))
    wide.load_state_dict(module.state_dict())
    x, indices, weights = routed(40, torch.bfloat16)
    if autocast:
        module, x = module.float(), x.float()

    def run(forward, x, weights):
        leaves = [x.requires_grad_(), weights.requires_grad_(), *forward.__self__.parameters()]
        y = forward(leaves[0], indices, leaves[1])
        return [y, *torch.autograd.grad(y.double().square().sum(), leaves)]

    reference = run(wide.forward, x.detach().double(), weights.detach().double())
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        own = run(module.forward, x, weights)
        found = run(replaced(module), x, weights)
    for want, theirs, mine in zip(reference, own, found, strict=True):
        assert mine.dtype == theirs.dtype
        errors = [measure(t.flatten(), want.flatten()).norm for t in (mine, theirs)]
        assert errors[0] <= FACTOR * errors[1] + 2 * ULPS * torch.finfo(torch.bfloat16).eps


@pytest.mark.parametrize("family", [pytest.param("Mixtral", marks=pytest.mark.long), "GPT-OSS"])
def test_a_step_in_one_graph(family):
    """A layer has two products, and two more for the gradients of their inputs."""
    model = patched(family, num_hidden_layers=1, layer_types=None)
    ids, labels = batch()
    graphs = Graphs()
    torch.compiler.reset()
    run = torch.compile(model, backend=graphs, fullgraph=True)
    losses = [f(input_ids=ids, labels=labels, use_cache=False).loss for f in (run, model)]
    gradients = [torch.autograd.grad(loss, list(model.parameters())) for loss in losses]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    called = graphs.operators()
    assert (called["grouped_mm"], called["grouped_matrices"]) == (4, 2)
    assert called["embedding"] == (2 if family == "GPT-OSS" else 0)


def test_router_logits_and_auxiliary_loss_are_the_unpatched_ones():
    ids, labels = batch()
    given = {"input_ids": ids, "labels": labels, "output_router_logits": True}
    for family in ("Mixtral", "Qwen 3 MoE"):
        model = make(family)
        want, loss = model(**given), step(model, output_router_logits=True)
        as_tuple = model(**given, return_dict=False)
        kw.patch(model)
        found, again = model(**given), step(model, output_router_logits=True)
        torch.testing.assert_close(found.aux_loss, want.aux_loss)
        torch.testing.assert_close(found.router_logits, want.router_logits, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(again, loss, rtol=1e-4, atol=2e-5)
        mine = model(**given, return_dict=False)
        assert len(mine) == len(as_tuple)
        torch.testing.assert_close(mine[0], as_tuple[0])
        torch.testing.assert_close(mine[1], as_tuple[1])  # of the router's loss
        kw.unpatch(model)
        assert not any("forward" in vars(m) for m in model.modules())


class Added(nn.Module):
    """An adapter of a weight, like those that PEFT adds to the parameters of experts."""

    def __init__(self, weight):
        super().__init__()
        self.a = nn.Parameter(torch.randn(*weight.shape[:2], 1) * 0.3)
        self.b = nn.Parameter(torch.randn(weight.shape[0], 1, weight.shape[2]) * 0.3)

    def forward(self, weight):
        return weight + self.a @ self.b


def test_adapters_of_the_experts_weights():
    def run(model):
        module = model.model.layers[0].mlp.experts
        module.requires_grad_(False)
        torch.manual_seed(3)
        for name in ("gate_up_proj", "down_proj"):
            parametrize.register_parametrization(module, name, Added(getattr(module, name)))
        return step(model)

    want, found = run(make("Mixtral")), run(patched("Mixtral"))
    assert any("parametrizations.down_proj.0.a" in name for name in want)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=2e-5)


def test_peft_on_parameters_of_experts():
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = peft.LoraConfig(
        r=4, target_modules=["q_proj"], lora_dropout=0.0,
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
    )  # fmt: skip
    model = peft.get_peft_model(make("Mixtral"), config)
    for name, p in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(p, std=0.1)
    want = step(model)
    report = kw.patch(model)
    assert "moe_ffn" in {x.by for x in report.replaced}
    torch.testing.assert_close(step(model), want, rtol=1e-4, atol=2e-5)


def test_an_implementation_that_the_user_chose_is_kept(monkeypatch):
    model = make("Mixtral")
    model.set_experts_implementation("batched_mm")
    assert "2 x MixtralExperts       experts by moe_ffn" in str(kw.patch(model))
    own = type(ALL_EXPERTS_FUNCTIONS)._global_mapping
    monkeypatch.setitem(own, "mine", lambda self, x, indices, weights: x)
    model = make("Mixtral")
    model.set_experts_implementation("mine")
    (line,) = (x for x in kw.patch(model).lines if not x.by)
    assert (line.module, line.count) == ("MixtralExperts", 2)
    assert line.why == "the experts implementation 'mine' was chosen for it"


def test_experts_in_another_form_are_left_with_the_reason():
    module = module_of()
    module.gate_up_proj = nn.Parameter(module.gate_up_proj.to(torch.float8_e4m3fn))
    why = "its gate_up_proj is quantized, to torch.float8_e4m3fn"
    assert recognize.replacement(module) == why
    del module.gate_up_proj
    assert recognize.replacement(module) == "its gate_up_proj is not one tensor of all experts"
    found = {x.module: x.why for x in kw.patch(make("Llama 4")).lines if not x.by}
    assert found == {"Llama4TextExperts": "its experts are not computed in a known form"}


class WrongExperts(modeling_mixtral.MixtralExperts):
    def forward(self, hidden_states, top_k_index, top_k_weights):
        kept = top_k_weights * (top_k_index > 0)
        return super().forward(hidden_states, top_k_index, kept)


def test_what_is_taken_for_known_experts_is_seen_to_be_another(monkeypatch):
    module = module_of()
    assert isinstance(recognize.replacement(module), recognize.Replacement)
    module.__class__ = WrongExperts
    taken = code.essence(WrongExperts.forward, WrongExperts)
    real, name = recognize._reference, "mixtral.MixtralExperts"
    monkeypatch.setattr(recognize, "_reference", lambda n: taken if n == name else real(n))
    assert recognize.replacement(module).startswith("on a small input moe_ffn is off by ")
