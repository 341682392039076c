"""kw.patch under torch.compile: the same results, the same operators, no more memory."""

import pytest
import torch

from support.graphs import Graphs
from support.patched_models import FAMILIES, batch, patched

pytestmark = pytest.mark.usefixtures("few_threads")

# calls in a forward of two layers without the loss; activation products are formulas there
ROTATED = {"rms_norm": 3, "add_rms_norm": 2, "rope": 2}
CALLS = {
    "Llama": ROTATED,
    "Qwen 2": ROTATED,
    "Qwen 3": ROTATED | {"rms_norm": 7},
    "Mistral": ROTATED,
    "Gemma": ROTATED,
    "Gemma 2": ROTATED | {"rms_norm": 7},
    "Gemma 3": ROTATED | {"rms_norm": 11},
    "GPT-2": {"layer_norm": 3, "add_layer_norm": 2},
}


def compiled(model, backend):
    torch.compiler.reset()
    return torch.compile(model, backend=backend, fullgraph=True)


LATER = ("Qwen 2", "Mistral", "Gemma", "Gemma 3")  # their parts are Llama's and Gemma 2's


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=pytest.mark.long) if f in LATER else f for f in FAMILIES]
)
def test_a_step_in_one_graph(family):
    """With the operators that a step calls without torch.compile; it saves no more of their results
    for its backward."""
    model = patched(family)
    ids, labels = batch()
    eager, graphs = {}, Graphs()

    def pack(t):
        eager[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        want = model(input_ids=ids, labels=labels, use_cache=False).loss
    found = compiled(model, graphs)(input_ids=ids, labels=labels, use_cache=False).loss
    parameters = list(model.parameters())
    gradients = [torch.autograd.grad(loss, parameters) for loss in (found, want)]
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)

    forward = CALLS[family]
    backward = {f"{name}_backward": n for name, n in forward.items()}
    assert graphs.operators() == forward | backward | {"linear_cross_entropy": 1}

    weights = {p.untyped_storage().data_ptr() for p in parameters}
    kept = [sum(n for at, n in by.items() if at not in weights) for by in (graphs.kept, eager)]
    assert 0 < kept[0] <= kept[1]


@pytest.mark.parametrize("family", ["Llama", "Gemma 2", "GPT-2"])
def test_logits_in_one_graph(family):
    model = patched(family).eval()
    ids, _ = batch()
    graphs = Graphs()
    with torch.no_grad():
        logits = compiled(model, graphs)(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(logits, model(input_ids=ids).logits, rtol=1e-4, atol=1e-5)
    assert graphs.operators() == CALLS[family]


def padded(ids):
    return torch.ones_like(ids).index_fill(1, torch.arange(3), 0)


@pytest.mark.parametrize(
    ("family", "more", "masked"),
    [
        ("Llama", {}, 0),
        ("Llama", {"attention_mask": padded}, 2),
        ("Llama", {"position_ids": lambda ids: torch.arange(17).remainder(9)[None]}, 2),
        pytest.param("Llama", {"is_causal": lambda ids: False}, 2, marks=pytest.mark.long),
        ("Gemma 2", {}, 1),  # one of two layers has a window, which is shorter
        pytest.param("GPT-2", {}, 0, marks=pytest.mark.long),
        pytest.param("GPT-2", {"attention_mask": padded}, 2, marks=pytest.mark.long),
    ],
)
def test_attention_is_given_a_mask_only_where_it_needs_one(family, more, masked):
    model = patched(family)
    ids, labels = batch()
    given = {name: value(ids) for name, value in more.items()}
    masks = []

    def backend(module, inputs):
        for node in module.graph.nodes:
            if node.target is torch.nn.functional.scaled_dot_product_attention:
                masks.append(node.kwargs["attn_mask"])
        return module

    found = compiled(model, backend)(input_ids=ids, labels=labels, use_cache=False, **given).loss
    assert len(masks) == 2 and len([m for m in masks if m is not None]) == masked
    want = model(input_ids=ids, labels=labels, use_cache=False, **given).loss
    torch.testing.assert_close(found, want)


def test_attention_that_only_its_mask_makes_causal_is_given_one():
    by_mask, by_itself = (patched(attn_implementation=name) for name in ("eager", "sdpa"))
    ids, labels = batch()
    found = compiled(by_mask, "aot_eager")(input_ids=ids, labels=labels, use_cache=False).loss
    want = by_itself(input_ids=ids, labels=labels, use_cache=False).loss
    torch.testing.assert_close(found, want)


def test_gradient_checkpointing_in_a_compiled_model():
    model = patched()
    ids, labels = batch()
    want = model(input_ids=ids, labels=labels, use_cache=False).loss
    model.gradient_checkpointing_enable({"use_reentrant": False})
    found = compiled(model, "aot_eager")(input_ids=ids, labels=labels, use_cache=False).loss
    parameters = list(model.parameters())
    gradients = [torch.autograd.grad(loss, parameters) for loss in (found, want)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
