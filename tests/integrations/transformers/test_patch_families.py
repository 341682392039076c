"""kw.patch on further families: equal results, and the results of their heads."""

import pytest
import torch
import transformers as hf
from torch import nn

import kernelwright as kw
from kernelwright.contract.compare import FACTOR, ULPS, measure
from support.patched_models import MORE, VOCABULARY, InFloat64, batch, make, patched, step

pytestmark = pytest.mark.usefixtures("few_threads")
# Its router's gradient is a difference of nearly equal numbers, dominated by rounding.
CANCELS = "mlp.gate.weight"


@pytest.mark.parametrize("family", MORE)
def test_losses_gradients_and_logits_are_the_unpatched_ones(family):
    model = make(family)
    want = step(model)
    kw.patch(model)
    found = step(model)
    assert want.keys() == found.keys()
    for name in (n for n in want if not n.endswith(CANCELS)):
        torch.testing.assert_close(
            found[name], want[name], rtol=1e-4, atol=2e-5, msg=lambda m, n=name: f"{n}: {m}"
        )
    ids, labels = batch()
    assert model(input_ids=ids, labels=labels).logits is None


@pytest.mark.long
@pytest.mark.parametrize("family", [f for f in MORE if not hasattr(MORE[f][1], "n_routed_experts")])
def test_in_bfloat16(family):
    """The error of a tensor may be twice the unpatched model's, as in test_patch.py."""
    model, wide = make(family, torch.bfloat16), make(family, torch.bfloat16).double()
    unpatched = step(model)
    with InFloat64():
        reference = step(wide)
    kw.patch(model)
    found, wrong = step(model), []
    for name, ref in reference.items():
        mine, theirs = (measure(x[name].flatten(), ref.flatten()).norm for x in (found, unpatched))
        if not mine <= FACTOR * theirs + 2 * ULPS * torch.finfo(torch.bfloat16).eps:
            wrong.append(f"{name}: error {mine:.3g}, unpatched {theirs:.3g}")
    assert wrong == []


def test_images_of_vision_language_models():
    """Qwen 2.5 VL and GLM-4V: an image of 8 x 8 patches, whose rope has a table of two angles."""
    grid = torch.tensor([[1, 8, 8]])
    pixels = torch.randn(64, 3 * 2 * 4 * 4, generator=torch.Generator().manual_seed(2))
    for family in ("Qwen 2.5 VL", "GLM 4V"):
        model = make(family).eval()
        want = model.model.visual(pixels, grid_thw=grid)
        kw.patch(model)
        found = model.model.visual(pixels, grid_thw=grid)
        torch.testing.assert_close(
            found.pooler_output, want.pooler_output, rtol=1e-4, atol=1e-4, msg=family
        )


# results of heads


def test_a_tuple_is_as_long_as_transformers_own():
    ids, labels = batch()
    for family in ("Llama", "GPT-2", "GPT-OSS", "LLaVA"):
        want = make(family)(input_ids=ids, labels=labels, return_dict=False)
        found = patched(family)(input_ids=ids, labels=labels, return_dict=False)
        assert len(found) == len(want) and found[1] is None, family
        torch.testing.assert_close(found[0], want[0])


def test_accuracy_without_logits():
    model = make()
    ids, labels = batch()
    model.requires_grad_(False)
    best = model(input_ids=ids).logits[:, :-1].argmax(-1)
    labels[:, 1:][:, ::3] = best[:, ::3]  # some are right
    labels[1, 9:] = -100
    counts = labels[:, 1:] != -100
    want = ((best == labels[:, 1:]) & counts).sum() / counts.sum()
    assert 0 < want < 1
    kw.patch(model.requires_grad_(True))
    for training in (True, False):
        out = model.train(training)(
            input_ids=ids, labels=labels, return_token_accuracy=True, use_cache=False
        )
        torch.testing.assert_close(out.token_accuracy, want)
        assert (out.logits is None) == training
        assert list(out) == ["loss", *(() if training else ("logits",)), "token_accuracy"]
    *_, last = model(ids, labels=labels, return_token_accuracy=True, return_dict=False)
    torch.testing.assert_close(last, want)
    with pytest.raises(ValueError, match="return_token_accuracy: there are no labels"):
        model(input_ids=ids, return_token_accuracy=True)


