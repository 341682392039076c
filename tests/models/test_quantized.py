"""Quantized checkpoints, compared with models of the numbers that their formats define.

Each format has a writer here, which draws the stored integers or 8-bit numbers, packs them bit by
bit, and computes the weight from the same numbers.
"""

import json
import random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from kernelwright import models
from kernelwright.models import llama, pretrained
from kernelwright.support.errors import UsageError

GROUP, FP8 = 128, torch.float8_e4m3fn
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def words(values, bits, order=None):
    """(rows, n) numbers as (rows, n * bits / 32) words, the first in the lowest bits."""
    per = 32 // bits
    eight = values.reshape(values.shape[0], -1, per).astype(np.uint64)
    total = sum(eight[..., c] << np.uint64(bits * i) for i, c in enumerate(order or range(per)))
    return torch.from_numpy(total.astype(np.uint32).view(np.int32).copy())


def grouped(n, k, bits, symmetric):
    """Stored values (n, k), zero points and scales (n, k / 128), and the weight."""
    draw = np.random.default_rng(random.randrange(10**9))
    v = draw.integers(0, 2**bits, (n, k))
    zero = draw.integers(1, 2**bits, (n, k // GROUP))
    zero = np.full_like(zero, 2 ** (bits - 1)) if symmetric else zero
    scale = torch.from_numpy(draw.uniform(0.5, 1.5, zero.shape) * 0.3 / 2**bits).half()
    each = (np.repeat(t, GROUP, 1) for t in (zero, scale.double().numpy()))
    z, s = each
    return v, zero, scale, torch.from_numpy((v - z) * s)


def awq(n, k):
    v, zero, scale, weight = grouped(n, k, 4, symmetric=False)
    return {
        "qweight": words(v.T, 4, AWQ_ORDER),
        "qzeros": words(zero.T, 4, AWQ_ORDER),
        "scales": scale.T.contiguous(),
    }, weight


def gptq(n, k, bits=4, less=1):
    v, zero, scale, weight = grouped(n, k, bits, symmetric=False)
    return {
        "qweight": words(v, bits).T.contiguous(),
        "qzeros": words((zero - less).T, bits),
        "scales": scale.T.contiguous(),
        "g_idx": torch.arange(k, dtype=torch.int32) // GROUP,
    }, weight


def packed(n, k, bits=4, symmetric=True, channel=False):
    v, zero, scale, weight = grouped(n, k, bits, symmetric)
    if channel:
        scale = scale[:, :1].contiguous()
        weight = torch.from_numpy((v - zero[:, :1]) * scale.double().numpy())
        zero = zero[:, :1]
    tensors = {
        "weight_packed": words(v, bits),
        "weight_scale": scale,
        "weight_shape": torch.tensor([n, k]),
    }
    if not symmetric:
        tensors["weight_zero_point"] = words(zero.T, bits).T.contiguous()
    return tensors, weight


def floats(n, k, scale, name):
    """A weight of 8-bit numbers with a scale (1, 1), (n, 1), or of each 128 x 128 block."""
    values = torch.randn(n, k).mul(40).to(FP8)
    high, wide = -(-n // scale.shape[0]), -(-k // scale.shape[1])
    high, wide = (high, wide) if scale.shape[1] == 1 else (GROUP, GROUP)
    each = scale.double().repeat_interleave(high, 0)[:n].repeat_interleave(wide, 1)[:, :k]
    return {"weight": values, name: scale}, values.double() * each


def scales(*shape):
    return torch.rand(*shape).add(0.5).mul(0.004)


def per_tensor(n, k):
    tensors, weight = floats(n, k, scales(1, 1), "weight_scale")
    return {**tensors, "weight_scale": tensors["weight_scale"].view(1)}, weight


def per_channel(n, k):
    return floats(n, k, scales(n, 1).bfloat16(), "weight_scale")


def blocks(n, k, name="weight_scale_inv"):
    return floats(n, k, scales(-(-n // GROUP), -(-k // GROUP)), name)


def compressed(form, weights, inputs=None):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


INTEGERS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "actorder": None}
FLOATS = {"num_bits": 8, "type": "float", "strategy": "channel", "dynamic": False}
TOKENS = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
FORMATS = {
    "awq": (AWQ, awq),
    "gptq": (GPTQ, gptq),
    "gptq_v2": ({**GPTQ, "checkpoint_format": "gptq_v2"}, lambda n, k: gptq(n, k, less=0)),
    "gptq of 8 bits": ({**GPTQ, "bits": 8}, lambda n, k: gptq(n, k, bits=8)),
    "int4": (compressed("pack-quantized", INTEGERS), packed),
    "int8": (
        compressed("pack-quantized", {**INTEGERS, "num_bits": 8, "actorder": "weight"}),
        lambda n, k: packed(n, k, bits=8),
    ),
    "int4 with zero points": (
        compressed("pack-quantized", {**INTEGERS, "symmetric": False}),
        lambda n, k: packed(n, k, symmetric=False),
    ),
    "int4 per channel": (
        compressed("pack-quantized", {**INTEGERS, "strategy": "channel", "group_size": None}),
        lambda n, k: packed(n, k, symmetric=False, channel=True),
    ),
    "fp8 per tensor": (
        compressed("float-quantized", {**FLOATS, "strategy": "tensor"}, TOKENS), per_tensor,
    ),
    "fp8 per channel": (compressed("float-quantized", FLOATS, TOKENS), per_channel),
    "fp8 in blocks of compressed-tensors": (
        compressed(
            "float-quantized",
            {**FLOATS, "strategy": "block", "block_structure": [128, 128]},
            {**TOKENS, "strategy": "group", "group_size": 128},
        ),
        lambda n, k: blocks(n, k, "weight_scale"),
    ),
    "fp8 in blocks": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, blocks),
}  # fmt: skip
IS_FLOAT = {name: name.startswith("fp8") for name in FORMATS}
CONFIG = llama.Config(
    layers=1, heads=4, kv_heads=2, width=128, mlp_width=256, context=32, vocabulary=60,
    head_size=64, qkv_bias=True, family="qwen2", tied=False,
)  # fmt: skip


def saved(folder, name, config=CONFIG):
    """Write a quantized checkpoint, and the same with plain weights to folder / "plain"."""
    torch.manual_seed(random.randrange(10**9))
    given, write = FORMATS[name]
    models.save_pretrained(models.build(config), folder / "plain")
    plain = load_file(folder / "plain" / "model.safetensors")
    stored = {}
    for key, t in plain.items():
        t.normal_(0.0, 0.3) if t.ndim == 2 else t.uniform_(0.5, 1.5)
        if key.endswith("_proj.weight"):
            tensors, weight = write(*t.shape)
            stored |= {f"{key.removesuffix('.weight')}.{n}": x for n, x in tensors.items()}
            plain[key] = weight.float()
        else:
            stored[key] = t
    save_file(plain, folder / "plain" / "model.safetensors")
    save_file(stored, folder / "model.safetensors")
    document = json.loads((folder / "plain" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**document, "quantization_config": given}))


@pytest.mark.parametrize("name", FORMATS)
def test_weights_and_logits_are_what_the_format_defines(name, tmp_path):
    saved(tmp_path, name)
    ours = models.from_pretrained(tmp_path, dtype=torch.float32)
    plain = models.from_pretrained(tmp_path / "plain")
    assert ours.config == plain.config
    # columns of the identity are the weight, up to bfloat16 where that is the products' dtype
    tolerance = {"rtol": 2**-8, "atol": 0.0} if IS_FLOAT[name] else {"rtol": 1e-6, "atol": 1e-7}
    stacks = {"qkv": 512, "attention_out": 128, "gate_up": 512, "mlp_out": 128}
    with torch.no_grad():
        for layer, rows in stacks.items():
            found, wanted = (getattr(m.blocks[0], layer) for m in (ours, plain))
            weight = wanted.weight
            assert not isinstance(found, torch.nn.Linear)
            assert found.shape == weight.shape and len(weight) == rows
            bias = 0.0 if wanted.bias is None else wanted.bias
            product = found(torch.eye(weight.shape[1]))
            torch.testing.assert_close(
                product - bias, weight.t() + 0.0, **loosened(tolerance, bias)
            )
        tokens = torch.randint(60, (2, 9))
        wanted, found = plain(tokens), ours(tokens)
        if IS_FLOAT[name]:  # tokens are rounded to 8 bits too
            assert (found - wanted).norm() < 0.2 * wanted.norm()
        else:
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def loosened(tolerance, bias):
    return tolerance if isinstance(bias, float) else {**tolerance, "atol": 1e-6}


def rounded(x, width):
    """x in 8-bit numbers with a scale for each row and `width` elements, as numbers again."""
    m, k = x.shape
    padded = torch.nn.functional.pad(x, (0, -k % width)).view(m, -1, width)
    scale = (padded.abs().amax(-1, keepdim=True) / 448).float().double()
    return ((padded / scale).float().to(FP8).double() * scale).view(m, -1)[:, :k]


@pytest.mark.parametrize("name", [n for n in FORMATS if IS_FLOAT[n]])
def test_inputs_of_8_bit_layers_have_8_bits(name, tmp_path):
    saved(tmp_path, name)
    ours = models.from_pretrained(tmp_path, dtype=torch.float32)
    layer, x = ours.blocks[0].mlp_out, torch.randn(3, 5, 256)
    plain = models.from_pretrained(tmp_path / "plain").blocks[0].mlp_out.weight.double()
    width = 128 if "blocks" in name else 256
    with torch.no_grad():
        wanted = rounded(x.double().flatten(0, 1), width) @ plain.t()
        found = layer(x).flatten(0, 1).double()
    assert found.shape == (15, 128)
    assert (found - wanted).abs().amax() < 2**-8 * wanted.abs().amax()
    with pytest.raises(RuntimeError, match="has no gradient"):
        layer(x.requires_grad_(True))


@pytest.mark.parametrize("name", ["gptq", "fp8 per channel"])
def test_a_dtype_changes_no_stored_number(name, tmp_path):
    saved(tmp_path, name)
    once = models.from_pretrained(tmp_path, dtype=torch.bfloat16).blocks[0].mlp_out
    model = models.from_pretrained(tmp_path, dtype=torch.float32).to(torch.bfloat16)
    for key, t in once.state_dict().items():
        assert torch.equal(t, model.blocks[0].mlp_out.state_dict()[key])
    with torch.no_grad():
        assert model(torch.tensor([[1, 2]])).dtype == torch.bfloat16


def test_a_layer_that_is_not_quantized_stays_as_it_is(tmp_path):
    saved(tmp_path, "awq")
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.mlp.down_proj"
    for part in ("qweight", "qzeros", "scales"):
        del tensors[f"{name}.{part}"]
    tensors[f"{name}.weight"] = torch.ones(128, 256)
    save_file(tensors, tmp_path / "model.safetensors")
    assert models.from_pretrained(tmp_path).blocks[0].mlp_out.weight.eq(1).all()


def test_a_quantized_model_is_not_saved(tmp_path):
    saved(tmp_path, "awq")
    with pytest.raises(UsageError, match="a quantized model cannot be saved"):
        models.save_pretrained(models.from_pretrained(tmp_path), tmp_path / "again")


def group(form, of, inputs=None, **changes):
    return compressed(form, {**of, **changes}, inputs)


@pytest.mark.parametrize(
    "given, says",
    [
        ({"quant_method": "bitsandbytes"}, "quant_method must be 'awq' or 'gptq' or"),
        ({**AWQ, "version": "gemv"}, "version must be 'gemm', is 'gemv'"),
        ({**AWQ, "group_size": 64}, "group_size must be 128, is 64"),
        ({**AWQ, "zero_point": False}, "zero_point must be True"),
        ({**GPTQ, "bits": 3}, "bits must be 4 or 8, is 3"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "checkpoint_format must be"),
        ({**GPTQ, "dynamic": {"-:lm": {}}}, "dynamic must be None"),
        (group("pack-quantized", INTEGERS, actorder="group"), "weights.actorder must be"),
        (group("pack-quantized", INTEGERS, group_size=32), "weights.group_size must be 128"),
        (group("pack-quantized", INTEGERS, TOKENS), "input_activations must be None"),
        (
            {**compressed("pack-quantized", INTEGERS), "config_groups": {}},
            "0 kinds of config_groups",
        ),
        (compressed("pack-quantized", None), "weights.num_bits must be 4 or 8, is None"),
        (group("int-quantized", INTEGERS), "format must be 'pack-quantized' or"),
        (group("float-quantized", FLOATS), "input_activations.type must be 'float', is None"),
        (
            group("float-quantized", FLOATS, {**TOKENS, "dynamic": False, "strategy": "tensor"}),
            "input_activations.dynamic must be True, is False",
        ),
        (group("float-quantized", FLOATS, TOKENS) | {"kv_cache_scheme": {}, "ignore": []}, None),
        (
            group("float-quantized", FLOATS, TOKENS) | {"kv_cache_scheme": {"num_bits": 8}},
            "kv_cache_scheme must be None",
        ),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "weight_block_size must be"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "activation_scheme must be"),
        ({"quant_method": "fp8", "scale_fmt": "ue8m0"}, "scale_fmt must be 'float'"),
    ],
)
def test_what_the_operators_cannot_multiply_is_named(given, says):
    if says is None:
        assert pretrained.quantization.scheme({"quantization_config": given}) is not None
        return
    with pytest.raises(UsageError, match=says):
        pretrained.quantization.scheme({"quantization_config": given})


def changed_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


Q = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    "name, change, says",
    [
        ("gptq", lambda t: t[f"{Q}.g_idx"].random_(0, 1), None),
        ("gptq", lambda t: t[f"{Q}.g_idx"].add_(1), "q_proj and .*g_idx: groups are not 128"),
        ("awq", lambda t: t.pop(f"{Q}.scales"), "it has no tensor scales"),
        ("awq", lambda t: t.pop(f"{Q}.qweight"), "only some of them are quantized"),
        (
            "int4",
            lambda t: t.update({f"{Q}.weight_g_idx": torch.zeros(128, dtype=torch.int32)}),
            "weight_g_idx: groups are not consecutive",
        ),
        (
            "fp8 per channel",
            lambda t: t.update({f"{Q}.weight_scale": torch.ones(3, 1)}),
            r"have shape \(3, 1\), should be \(256, 1\)",
        ),
        (
            "int4",
            lambda t: t.update({f"{Q}.weight_packed": t[f"{Q}.weight_packed"][:128]}),
            r"weight_packed: has shape \(128, 16\), should be \(256, 16\)",
        ),
        (
            "fp8 per channel",
            lambda t: t.update({f"{Q}.weight": t[f"{Q}.weight"][:, :64].contiguous()}),
            "different numbers of inputs",
        ),
        (
            "fp8 in blocks",
            lambda t: t.update({f"{Q}.weight": t[f"{Q}.weight"].float()}),
            "must be a matrix of float8_e4m3fn, is of torch.float32",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(name, change, says, tmp_path):
    saved(tmp_path, name)
    changed_tensors(tmp_path, change)
    if says is None:
        models.from_pretrained(tmp_path)
        return
    with pytest.raises(UsageError, match=says):
        models.from_pretrained(tmp_path)


def test_blocks_that_do_not_fit_a_stack_are_named(tmp_path):
    config = llama.Config(
        layers=1, heads=4, kv_heads=2, width=128, mlp_width=256, context=32, vocabulary=60
    )
    saved(tmp_path, "fp8 in blocks", config)
    with pytest.raises(UsageError, match=r"blocks of 128 rows .* 128, 64, 64"):
        models.from_pretrained(tmp_path)
