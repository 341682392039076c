"""The models, compared with transformers, and their checkpoints."""

import json
import random
import shutil

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

import kernelwright as kw
from kernelwright import models
from kernelwright.contract.compare import FACTOR, ULPS
from kernelwright.models import gpt2, llama, pretrained, tensor_file
from kernelwright.models.attention import causal_attention
from kernelwright.models.cache import Cache
from kernelwright.models.huggingface import gpt2 as stored_gpt2
from kernelwright.models.huggingface import llama as stored_llama
from kernelwright.support.errors import UsageError
from kernelwright.support.extras import need
from support import transformers_models as theirs

FAMILIES = pytest.mark.parametrize("make", theirs.FAMILIES)


def within_budget(found, native, exact, scale=None):
    """Whether an error against float64 is at most twice that of transformers."""
    scale = exact.abs().amax() if scale is None else scale
    error, own = (((t.double() - exact).abs().amax() / scale) for t in (found, native))
    return error <= FACTOR * own + ULPS * torch.finfo(torch.float32).eps


def drawn():
    """A seed, another one each time; pytest shows it on failure."""
    seed = random.randrange(10**6)
    print("seed", seed)
    return seed


@FAMILIES
@pytest.mark.parametrize("nth", range(3))
def test_logits_and_loss_are_those_of_transformers(make, nth, tmp_path):
    reference = theirs.saved(make, drawn(), tmp_path)
    ours = models.from_pretrained(tmp_path)
    tokens = torch.randint(theirs.VOCABULARY, (2, 23))
    targets = tokens.masked_fill(torch.rand(2, 23) < 0.3, -100)
    with torch.no_grad():
        exact, native = theirs.Exact(reference)(tokens).logits, reference(tokens).logits
        assert within_budget(ours(tokens), native, exact)
        loss, own, found = (
            torch.nn.functional.cross_entropy(t.flatten(0, 1), targets.flatten())
            for t in (exact, native, ours(tokens))
        )
        assert within_budget(ours(tokens, targets), own, loss)
        assert within_budget(found, own, loss)


@FAMILIES
def test_a_model_is_saved_as_transformers_reads_it(make, tmp_path):
    reference = theirs.saved(make, drawn(), tmp_path / "a")
    ours = models.from_pretrained(tmp_path / "a")
    models.save_pretrained(ours, tmp_path / "b")
    again = AutoModelForCausalLM.from_pretrained(
        tmp_path / "b", attn_implementation=reference.config._attn_implementation
    )
    assert type(again) is type(reference)
    for name, p in reference.state_dict().items():
        assert torch.equal(p, again.state_dict()[name]), name
    assert models.from_pretrained(tmp_path / "b").config == ours.config
    tokens = torch.randint(theirs.VOCABULARY, (2, 23))
    with torch.no_grad():
        assert torch.equal(again.eval()(tokens).logits, reference(tokens).logits)


@FAMILIES
def test_gradients_are_those_of_transformers(make, tmp_path):
    reference = theirs.saved(make, drawn(), tmp_path)
    exact = theirs.Exact(reference)
    ours = models.from_pretrained(tmp_path).eval()
    tokens = torch.randint(theirs.VOCABULARY, (2, 17))
    ours(tokens[:, :-1], tokens[:, 1:]).backward()
    reference(tokens, labels=tokens).loss.backward()
    logits = exact(tokens).logits[:, :-1]
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    found = pretrained.theirs(ours.config, {n: p.grad for n, p in ours.named_parameters()})
    wanted = dict(exact.model.named_parameters())
    # of all: a bias of keys has almost no gradient, but is a sum of numbers that have one
    scale = max(p.grad.abs().amax() for p in wanted.values())
    for name, p in reference.named_parameters():
        assert within_budget(found[name], p.grad, wanted[name].grad, scale), name


