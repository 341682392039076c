"""kw.patch beside the unpatched model, whatever is done around them: the same numbers or errors."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import kernelwright as kw
from kernelwright.integrations.transformers import binding, mlps, trl
from support.patched_conditions import CONDITIONS, conditions_table, differences, parts
from support.patched_models import VOCABULARY, batch, make, patched, step
from support.paths import ROOT

pytestmark = pytest.mark.usefixtures("few_threads")
PAIRS = [
    pytest.param(name, family, marks=pytest.mark.long if of.long else ())
    for name, of in CONDITIONS.items()
    for family in of.families
]


@pytest.mark.cover
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("name", "family"), PAIRS)
def test_the_same_numbers(name, family):
    """In float64: loss, logits, gradients, and what hooks and copies see."""
    assert differences(name, family) == []


def test_the_table_of_conditions_in_the_docs():
    page = (ROOT / "docs" / "patch.md").read_text()
    assert conditions_table() in page, conditions_table()


# recomputed norms


def test_a_recomputed_norm_has_the_tensors_of_its_forward():
    """Their versions are compared: a change in place is the error that autograd raises."""
    model = patched()
    ids, labels = batch()
    norm = model.model.layers[0].input_layernorm
    projection = model.model.layers[0].self_attn.q_proj.weight
    loss = model(input_ids=ids, labels=labels).loss
    (want,) = torch.autograd.grad(loss, projection, retain_graph=True)
    norm.weight.data = 2 * norm.weight.data  # the forward used other memory
    norm.variance_epsilon = 0.1
    (found,) = torch.autograd.grad(loss, projection, retain_graph=True)
    assert torch.equal(found, want)
    norm = model.model.layers[1].input_layernorm
    with torch.no_grad():
        norm.weight *= 2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, model.model.layers[1].self_attn.q_proj.weight)


def test_a_hook_that_changes_a_norms_weight_behind_it():
    model = patched()
    norm, projection = (model.model.layers[0].input_layernorm,
                        model.model.layers[0].self_attn.q_proj.weight)  # fmt: skip

    @torch.no_grad()
    def hook(module, args, out):
        module.weight *= 2

    norm.register_forward_hook(hook)
    ids, labels = batch()
    loss = model(input_ids=ids, labels=labels).loss
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, projection)


def test_results_of_norms_carry_no_notes():
    """A tensor's attributes are saved with it."""
    seen = []
    model = patched()
    for module in parts(model)["block"]:
        module.register_forward_pre_hook(
            lambda m, args, named: seen.extend((*args, *named.values())), with_kwargs=True
        )
    states = model.model(input_ids=batch()[0]).last_hidden_state
    tensors = [t for t in (*seen, states) if isinstance(t, torch.Tensor)]
    assert len(tensors) > 4 and not any(vars(t) for t in tensors)


# second derivatives


@pytest.mark.parametrize("activation", ["swiglu", "gelu"])
def test_gradients_of_a_product_with_an_activation_are_differentiated(activation):
    """A penalty on gradients by named inputs, and on those of some arguments alone."""
    draw = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(3, 5, generator=draw, dtype=torch.float64).requires_grad_()
        for _ in range(2 if activation == "swiglu" else 1)
    ]
    weight, bias = (torch.randn(*s, generator=draw, dtype=torch.float64).requires_grad_()
                    for s in ((4, 5), (4,)))  # fmt: skip

    def ours():
        return mlps.activated_linear(inputs, weight, bias, activation)

    def theirs():
        hidden = torch.nn.functional.gelu(*inputs) if activation == "gelu" else (
            torch.nn.functional.silu(inputs[0]) * inputs[1]
        )  # fmt: skip
        return torch.nn.functional.linear(hidden, weight, bias)

    for by in ([*inputs, weight, bias], inputs[:1], [weight]):
        found, want = (
            torch.autograd.grad(
                sum(g.pow(3).sum() for g in
                    torch.autograd.grad(f().tanh().sum(), by, create_graph=True)),
                by, allow_unused=True, materialize_grads=True,
            )
            for f in (ours, theirs)
        )  # fmt: skip
        torch.testing.assert_close(found, want)


@pytest.mark.parametrize("cap", [None, 3.0])
def test_gradients_of_trls_scores_are_differentiated(cap):
    draw = torch.Generator().manual_seed(0)
    hidden, weight, bias = (
        torch.randn(*s, generator=draw, dtype=torch.float64).requires_grad_()
        for s in ((7, 8), (VOCABULARY, 8), (VOCABULARY,))
    )
    targets, given = torch.randint(VOCABULARY, (7,), generator=draw), [hidden, weight, bias]

    def ours():
        found = trl._Scores(None).apply(
            hidden, weight, bias, targets, 1.0, 64, cap, 1.0, ("log_probs", "entropy")
        )
        return found[:2]

    def theirs():
        z = torch.nn.functional.linear(hidden, weight, bias)
        logp = torch.log_softmax(z if cap is None else cap * torch.tanh(z / cap), -1)
        return logp.gather(-1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(-1)

    def penalty(scores, entropy, by):
        total = scores.exp().sum() + entropy.square().sum()
        first = torch.autograd.grad(total, by, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), by)

    for by in (given, [weight]):
        torch.testing.assert_close(penalty(*ours(), by), penalty(*theirs(), by))

    def of_weight(f):
        def total(w):
            nonlocal weight
            kept, weight = weight, w
            try:
                return sum(t.sum() for t in f())
            finally:
                weight = kept

        return torch.func.grad(total)(weight.detach())

    torch.testing.assert_close(of_weight(ours), of_weight(theirs))


# classes


def test_a_patched_module_is_of_its_class():
    model, plain = patched(), make()
    for (name, module), own in zip(model.named_modules(), plain.modules(), strict=True):
        assert isinstance(module, type(own)), name
        assert str(type(module)) == str(type(own)), name
    assert "forward" not in vars(model.model.norm)


def test_unpatch_below_classes_that_torch_has_put_on_top():
    model = patched()
    norm, want = model.model.norm, step(make())
    parametrize.register_parametrization(norm, "weight", nn.Identity())
    twin = copy.deepcopy(model)
    kw.unpatch(model)
    assert binding.patched(norm) is None and parametrize.is_parametrized(norm)
    assert torch.equal(step(model)["loss"], want["loss"])
    parametrize.remove_parametrizations(norm, "weight")
    assert type(norm) is type(make().model.norm)
    assert binding.patched(twin.model.norm) is not None
    torch.testing.assert_close(step(twin)["loss"], want["loss"])


def test_unpatch_inside_the_wrappers_of_accelerate():
    hooks = pytest.importorskip("accelerate.hooks")
    model = patched()
    mlp = model.model.layers[0].mlp
    hooks.add_hook_to_module(mlp, hooks.ModelHook())
    kw.unpatch(model)
    assert mlp._old_forward.__func__ is type(mlp).forward
    hooks.remove_hook_from_module(mlp)
    assert mlp.forward.__func__ is type(mlp).forward


def test_unpatch_names_a_wrapper_that_calls_the_replaced_forward():
    model = patched()
    layer = model.model.layers[1]
    layer.mlp.forward = torch.compile(layer.mlp.forward, backend="eager")
    layer.input_layernorm.forward = lambda x: x  # calls nothing
    with pytest.warns(UserWarning, match=r"model\.model\.layers\.1\.mlp\.forward: ") as found:
        kw.unpatch(model)
    assert len(found) == 1
