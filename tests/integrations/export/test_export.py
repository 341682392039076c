"""Exported programs, ONNX files and AOTInductor packages of models and operators."""

import json
import re

import pytest
import torch
from torch import nn

import kernelwright as kw
from kernelwright import cli, models
from kernelwright.contract.compare import compare
from kernelwright.dispatch import ladders
from kernelwright.integrations import export
from kernelwright.integrations.export import checks, decompositions, files, subjects
from kernelwright.support.durable import WriteError
from kernelwright.support.errors import ToolchainError, UsageError
from support import patched_models

MODELS = ("gpt2-tiny", "llama-tiny")
PATCHED = ("Llama", "GPT-2", "Qwen 3", "Gemma 2")
FORWARD = [x for x in ladders() if not x.name.endswith(".backward")]
EXPORTED = [
    x
    for x in FORWARD
    if not decompositions._refused(x.operator, True)
    and not any(a.kind == "Tensor[]" for a in x.operator.args)
]


def runtime():
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    return pytest.importorskip("onnxruntime")


def targets(program):
    return {str(n.target) for n in program.graph.nodes if n.op == "call_function"}


class Block(nn.Module):
    """Some of our operators, of which each becomes one operator of PyTorch."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 32)

    def forward(self, x):
        x = kw.layer_norm(x, (16,), self.norm.weight, self.norm.bias)
        gate, up = kw.linear(x, self.linear.weight, self.linear.bias).chunk(2, -1)
        q = kw.swiglu(gate, up).unflatten(-1, (2, 8)).transpose(1, 2)
        return kw.scaled_dot_product_attention(q, q, q, is_causal=True)


def traced(**options):
    torch.manual_seed(0)
    sizes = ({0: "batch", 1: ("length", 64)},)
    return export.trace(Block().eval(), (torch.randn(2, 5, 16),), sizes, **options)


def test_every_operator_is_decomposed_or_refused():
    table, names = decompositions.table(), {x.name for x in ladders()}
    for lad in ladders():
        overload = decompositions._overload(lad.operator)
        assert (overload in table) != bool(lad.operator.mutated), lad.name
    listed = {*decompositions.BY_NATIVE, *decompositions._FORMULAS, *decompositions.BY_VALUES}
    listed |= set(decompositions.NOT_IN_ONNX)
    assert listed <= names | {"quantize_fp8"}, listed - names
    assert not set(decompositions.BY_NATIVE) & set(decompositions._FORMULAS)


def test_a_program_holds_pytorchs_operators_with_its_sizes_named():
    program = traced()
    assert program.calls() == ["layer_norm", "linear", "scaled_dot_product_attention"]
    found = targets(program.decomposed)
    assert {f"aten.{n}.default" for n in ("layer_norm", "scaled_dot_product_attention")} <= found
    assert not [t for t in found if "kernelwright" in t or ".split." in t]
    assert checks.sizes_of(program)[:3] == [
        {"batch": 2, "length": 5}, {"batch": 1, "length": 1}, {"batch": 5, "length": 11},
    ]  # fmt: skip
    (x,) = program.inputs_of({"batch": 3, "length": 7})
    torch.testing.assert_close(program.decomposed.module()(x), program.module(x))


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (Calls(lambda x: kw.dropout(x, 0.5)).eval(), "it calls dropout, which .*random bits"),
        (Calls(lambda x: x).train(), "module: Calls is in training mode; call eval"),
        (Calls(lambda x: x[: int(x.sum())]).eval(), "module: torch.export cannot trace Calls: "),
    ],
    ids=["random", "training", "values"],
)
def test_what_cannot_be_exported_is_said(module, said):
    with pytest.raises(UsageError, match=said):
        export.trace(module, (torch.ones(3, 4),))


def test_an_operator_that_changes_its_arguments_is_refused():
    found = {x.name: x.operator for x in ladders()}
    assert "changes its arguments (x)" in decompositions._refused(
        found["cross_entropy_with_grad_"], False
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("softmax",), "give either --onnx FILE or --aoti FILE"),
        (("softmax", "--onnx", "a.onnx", "--aoti", "a.pt2"), "give either --onnx FILE or"),
        (("softmax", "--onnx", "a.onnx", "--with-kernels"), "--with-kernels: an ONNX file holds"),
        (("softmax", "--onnx", "a.onnx", "--dtype", "float16"), "--dtype: an operator has"),
        (("llama-tinny", "--onnx", "a.onnx"), "llama-tinny: is not .*did you mean llama-tiny"),
        (("llama-tiny", "--onnx", "a.onnx", "--dtype", "int8"), "--dtype: 'int8' is not one of"),
        (("llama-tiny", "--onnx", "a.onnx", "--case", "x"), "--case: llama-tiny is not an op"),
        (("dropout", "--onnx", "a.onnx"), "dropout.*: it calls dropout"),
        (("softmax", "--aoti", "a.so"), "--aoti: a.so must end in .pt2"),
    ],
)
def test_wrong_usage_is_answered(capfd, arguments, said):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["export", *arguments])
    assert stopped.value.code == 2
    text = " ".join(capfd.readouterr().err.split())
    assert re.search(said, text), text


def test_nothing_half_written_is_left(tmp_path):
    with (
        pytest.raises(WriteError, match=r"m\.onnx cannot be written: disk"),
        files._written(tmp_path / "m.onnx") as folder,
    ):
        (folder / "m.onnx").write_bytes(b"half")
        raise OSError(5, "disk")
    assert not list(tmp_path.iterdir())
    for path in (tmp_path, tmp_path / "nowhere" / "m.onnx"):
        with pytest.raises(WriteError, match="cannot be written"), files._written(path):
            pass


def test_a_check_fails_for_another_result():
    exact = torch.randn(4, 5, dtype=torch.float64)
    own = exact.float()
    good = checks._check({}, [own], [own], [exact])
    bad = checks._check({}, [own * (1 + 1e-4)], [own], [exact])
    missing = checks._check({}, [], [own], [exact])
    assert good.ok and not bad.ok and not missing.ok
    assert "norm error is" in bad.accuracy.why and "0 results, should be 1" in missing.accuracy.why


@pytest.mark.long
def test_onnx_runtime_agrees_on_a_block(tmp_path):
    runtime()
    program = traced(results=("y",))
    written = export.write_onnx(program, tmp_path / "block.onnx")
    assert written.inputs == {"x": ("batch", "length", 16)}
    assert written.outputs == {"y": ("batch", 2, "length", 8)}
    assert {"LayerNormalization", "Attention"} <= set(written.operators)
    found = export.check_onnx(tmp_path / "block.onnx", program)
    assert len(found) == 5 and all(c.ok for c in found), found


@pytest.mark.long
def test_a_damaged_file_is_an_error(tmp_path):
    runtime()
    (tmp_path / "m.onnx").write_bytes(b"not a model")
    with pytest.raises(ToolchainError, match="ONNX Runtime cannot load"):
        export.check_onnx(tmp_path / "m.onnx", traced())


@pytest.mark.long
@pytest.mark.parametrize("opset", [18, 20, 23])
@pytest.mark.parametrize("name", MODELS)
def test_onnx_runtime_agrees_with_our_models(capfd, tmp_path, name, opset):
    runtime()
    path = tmp_path / "model.onnx"
    with pytest.raises(SystemExit) as stopped:
        cli.main(["export", name, "--onnx", str(path), "--opset", str(opset), "--json"])
    found = json.loads(capfd.readouterr().out)
    assert stopped.value.code == 0 and [p.name for p in tmp_path.iterdir()] == [path.name]
    assert found["inputs"] == {"tokens": ["batch", "length"]}
    assert list(found["outputs"]) == ["logits"] and len(found["checks"]) == 5
    assert ("Attention" in found["operators"]) == (opset == 23)
    assert not [n for n in found["operators"] if "Sequence" in n]  # TensorRT has none


@pytest.mark.long
@pytest.mark.parametrize("family", PATCHED)
def test_onnx_runtime_agrees_with_the_unpatched_model(tmp_path, family):
    onnxruntime = runtime()
    kind, config = patched_models.FAMILIES[family]
    torch.manual_seed(0)
    plain = kind(config).eval()
    for p in plain.parameters():
        nn.init.normal_(p, 0.0, 0.2)
    patched = kind(config).eval()
    patched.load_state_dict(plain.state_dict())
    kw.patch(patched)
    subject = subjects.of_patched(patched, what=family)
    program = export.trace(subject.module, subject.args, subject.sizes, results=subject.results)
    assert any("norm" in name for name in program.calls())
    export.write_onnx(program, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    wide = kind(config).eval().double()
    wide.load_state_dict(plain.state_dict())
    for sizes in checks.sizes_of(program):
        (tokens,) = program.inputs_of(sizes)
        out = torch.from_numpy(session.run(None, {"tokens": tokens.numpy()})[0])
        with torch.no_grad():
            native, exact = (subjects.LogitsOf(m)(tokens) for m in (plain, wide))
        accuracy = compare(out, native, exact.double(), noise=checks._noise(native, exact))
        assert accuracy.ok, (sizes, accuracy.why)


@pytest.mark.long
@pytest.mark.parametrize("lad", EXPORTED, ids=lambda x: x.name)
def test_onnx_runtime_agrees_with_every_operator(tmp_path, lad):
    runtime()
    subject = subjects.of_operator(lad)
    program = export.trace(subject.module, subject.args, subject.sizes, results=subject.results)
    export.write_onnx(program, tmp_path / "op.onnx")
    for found in export.check_onnx(tmp_path / "op.onnx", program):
        assert found.ok, (found.sizes, found.accuracy.why)


@pytest.mark.long
def test_a_checkpoint_of_another_architecture_is_patched(capfd, tmp_path):
    runtime()
    kind, config = patched_models.FAMILIES["Qwen 3"]
    torch.manual_seed(0)
    kind(config).save_pretrained(tmp_path / "model")
    subject = subjects.of_model(str(tmp_path / "model"))
    program = export.trace(subject.module, subject.args, subject.sizes)
    assert "rms_norm" in program.calls() and "float32" in str(program.module.model.dtype)


@pytest.mark.long
def test_a_large_model_has_a_second_file(tmp_path, monkeypatch):
    runtime()
    monkeypatch.setattr(files, "ONE_FILE", 100)
    program = traced()
    written = export.write_onnx(program, tmp_path / "m.onnx")
    sizes = {p.name: p.stat().st_size for p in tmp_path.iterdir()}
    assert set(sizes) == {"m.onnx", "m.onnx.data"} and written.bytes == sum(sizes.values())
    assert all(c.ok for c in export.check_onnx(tmp_path / "m.onnx", program))


@pytest.mark.long
def test_a_package_agrees_with_the_model(tmp_path):
    program = traced(onnx=False)
    export.write_aoti(program, tmp_path / "m.pt2")
    assert [p.name for p in tmp_path.iterdir()] == ["m.pt2"]
    assert all(c.ok for c in export.check_aoti(tmp_path / "m.pt2", program))


def test_presets_are_what_the_command_names():
    assert set(MODELS) <= set(models.PRESETS)
