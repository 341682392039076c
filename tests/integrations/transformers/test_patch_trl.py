"""TRL's trainers on a patched model: their head uses our operators."""

import pytest
import torch
from torch.nn import functional as F

import kernelwright as kw
from kernelwright.integrations.transformers import trl
from support.patched_models import VOCABULARY, batch, make

pytestmark = pytest.mark.usefixtures("few_threads")


def reference(hidden, weight, bias, targets, temperature, cap, scale):
    z = F.linear(hidden, weight, bias) * scale
    z = z if cap is None else cap * torch.tanh(z / cap)
    logp = torch.log_softmax(z / temperature, -1)
    return logp.gather(-1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


@pytest.mark.parametrize("cap", [None, 3.0])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("used", ["scores", "entropy", "scores and entropy"])
def test_scores_and_their_gradients(used, bias, cap, monkeypatch):
    """Computed for some tokens at a time; each token's score may have a different gradient."""
    draw = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    monkeypatch.setattr(trl, "WORKSPACE", 5 * VOCABULARY * 8)
    hidden, weight = random(17, 8).requires_grad_(), random(VOCABULARY, 8).requires_grad_()
    bias = random(VOCABULARY).requires_grad_() if bias else None
    targets = torch.randint(VOCABULARY, (17,), generator=draw)
    given = [t for t in (hidden, weight, bias) if t is not None]
    scores, entropy, _, _, top = trl._Scores(None).apply(
        hidden, weight, bias, targets, 0.7, 64, cap, 1.3, ("log_probs", "entropy", "is_top1")
    )
    want = reference(hidden, weight, bias, targets, 0.7, cap, 1.3)
    torch.testing.assert_close((scores, entropy), want)
    best = F.linear(hidden, weight, bias).argmax(-1)
    assert torch.equal(top, best == targets) and not top.requires_grad
    factors = random(2, 17)

    def total(scores, entropy):
        terms = {"scores": scores * factors[0], "entropy": entropy * factors[1]}
        return sum(terms[name].sum() for name in used.split(" and "))

    found = torch.autograd.grad(total(scores, entropy), given)
    torch.testing.assert_close(found, torch.autograd.grad(total(*want), given))


def test_scores_alone_and_of_no_token():
    hidden, weight = torch.randn(5, 8), torch.randn(VOCABULARY, 8, requires_grad=True)
    targets = torch.arange(5)
    for rows in (5, 0):
        found = trl._Scores(None).apply(
            hidden[:rows], weight, None, targets[:rows], 1.0, 64, outputs=("log_probs",)
        )
        assert found[1:] == (None,) * 4
        want, _ = reference(hidden[:rows], weight, None, targets[:rows], 1.0, None, 1.0)
        torch.testing.assert_close(found[0], want)
        found[0].sum().backward()


def test_what_is_not_ours_is_theirs():
    class Theirs:
        apply = staticmethod(lambda *args: args)

    given = (torch.zeros(1, 2), torch.zeros(3, 2), None, torch.zeros(1), 1.0, 64, None, 1.0)
    assert trl._Scores(Theirs).apply(*given, ("mean_logits",)) == (*given, ("mean_logits",))


@pytest.mark.parametrize("first", ["trainer", "patch"])
def test_sft_trainer_reports_the_same(first, tmp_path, monkeypatch):
    pytest.importorskip("trl", reason="trl is not installed")
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t3"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t0", eos_token="t2")
    data = datasets.Dataset.from_dict({"input_ids": [x.tolist() for x in batch()[0]] * 4})
    served = []
    real = trl._TokenScores.apply
    monkeypatch.setattr(trl._TokenScores, "apply", lambda *a: served.append(1) or real(*a))

    def reports(patches):
        model = make()
        if patches and first == "patch":
            kw.patch(model)
        arguments = SFTConfig(
            output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=2, logging_steps=1,
            report_to=[], use_cpu=True, save_strategy="no", learning_rate=1e-3, disable_tqdm=True,
            bf16=False,
        )  # fmt: skip
        trainer = SFTTrainer(model, arguments, train_dataset=data, processing_class=tokenizer)
        theirs = trainer.model.forward.__func__
        if patches:
            assert "in TRL's head" in str(kw.patch(trainer.model))
        trainer.train()
        kw.unpatch(trainer.model)
        assert trainer.model.forward.__func__ is theirs
        names = ("loss", "grad_norm", "entropy", "mean_token_accuracy")
        return [x[n] for x in trainer.state.log_history for n in names if n in x]

    want = reports(False)
    assert len(want) == 12 and not served
    assert reports(True) == pytest.approx(want, rel=1e-4)
    assert len(served) == 3
