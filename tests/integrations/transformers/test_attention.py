"""attn_implementation="kernelwright", compared with transformers' own attention."""

import pytest
import torch

import kernelwright as kw

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def name():
    return kw.register_attention()


def model(family, name, **more):
    torch.manual_seed(0)
    if family == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=50, n_positions=64, n_embd=32, n_layer=2, n_head=4, attn_pdrop=0.0,
            resid_pdrop=0.0, embd_pdrop=0.0,
        )  # fmt: skip
    else:
        config = transformers.LlamaConfig(
            vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, **more,
        )  # fmt: skip
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=name)


def both(family, name):
    theirs, ours = model(family, "sdpa"), model(family, name)
    ours.load_state_dict(theirs.state_dict())
    return theirs.eval(), ours.eval()


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_logits_and_gradients_are_those_of_sdpa(name, family):
    theirs, ours = both(family, name)
    ids = torch.randint(50, (2, 9), generator=torch.Generator().manual_seed(1))
    padded = torch.ones_like(ids)
    padded[0, :3] = 0
    for mask in (None, padded):
        seen = slice(None) if mask is None else mask.bool()
        a, b = (m(ids, attention_mask=mask).logits[seen] for m in (theirs, ours))
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        for m, logits in ((theirs, a), (ours, b)):
            m.zero_grad()
            logits.square().mean().backward()
        for p, q in zip(theirs.parameters(), ours.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_it_generates_with_caches(name, cache):
    theirs, ours = both("llama", name)
    ids = torch.randint(50, (2, 5), generator=torch.Generator().manual_seed(2))
    options = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": cache}
    a, b = (m.generate(ids, attention_mask=torch.ones_like(ids), **options) for m in (theirs, ours))
    assert torch.equal(a, b)


def test_what_it_does_not_compute_is_refused(name):
    call = transformers.AttentionInterface()[name]
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(NotImplementedError, match=r"^softcap:"):
        call(torch.nn.Module(), q, q, q, None, softcap=30.0)
