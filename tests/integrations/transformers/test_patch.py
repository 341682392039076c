"""kw.patch on small random models: equal results, wherever they run."""

import pytest
import torch

import kernelwright as kw
from kernelwright.contract import Unsupported
from kernelwright.contract.compare import FACTOR, ULPS, measure
from kernelwright.integrations.transformers import norms
from support import ranks
from support.patched_models import FAMILIES, VOCABULARY, InFloat64, batch, make, patched, step

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
REPLACEMENTS = {"Llama": norms.llama_norm, "Gemma": norms.gemma_norm}
families = pytest.mark.parametrize("family", FAMILIES)
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
dtypes = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
pytestmark = pytest.mark.usefixtures("few_threads")


def over_budget(patched, unpatched, reference, dtype):
    """The results of a patched model whose error is too large, one line each.

    Args:
        patched, unpatched, reference: {name: tensor}; the reference is the unpatched model's, in
            float64. `unpatched` may be several runs that add in different orders.
        dtype: the model's. The error of a tensor, by norm, may be twice the largest of the
            unpatched model plus 2 ulp of this dtype.
    """
    eps, wrong = torch.finfo(dtype).eps, []
    unpatched, *others = unpatched if isinstance(unpatched, list) else [unpatched]
    for name, ref in reference.items():
        mine, *of_orders = (
            measure(x[name].flatten(), ref.flatten()).norm for x in (patched, unpatched, *others)
        )
        theirs = max(of_orders)
        if not mine <= FACTOR * theirs + ULPS * eps:
            wrong.append(f"{name}: error {mine:.3g}, unpatched {theirs:.3g}")
        if patched[name].dtype != unpatched[name].dtype:
            wrong.append(f"{name}: is {patched[name].dtype}, unpatched {unpatched[name].dtype}")
    return wrong


def in_two_orders(model, run):
    """Two runs of a model. The order of PyTorch's sums depends on the number of threads, and where
    terms cancel, as in the gradients of keys, so does most of the error."""
    runs, threads = [run(model)], torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        runs.append(run(model))
    finally:
        torch.set_num_threads(threads)
    return runs


def compare(family="Llama", dtype=torch.float32, run=step, **changes):
    model, wide = make(family, dtype, **changes), make(family, dtype, **changes).double()
    unpatched = in_two_orders(model, run)
    with InFloat64():
        reference = step(wide)
    kw.patch(model)
    patched = run(model)
    assert over_budget(patched, unpatched, reference, dtype) == []


# results


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
    """PyTorch's autocast runs F.rms_norm in float32 on a GPU; these modules do not call it."""
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
    if language == "triton" and torch.cuda.is_available():
        pytest.skip("Triton's interpreter needs a machine without a GPU")

    def run(model):
        with kw.use(GPU_RUNGS[language]):
            return step(model)

    compare(run=run)


@pytest.mark.parametrize("operator", [x for x in GPU_RUNGS["cuda"] if "linear" not in x])
def test_the_rung_that_is_asked_for_serves(operator):
    """No kernel supports float64, so a model that calls the operator raises an error."""
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
    with pytest.raises(ValueError, match="labels: there are 32 for 34 tokens"):
        model(input_ids=ids, labels=labels[:, 1:])


# where models run


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_graphs_hold_a_patched_model():
    """mode="reduce-overhead" also captures the operators."""
    from torch._dynamo.utils import counters

    model = make().cuda()
    ids, labels = (t.cuda() for t in batch())

    def trained(run):
        model.zero_grad()
        torch.compiler.cudagraph_mark_step_begin()
        loss = run(input_ids=ids, labels=labels, use_cache=False).loss
        loss.backward()
        return [loss.item(), *(p.grad.clone() for p in model.parameters())]

    want = trained(model)
    kw.patch(model)
    torch.compiler.reset()
    counters.clear()
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    for _ in range(4):  # runs, captures, replays
        torch.testing.assert_close(trained(compiled), want, rtol=1e-3, atol=1e-4)
    assert not counters["inductor"]["cudagraph_skips"]


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


@pytest.mark.long
def test_fsdp2_on_two_ranks():
    """Each rank has half of each parameter; loss and gradients are those of one process."""
    said = ranks.output("patched_fsdp.py")
    assert said.count("LlamaForCausalLM:") == 3  # logged only by rank 0, each time