@FAMILIES
@pytest.mark.parametrize("rung", [None, "native"])
def test_a_cache_changes_nothing(make, rung, tmp_path):
    theirs.saved(make, drawn(), tmp_path)
    model = models.from_pretrained(tmp_path).double()
    config, lengths = model.config, torch.tensor([random.randint(1, 12) for _ in range(3)])
    rows = torch.randint(theirs.VOCABULARY, (3, int(lengths.max()) + 10))
    sizes = config.layers, 3, config.kv_heads, 32, config.head_width
    cache = Cache(*sizes, torch.device("cpu"), torch.float64)
    one_kernel = {"attention_with_kv_cache": rung} if rung else {}  # as on a GPU
    with torch.no_grad(), kw.use(**one_kernel):
        plain, each = model.hidden(rows), torch.arange(3)
        first = model.hidden(rows[:, : lengths.max()], cache)
        torch.testing.assert_close(first[each, lengths - 1], plain[each, lengths - 1])
        cache.length_B.copy_(lengths)
        for step in range(10):
            cache.visible = random.randint(int(lengths.max()) + step + 1, 32)
            next_tokens = rows[each, cache.length_B, None]
            found = model.hidden(next_tokens, cache)
            torch.testing.assert_close(found[:, 0], plain[each, cache.length_B])
            cache.length_B += 1


@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("softcap", [0.0, 0.5])
@pytest.mark.parametrize("rung", [{}, {"attention_with_kv_cache": "native"}])
def test_a_step_keeps_to_the_window_and_the_softcap(window, softcap, rung):
    q, k, v = (torch.randn(2, heads, 7, 8, dtype=torch.float64) for heads in (4, 2, 2))
    cache = Cache(1, 2, 2, 9, 8, torch.device("cpu"), torch.float64)
    cache.positions(6)
    cache.attend(0, *(t[:, :, :6] for t in (q, k, v)), 0.4, window, softcap)
    cache.length_B.fill_(6)
    assert cache.positions(1).tolist() == [[6], [6]]
    with kw.use(**rung):
        found = cache.attend(0, *(t[:, :, 6:] for t in (q, k, v)), 0.4, window, softcap)
    wanted = causal_attention(q, k, v, 0.4, 0.0, window, softcap)
    torch.testing.assert_close(found, wanted[:, :, 6:])


def test_a_cache_refuses_more_tokens_than_it_has_positions():
    cache = Cache(1, 2, 1, 8, 4, torch.device("cpu"), torch.float32)
    with pytest.raises(ValueError, match="tokens: 9 in a row, the cache has 8"):
        cache.positions(9)


def test_a_row_of_padding_has_no_gradient_where_transformers_gives_none(tmp_path):
    reference = theirs.saved(theirs.llama, 3, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["pad_token_id"] = 2
    (tmp_path / "config.json").write_text(json.dumps(config))
    reference = AutoModelForCausalLM.from_pretrained(tmp_path)
    ours = models.from_pretrained(tmp_path)
    tokens = torch.tensor([[2, 2, 5, 7, 2, 9]])
    for rung in (None, "native"):  # PyTorch's function, and the operator
        with kw.use(**({"embedding": rung} if rung else {})):
            ours.zero_grad()
            ours(tokens).square().sum().backward()
        reference.zero_grad()
        reference(tokens).logits.square().sum().backward()
        embedding = reference.get_input_embeddings().weight.grad
        torch.testing.assert_close(ours.tokens.grad, embedding, rtol=1e-4, atol=1e-5)
    models.save_pretrained(ours, tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["pad_token_id"] == 2


@pytest.mark.parametrize("name", ["gelu_new", "gelu_pytorch_tanh", "gelu"])
def test_an_activation_keeps_its_name(name, tmp_path):
    config = stored_gpt2.config(
        {"activation_function": name, "n_layer": 1, "n_embd": 24, "n_head": 2}
    )
    assert stored_gpt2.document(config)["activation_function"] == name


@pytest.mark.parametrize(
    ("rope", "base"),
    [
        ({"rope_parameters": {"rope_type": "default"}, "rope_theta": 5e5}, 5e5),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "rope_theta": 5e5}, 1e6),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 5e5}, 5e5),
        ({"rope_parameters": {"rope_type": "default"}}, 1e4),
        ({}, 1e4),
    ],
)
def test_the_base_of_rotary_positions_is_transformers(rope, base):
    assert stored_llama.config({"model_type": "llama", **rope}).rope_base == base
    found = LlamaConfig.from_dict(
        {k: dict(v) if isinstance(v, dict) else v for k, v in rope.items()}
    )
    assert found.rope_parameters["rope_theta"] == base