def test_norms_results_are_made_again_and_not_kept():
    """Also if a graph is used twice. Saved-tensor hooks around a model see the results."""
    import weakref

    def results(model):
        found = []
        for name, module in model.named_modules():
            if "layernorm" in name:
                module.register_forward_hook(
                    lambda m, args, out: found.append(
                        weakref.ref(out[0] if isinstance(out, tuple) else out)
                    )
                )
        return found

    ids, labels = batch()
    for family in ("Llama", "Granite", "Qwen 3 MoE"):
        model = patched(family)
        found, weights = results(model), list(model.parameters())
        loss = model(input_ids=ids, labels=labels).loss
        assert [x() for x in found] == [None] * 4, family
        once = torch.autograd.grad(loss, weights, retain_graph=True, materialize_grads=True)
        again = torch.autograd.grad(loss, weights, materialize_grads=True)
        torch.testing.assert_close(once, again, rtol=0, atol=0)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        model(input_ids=ids, labels=labels)
    alive = [x() for x in found[4:]]
    pointers = {t.data_ptr() for t in kept}
    assert len(alive) == 4 and all(t.data_ptr() in pointers for t in alive)


def test_a_loss_of_experts_is_added_in_place():
    """output_router_logits: the model computes `loss +=` on the operator's result."""
    ids, labels = batch()
    given = {"input_ids": ids, "labels": labels, "output_router_logits": True}
    want = make("GPT-OSS")(**given)
    found = patched("GPT-OSS")(**given)
    torch.testing.assert_close(found.loss, want.loss)
    torch.testing.assert_close(found.aux_loss, want.aux_loss)
    found.loss.backward()


class Head(hf.LlamaForCausalLM):
    """A model that computes the loss from the logits in another way."""

    def loss_of(self, logits, labels):
        return self.loss_function(logits=logits, labels=labels, vocab_size=self.vocab_size)

    def forward(self, input_ids=None, labels=None, **kwargs):
        outputs = self.model(input_ids=input_ids, **kwargs)
        logits = self.lm_head(outputs.last_hidden_state)
        loss = None if labels is None else self.loss_of(logits, labels)
        return hf.modeling_outputs.CausalLMOutput(loss=loss, logits=logits)


def way(of):
    return type("Way", (Head,), {"loss_of": of})


WAYS = {
    "scaled": lambda self, z, labels: Head.loss_of(self, 3 * z / 7.0, labels),
    "capped": lambda self, z, labels: Head.loss_of(self, torch.tanh(z / 20) * 20, labels),
    "capped otherwise": lambda self, z, labels: Head.loss_of(self, (z * 0.3).tanh() * 5, labels),
    "shifted": lambda self, z, labels: nn.CrossEntropyLoss()(
        z[..., :-1, :].contiguous().view(-1, z.shape[-1]), labels[:, 1:].reshape(-1)
    ),
    "reshaped": lambda self, z, labels: nn.functional.cross_entropy(
        z.reshape(z.size(0) * z.size(1), self.vocab_size), labels.flatten(), label_smoothing=0.1
    ),
    "one row": lambda self, z, labels: nn.functional.cross_entropy(z[1, 3:], labels[1, 3:]),
    "in another dtype": lambda self, z, labels: nn.functional.cross_entropy(
        z.to(torch.float64).view(-1, z.shape[-1]), labels.view(-1)
    ),
}
COMPUTED = {
    "with a term of their own": lambda self, z, labels: (
        Head.loss_of(self, z, labels) + 0.1 * z.square().mean()
    ),
    "transposed": lambda self, z, labels: nn.functional.cross_entropy(z.transpose(1, 2), labels),
    "negative": lambda self, z, labels: Head.loss_of(self, -z, labels),
    "capped twice": lambda self, z, labels: Head.loss_of(self, z.tanh().tanh() + 1, labels),
    "halves": lambda self, z, labels: Head.loss_of(self, torch.cat((z, z))[: len(z)], labels),
}


@pytest.mark.parametrize("name", WAYS | COMPUTED)
def test_ways_from_logits_to_a_loss(name):
    """The operator is used where possible; other logits are computed, and are right."""

    def run(model):
        model.zero_grad()
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters())]

    model = make()
    ids, labels = batch()
    model.__class__ = way((WAYS | COMPUTED)[name])
    want = run(model)
    report = str(kw.patch(model))
    assert ("loss by linear_cross_entropy" in report) == (name in WAYS), report
    if name in COMPUTED:
        assert "its logits are used for more than their cross entropy" in report
    torch.testing.assert_close(run(model), want, rtol=1e-4, atol=1e-5)


def test_peft_models():
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(make(), config)
    for name, p in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(p)
    ids, labels = batch()

    def run():
        model.zero_grad()
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    want = [t.clone() for t in run()]
    report = kw.patch(model)
    assert {x.what for x in report.replaced} == {"norm", "residual", "rope", "MLP", "loss"}
    assert model(input_ids=ids, labels=labels).logits is None
    torch.testing.assert_close(run(), want, rtol=1e-4, atol=1e-5)
    kw.unpatch(model)
    assert model(input_ids=ids, labels=labels).logits.shape == (2, 17, VOCABULARY)
