"""GPT-2 and Llama, compared with transformers, and their checkpoints."""

import json
import random
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import kernelwright as kw
from kernelwright import models
from kernelwright.contract.compare import FACTOR, ULPS
from kernelwright.models import gpt2, llama, tensor_file
from kernelwright.models.huggingface import gpt2_config, gpt2_document, llama_config
from kernelwright.support.errors import UsageError
from kernelwright.support.extras import need
from support import transformers_models as theirs

BOTH = pytest.mark.parametrize("make", [theirs.gpt2, theirs.llama])


def within_budget(found, model, tokens):
    """Whether the error of logits against float64 is at most twice that of transformers."""
    with torch.no_grad():
        own = model(tokens).logits
        exact = model.double()(tokens).logits
    scale = exact.abs().amax()
    error, native = (((t.double() - exact).abs().amax() / scale) for t in (found, own))
    model.float()
    return error <= FACTOR * native + ULPS * torch.finfo(torch.float32).eps


@BOTH
@pytest.mark.parametrize("nth", range(3))
def test_logits_and_loss_are_those_of_transformers(make, nth, tmp_path):
    seed = random.randrange(10**6)  # another config each time; pytest shows it on failure
    print("seed", seed)
    reference = theirs.saved(make, seed, tmp_path)
    ours = models.from_pretrained(tmp_path)
    tokens = torch.randint(theirs.VOCABULARY, (2, 23))
    with torch.no_grad():
        assert within_budget(ours(tokens), reference, tokens)
        targets = tokens.masked_fill(torch.rand(2, 23) < 0.3, -100)
        logits = reference(tokens).logits.flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, targets.flatten())
        torch.testing.assert_close(ours(tokens, targets), loss)


@BOTH
def test_a_model_is_saved_as_transformers_reads_it(make, tmp_path):
    reference = theirs.saved(make, 1, tmp_path / "a")
    ours = models.from_pretrained(tmp_path / "a")
    models.save_pretrained(ours, tmp_path / "b")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "b")
    for name, p in reference.state_dict().items():
        assert torch.equal(p, again.state_dict()[name]), name
    assert models.from_pretrained(tmp_path / "b").config == ours.config


@BOTH
def test_gradients_are_those_of_transformers(make, tmp_path):
    reference = theirs.saved(make, 2, tmp_path)
    ours = models.from_pretrained(tmp_path).eval()
    tokens = torch.randint(theirs.VOCABULARY, (2, 9))
    ours(tokens[:, :-1], tokens[:, 1:]).backward()
    reference(tokens, labels=tokens).loss.backward()
    last = reference.transformer.ln_f if make is theirs.gpt2 else reference.model.norm
    torch.testing.assert_close(ours.norm.weight.grad, last.weight.grad, rtol=1e-4, atol=1e-6)
    embedding = reference.get_input_embeddings().weight.grad
    torch.testing.assert_close(ours.tokens.grad, embedding, rtol=1e-4, atol=1e-6)


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
    config = gpt2_config({"activation_function": name, "n_layer": 1, "n_embd": 24, "n_head": 2})
    assert gpt2_document(config)["activation_function"] == name


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
    assert llama_config(dict(rope)).rope_base == base
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
    assert torch.equal(model.cos_SD, llama.angles(config, torch.device("cpu"))[0])


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"model_type": "bert"}, "model_type 'bert' is not one of gpt2, llama"),
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