def test_a_rung_that_is_named_is_run_on_a_cpu_too():
    from kernelwright.ops.introspect import Serving

    model, tokens = models.build("gpt2-tiny").eval(), torch.randint(256, (1, 8))
    with torch.no_grad():
        plain = model(tokens)
        with Serving() as serving, kw.use(add_layer_norm="manual"):
            named = model(tokens)
    assert serving.calls == {"add_layer_norm": {"manual": 9}}
    torch.testing.assert_close(named, plain)


def test_angles_stay_float32_whatever_the_dtype():
    config = models.preset("llama-tiny")
    model = llama.Model(config).bfloat16()
    assert model.cos_SD.dtype == torch.float32
    assert torch.equal(model.cos_SD, models.build(config).cos_SD)


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"model_type": "bert"}, "model_type 'bert' is not one of gpt2, llama, mistral, qwen2"),
        ({"activation_function": "relu"}, "activation_function 'relu'"),
        ({"add_cross_attention": True}, "add_cross_attention must be False"),
        ({"n_embd": 30, "n_head": 4}, "width: must be a multiple of heads"),
        ({"n_positions": 7}, "wpe.weight give shape"),
    ],
)
def test_a_folder_that_is_not_ours_to_read_says_why(changes, says, tmp_path):
    models.save_pretrained(models.build(gpt2.Config(1, 2, 8, 16, 20)), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(UsageError, match=says):
        models.from_pretrained(tmp_path)


@pytest.mark.parametrize("family", stored_llama.FAMILIES)
def test_what_a_config_leaves_out_is_what_transformers_assumes(family):
    given = {"model_type": family, "num_hidden_layers": 4, "max_position_embeddings": 8}
    found = stored_llama.config(given)
    with torch.device("meta"):
        reference = AutoModelForCausalLM.from_config(AutoConfig.for_model(**given))
        shapes = {n: p.shape for n, p in models.build(found).named_parameters()}
    rest = dict(reference.state_dict())
    for weight in stored_llama.weights(found):
        parts = [rest.pop(name) for name in weight.theirs]
        assert shapes[weight.ours] == torch.cat(parts).shape
    assert set(rest) <= {"lm_head.weight"}
    d = reference.config
    assert (found.eps, found.padding, found.tied) == (
        d.rms_norm_eps, d.pad_token_id, d.tie_word_embeddings,
    )  # fmt: skip
    if family == "gemma2":
        assert found.query_scalar == d.query_pre_attn_scalar
        caps = found.softcap, found.logit_softcap
        assert caps == (d.attn_logit_softcapping, d.final_logit_softcapping)
    window = d.sliding_window if family in ("mistral", "gemma2") else 0
    assert found.window(0) == (window or 0)
    assert found.window(1) == (window if family == "mistral" else 0)


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_the_first_layers_of_qwen_have_no_window(family):
    given = {"model_type": family, "num_hidden_layers": 4, "sliding_window": 5}
    given |= {"max_window_layers": 2}
    assert stored_llama.config(given).windows == ()
    assert stored_llama.config({**given, "use_sliding_window": True}).windows == (0, 0, 5, 5)


@pytest.mark.parametrize(
    "d, says",
    [
        ({"model_type": "llama", "hidden_act": "gelu"}, "hidden_act must be 'silu'"),
        ({"model_type": "gemma2", "hidden_activation": "gelu"}, "hidden_activation must be"),
        ({"model_type": "gemma2", "use_bidirectional_attention": True}, "use_bidirectional"),
        ({"model_type": "mistral", "layer_types": ["full_attention"] * 32}, "layer_types must be"),
        ({"model_type": "qwen3", "layer_types": ["linear"] * 32}, "layer_types has linear"),
        ({"model_type": "qwen2", "layer_types": ["full_attention"]}, "1 entries for 32 layers"),
        ({"model_type": "qwen2", "layer_types": ["sliding_attention"] * 32}, "without sliding_"),
        ({"model_type": "qwen2", "rope_scaling": {"type": "yarn"}}, "rope_type 'yarn'"),
        ({"model_type": "qwen3", "partial_rotary_factor": 0.5}, "partial_rotary_factor must be"),
        ({"model_type": "llama", "rope_parameters": {"full_attention": {}}}, "all layers"),
    ],
)
def test_a_feature_that_our_models_lack_is_named(d, says):
    with pytest.raises(UsageError, match=says):
        stored_llama.config(d)


@pytest.mark.parametrize(
    "changes, lost",
    [
        ({"qk_norm": True}, "llama cannot hold the model's qk_norm"),
        ({"family": "mistral", "mlp_bias": True}, "mistral cannot hold the model's mlp_bias"),
        ({"family": "mistral", "windows": (3, 0)}, "windows"),
        ({"family": "gemma2"}, "activation, norm_offset, post_norms, scaled_embedding"),
        ({"family": "phi"}, "family: 'phi' is not one of llama, mistral"),
    ],
)
def test_a_family_that_cannot_hold_a_model_says_what(changes, lost):
    config = llama.Config(layers=2, heads=2, kv_heads=1, width=8, mlp_width=8, **changes)
    with pytest.raises(UsageError, match=lost):
        pretrained.document(config)


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"windows": (3,)}, "windows: must be 2 numbers"),
        ({"windows": (3, -1)}, "windows: must be 2 numbers, none negative"),
        ({"softcap": -1.0}, "softcap: must not be negative"),
        ({"dropout": 0.1, "windows": (0, 2)}, "dropout: must be 0 with"),
        ({"activation": "relu"}, "activation: 'relu' is not one of silu, gelu_tanh"),
    ],
)
def test_a_config_that_does_not_fit_together_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        llama.Config(layers=2, **changes)


