"""Tests of gated linear units and bias_gelu: halves of one tensor without a copy, a bias's
gradient in a fixed order, and the calls that their public functions reject."""

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200, TensorSpec
from kernelwright.contract.layout import normalise
from kernelwright.dispatch import ladder, launcher, plan_of, specs_of, unsupported
from kernelwright.ops.elementwise.glu import heuristics
from kernelwright.ops.elementwise.glu.tiling import rows_of
from kernelwright.workbench.bench import fusion
from support.publics import DEVICE, randn, with_gradients
from tools import readme_tables

BF16 = torch.bfloat16
FUNCTIONS = {
    "swiglu": (kw.swiglu, lambda g, u: F.silu(g) * u),
    "geglu": (kw.geglu, lambda g, u: F.gelu(g) * u),
    "geglu tanh": (
        lambda g, u: kw.geglu(g, u, approximate="tanh"),
        lambda g, u: F.gelu(g, approximate="tanh") * u,
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_halves_of_one_tensor_and_their_gradients(name):
    ours, theirs = FUNCTIONS[name]
    gate_up = [randn(3, 5, 64)]
    got, want = (with_gradients(lambda t, f=f: f(*t.chunk(2, -1)), gate_up) for f in (ours, theirs))
    torch.testing.assert_close(got, want)
    assert got[0].is_contiguous()


def test_halves_of_one_tensor_are_no_copy_in_any_kernel():
    gate, up = randn(8, 6, 64, dtype=BF16, device="cpu").chunk(2, -1)
    specs = {"gate": TensorSpec.of(gate), "up": TensorSpec.of(up)}
    assert normalise("rows", specs) == (specs, ())
    assert rows_of(specs.values()) == (48, 32, (64, 64))
    assert "gaps" in heuristics.fits_vec16(H200, **specs)
    for rung in ("cuda_rows16", "triton_rows"):
        chosen = ladder("swiglu")
        assert chosen.rung(rung).supports(H200, **specs) is None
        (launch,) = plan_of(chosen, chosen.rung(rung), specs).launches
        assert launch.args[:3] == ("gate", "up", "y")


def test_tensors_without_gaps_are_one_row():
    t = TensorSpec.contiguous((8, 6, 32), BF16)
    assert rows_of((t, t)) == (1, 8 * 6 * 32, (8 * 6 * 32,) * 2)
    half = TensorSpec((8, 32), (64, 1), BF16)
    assert rows_of((half, TensorSpec.contiguous((8, 32), BF16))) == (8, 32, (64, 32))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (TensorSpec((8, 36), (80, 1), BF16), "36 elements is not a multiple of 16 bytes"),
        (TensorSpec((8, 32), (68, 1), BF16), "gate: a row stride of 68 elements"),
        (TensorSpec((8, 32), (64, 1), BF16, align=8), "gate: its memory starts off a 16-byte"),
    ],
)
def test_what_a_vector_of_rows_cannot_take_names_the_numbers(spec, why):
    up = TensorSpec.contiguous(spec.shape, BF16)
    assert why in heuristics.fits_rows16(H200, gate=spec, up=up)


@pytest.mark.parametrize("name", ["swiglu", "geglu"])
def test_glu_names_what_is_wrong(name):
    function, x = getattr(kw, name), randn(3, 4)
    with pytest.raises(ValueError, match=r"up: shape \(4,\) is not gate's \(3, 4\)"):
        function(x, x[0])
    with pytest.raises(TypeError, match=r"gate: must be floating point, is torch\.int64"):
        function(torch.arange(3), x)
    with pytest.raises(TypeError, match=r"up: must be a tensor, is a float"):
        function(x, 2.0)


def test_approximate_is_named():
    x = randn(3, 4)
    for call in (lambda: kw.geglu(x, x, "fast"), lambda: kw.bias_gelu(x, x[0], "fast")):
        with pytest.raises(ValueError, match='approximate: must be "none" or "tanh", is \'fast\''):
            call()


def test_bias_gelu_names_what_is_wrong():
    x = randn(3, 4)
    with pytest.raises(ValueError, match=r"bias: shape \(3,\) is not that of one row .* \(3, 4\)"):
        kw.bias_gelu(x, randn(3))
    with pytest.raises(ValueError, match=r"bias: shape \(\) is not that of one row .* \(\)"):
        kw.bias_gelu(randn(), randn())
    with pytest.raises(TypeError, match=r"bias: must be floating point, is torch\.int64"):
        kw.bias_gelu(x, torch.arange(4))


def _bias_gradient(rows, cols, dtype):
    x = TensorSpec.contiguous((rows, cols), dtype)
    return {"gy": x, "x": x, "bias": TensorSpec.contiguous((cols,), dtype), "approximate": "none"}


def test_strips_number_their_rows_in_32_bits():
    rung = ladder("bias_gelu.backward").rung("cuda_vec16")
    assert rung.supports(H200, **_bias_gradient(2**31 - 1, 8, BF16)) is None
    assert "rows" in rung.supports(H200, **_bias_gradient(2**31, 8, BF16))


@pytest.mark.parametrize(
    ("rows", "dtype", "rounds"),
    [(32768, torch.float32, 32), (32768, BF16, 1), (8, torch.float32, 1)],
)
def test_where_no_table_decides_strips_are_as_they_were_timed(rows, dtype, rounds):
    rung = ladder("bias_gelu.backward").rung("cuda_vec16")
    config = rung.heuristic(H200, **_bias_gradient(rows, 3072, dtype))
    assert config in rung.configs and config["blocks_per_sm"] == rounds


@pytest.mark.parametrize("rung", ["triton_rows", "cuda_vec16"])
def test_the_bias_gradient_is_rounded_after_the_sum(rung):
    """512 equal rows: a sum of bfloat16 would stop at 256."""
    x, bias = torch.full((512, 8), 8.0, dtype=BF16), torch.zeros(8, dtype=BF16)
    args = {"gy": torch.ones_like(x), "x": x, "bias": bias, "approximate": "none"}
    args = {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in args.items()}
    chosen = ladder("bias_gelu.backward")
    reason = unsupported(chosen.rung(rung), specs_of(args), args["x"].device)
    if reason:
        pytest.skip(reason)
    _, gbias = launcher(chosen, args, rung)(*args.values())
    assert torch.equal(gbias, torch.full_like(gbias, 512))


def test_one_pass_counts_fewer_accesses():
    counted = {(r.example, r.way): r.work.accesses for r in fusion.rows()}
    assert counted["gelu(x + bias)", "kw.bias_gelu"] == 3
    assert counted["swiglu", "PyTorch's operators"] == 5
    assert counted["swiglu", "kw.swiglu"] == 3
    assert counted["swiglu.backward", "PyTorch's operators"] == 11
    assert counted["swiglu.backward", "kw.swiglu"] == 5


def test_the_table_of_an_example_has_its_rows_only():
    text = readme_tables.render("fusion swiglu", [])
    assert text.count("\n| swiglu") == 4
    assert "gelu(x)" not in text
    with pytest.raises(ValueError, match="table:fusion relu: no example begins so"):
        readme_tables.render("fusion relu", [])
