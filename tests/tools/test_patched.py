"""The comparison of kw.patch: models train in turns, one may fail; and its table."""

import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch
from benchmarks import patched
from transformers.models.llama import modeling_llama

from kernelwright.workbench.binary_info import dissect
from tools import readme_tables

SHAPE = {
    "layers": 1, "hidden": 32, "intermediate": 48, "heads": 2, "kv_heads": 1, "vocabulary": 96,
    "batch": 2, "tokens": 16,
}  # fmt: skip
ARGUMENTS = ["--shape", *(f"{name}={n}" for name, n in SHAPE.items())]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(patched, "STEPS", 2)
    monkeypatch.setattr(patched, "here", lambda: torch.device("cpu"))


class Liger(ModuleType):
    """Replaces liger_kernel.transformers; like that, it changes transformers' module."""

    fails = ""

    def apply_liger_kernel_to_llama(self, model):
        rope = modeling_llama.apply_rotary_pos_emb
        modeling_llama.apply_rotary_pos_emb = lambda *args: self.seen.append(1) or rope(*args)
        if self.fails == "patch":
            raise ImportError("no such module\nin this version")
        if self.fails == "step":
            model.forward = self.stop

    def stop(self, **kwargs):
        raise RuntimeError("out of memory")


@pytest.fixture
def liger(monkeypatch):
    module = Liger("liger_kernel.transformers")
    module.seen = []
    package = ModuleType("liger_kernel")
    package.__spec__ = ModuleSpec("liger_kernel", None)
    monkeypatch.setitem(sys.modules, "liger_kernel", package)
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", module)
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", modeling_llama.apply_rotary_pos_emb)
    return module


def test_models_of_the_same_weights_take_turns(liger):
    found = patched.measure(shape=SHAPE)
    plain, ours, theirs = (
        found.variants[n] for n in (patched.UNPATCHED, patched.OURS, patched.LIGER)
    )
    assert plain.losses == theirs.losses and len(plain.losses) == patched.WARM_UP
    assert ours.losses == pytest.approx(plain.losses, rel=2e-2)
    assert [len(v.step_ms) for v in found.variants.values()] == [2, 2, 2]
    assert len(liger.seen) == patched.WARM_UP + 2  # its rope, only in its own steps
    assert found.rungs == {
        "rms_norm": "native", "add_rms_norm": "native", "rope": "native", "swiglu": "native",
        "linear_cross_entropy": "native", "scale_unless_one_": "native",
        "rms_norm.backward": "native", "add_rms_norm.backward": "native",
        "rope.backward": "native", "swiglu.backward": "native",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fails", "why"), [("patch", "ImportError: no such module"), ("step", "RuntimeError: out of")]
)
def test_one_that_fails_leaves_the_others(liger, fails, why, capsys):
    liger.fails = fails
    assert patched.main(ARGUMENTS) == 1
    _, plain, theirs, ours = capsys.readouterr().out.splitlines()[-4:]
    assert theirs.startswith(f"Liger         {why}")
    assert plain.split()[0] == "transformers" and "1.00x" in plain
    assert ours.split()[0] == "kernelwright" and len(ours) > len(theirs)


def test_nothing_to_compare_with(monkeypatch):
    variants = {
        patched.UNPATCHED: patched.Variant(failed="OutOfMemoryError: no"),
        patched.OURS: patched.Variant([80.0], 15 << 30, 10 << 30, [11.9]),
    }
    table = patched.rows(patched.Patched(patched.SHAPE, variants, {}, {}))
    assert table[1][:2] == ["transformers", "OutOfMemoryError: no"]
    assert table[2][:4] == ["kernelwright", "102,400", "", "15.00 GiB"]
    assert {len(row) for row in table} == {7}


def test_the_command_records_and_the_page_shows(monkeypatch, tmp_path, capsys):
    kept = replace(patched.records.settings(), records=tmp_path)
    monkeypatch.setattr(patched.records, "settings", lambda: kept)
    monkeypatch.setattr(patched, "slug", lambda device: patched.records.REFERENCE_MACHINE)
    monkeypatch.setitem(sys.modules, "liger_kernel", None)  # which needs a GPU
    assert patched.main([*ARGUMENTS, "--record", "-o", str(tmp_path / "again.json")]) == 0
    said = capsys.readouterr().out
    assert "rungs: rms_norm native" in said
    file = tmp_path / patched.records.REFERENCE_MACHINE / "llama.json"
    assert file.read_text() == (tmp_path / "again.json").read_text()
    found = patched.load(patched.records.REFERENCE_MACHINE, tmp_path)
    assert found.shape == SHAPE and found.environment["machine"]
    assert patched.load("elsewhere", tmp_path) is None
    monkeypatch.setattr(patched.records, "ROOT", tmp_path)
    monkeypatch.setattr(dissect, "load", dissect.load.__wrapped__)  # bypasses its cache
    monkeypatch.setattr(readme_tables.records, "load", lambda machine: [])
    monkeypatch.setattr(readme_tables.machine_pictures, "PICTURES", {})
    page = next(text for path, text in readme_tables.texts().items() if path.name == "patch.md")
    table = page.split("<!-- table:patched -->")[1].split("<!-- /table -->")[0]
    assert "1 layers of 32 (48 in the MLP)" in table and "| kernelwright |" in table


def test_a_cpu_is_asked_for_no_model_of_that_size(capsys):
    assert patched.main([]) == 1
    assert "no GPU here" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        patched.main(["--shape", "width=3"])
    assert "--shape: there is no width" in capsys.readouterr().err


def test_the_table_of_a_patched_model(monkeypatch):
    monkeypatch.setattr(readme_tables.patched, "load", lambda machine: None)
    assert (
        readme_tables.render("patched", []) == "No record of a patched model on nvidia-h200 yet.\n"
    )
    variants = {
        patched.UNPATCHED: patched.Variant([100.0], 20 << 30, 10 << 30, [11.9]),
        patched.OURS: patched.Variant([80.0], 15 << 30, 10 << 30, [11.9]),
    }
    found = patched.Patched(patched.SHAPE, variants, {}, {})
    monkeypatch.setattr(readme_tables.patched, "load", lambda machine: found)
    line = readme_tables.render("patched", []).splitlines()[-1]
    assert line == "| kernelwright | 102,400 | 1.25x | 15.00 GiB | 5.00 GiB | 75% | 11.9000 |"