def test_all_tokens_that_end_a_text_are_read(tmp_path):
    config, generation = tmp_path / "config.json", tmp_path / "generation_config.json"
    config.write_text('{"eos_token_id": null}')
    assert pretrained.end_tokens(tmp_path) == frozenset()
    config.write_text('{"eos_token_id": 7}')
    assert pretrained.end_tokens(tmp_path) == {7}
    generation.write_text('{"eos_token_id": [3, 0]}')
    assert pretrained.end_tokens(tmp_path) == {0, 3, 7}
    generation.write_text("{}")
    assert pretrained.end_tokens(tmp_path) == {7}


def test_new_weights_of_norms_scale_by_one():
    changes = {"norm_offset": 1.0, "post_norms": True, "qk_norm": True}
    model = models.build(models.preset("llama-tiny", **changes))
    norms = [p for n, p in model.named_parameters() if "norm" in n]
    assert len(norms) == 4 * 6 + 1
    assert not any(p.any() for p in norms)


def test_missing_and_damaged_files_are_named(tmp_path):
    models.save_pretrained(models.build(gpt2.Config(1, 2, 8, 16, 20)), tmp_path / "a")
    with pytest.raises(UsageError, match="is not a checkpoint"):
        models.from_pretrained(tmp_path)
    for name, contents in (("config.json", b"{"), ("model.safetensors", b"\0" * 40)):
        shutil.copytree(tmp_path / "a", tmp_path / name)
        (tmp_path / name / name).write_bytes(contents)
        with pytest.raises(UsageError, match=f"{name}.* is damaged"):
            models.from_pretrained(tmp_path / name)
    tensors = tensor_file.read(tmp_path / "a" / "model.safetensors")
    del tensors["transformer.ln_f.bias"]
    tensor_file.write(tmp_path / "a" / "model.safetensors", tensors)
    with pytest.raises(UsageError, match=r"no tensor transformer\.ln_f\.bias"):
        models.from_pretrained(tmp_path / "a")


def test_names_of_presets_and_sizes_are_checked():
    with pytest.raises(ValueError, match="'gpt3' is not one of gpt2-tiny"):
        models.build("gpt3")
    with pytest.raises(ValueError, match="no size depth"):
        models.preset("llama-tiny", depth=3)
    with pytest.raises(ValueError, match="context"):
        models.build("gpt2-tiny")(torch.zeros(1, 65, dtype=torch.long))


def test_presets_have_the_parameters_that_their_names_say():
    for name in models.PRESETS:
        size = name.partition("-")[2]
        if size[0].isdigit():
            with torch.device("meta"):
                count = sum(p.numel() for p in models.build(name).parameters())
            wanted = float(size[:-1]) * {"m": 1e6, "b": 1e9}[size[-1]]
            assert abs(count / wanted - 1) < 0.08, (name, count)


def test_a_missing_package_says_how_to_install_it():
    with pytest.raises(UsageError, match=r"needs the package nowhere: .*kernelwright\[train\]"):
        need("nowhere", "train", "this")
