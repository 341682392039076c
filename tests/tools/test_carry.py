"""carry: records of a rung stay valid while its kernels are the same."""

import importlib
import json
from dataclasses import asdict, make_dataclass, replace
from types import SimpleNamespace

import pytest

from kernelwright.dispatch import source_hash
from kernelwright.workbench.records.records import Record
from support import another
from tools import carry, counters

NAME = another.NAME
CASE = "5x33-f32-eps=1e-05-weight=same"
pytestmark = pytest.mark.usefixtures("then")


@pytest.fixture(scope="session")  # a module's is made again after tests of other modules
def then(tmp_path_factory):
    """The folder of this package under another name."""
    return another.made(tmp_path_factory.mktemp("then"))


@pytest.fixture
def header(then):
    """A header that the rung includes; it is restored after the test."""
    path = then / "include" / "kw" / "row.cuh"
    text = path.read_text()
    yield path
    path.write_text(text)


def versions(rung="cuda_block", operator="layer_norm"):
    return next(
        (mine, theirs)
        for mine, theirs in carry._both(NAME)
        if (mine.ladder.name, mine.rung.name) == (operator, rung)
    )


def test_other_text_and_the_same_kernels(header):
    text = header.read_text()
    at = text.rindex("}  // namespace kw")
    header.write_text(f"{text[:at]}struct OfNobody {{\n  int unused;\n}};\n{text[at:]}")
    assert carry.differs(*versions(), cases=[CASE]) == ""


def test_kernels_of_the_same_text_in_other_files_are_not_compiled(header, monkeypatch):
    monkeypatch.setattr(carry, "_machine_code", None)
    moved = header.with_name("moved.cuh")
    moved.write_text(header.read_text())
    header.write_text('// In another file.\n#pragma once\n#include "kw/moved.cuh"\n')
    try:
        assert carry.differs(*versions(), cases=[CASE]) == ""
    finally:
        moved.unlink()


def test_what_a_process_leaves_in_a_name_is_no_difference(monkeypatch):
    name = "_ZN{}_INTERNAL_00000000_13_cuda_block_cu_{}2kw7kWeightE"
    codes = iter([name.format(49, "a010b7ae_4225"), name.format(50, "3b275d61_14225")])
    build = importlib.import_module(f"{NAME}.toolchain.build")
    monkeypatch.setattr(build, "compile", lambda *_: SimpleNamespace(name="fwd_block"))
    monkeypatch.setattr(carry.binary, "sass", lambda _: f"fwd_block reads {next(codes)}")
    monkeypatch.setattr(carry.binary, "resources", lambda _: None)
    _, theirs = versions()
    one, other = (carry._machine_code(theirs, (None, None)) for _ in range(2))
    assert one == other and "7kWeight" in one[0] and "fwd" not in one[0]


def test_other_kernels(header):
    text = header.read_text()
    assert text.count("if (inside) words") == 1
    header.write_text(text.replace("if (inside) words", "if (inside && p) words"))
    assert carry.differs(*versions(), cases=[CASE]).startswith(
        f"other machine code on {CASE}: cuda_block.cu: "
    )


@pytest.fixture
def no_plans_kept(then):
    """Plans that a test has changed are made again after it."""
    entry_of = importlib.import_module(f"{NAME}.dispatch.launcher").entry_of
    entry_of.cache_clear()
    yield
    entry_of.cache_clear()


def test_other_launches(no_plans_kept, monkeypatch):
    mine, theirs = versions()
    module = importlib.import_module(f"{NAME}.ops.norm.layer_norm.cuda")
    planned = module.block

    def on_more_blocks(*args, **specs):
        plan = planned(*args, **specs)
        return replace(plan, launches=tuple(replace(x, grid=(99, 1, 1)) for x in plan.launches))

    monkeypatch.setattr(module, "block", on_more_blocks)
    assert carry.differs(mine, theirs, cases=[CASE]) == f"other launches on {CASE}"
    assert carry.differs(mine, versions("cuda_warp")[1], cases=[CASE]) == "other configs"


def test_other_promises_and_cases():
    mine, theirs = versions()
    loose = replace(theirs, rung=replace(theirs.rung, deterministic=False))
    assert carry.differs(mine, loose, cases=[CASE]) == "deterministic in one"
    cases = theirs.ladder.operator.cases[1:]
    operator = replace(theirs.ladder.operator, cases=cases)
    fewer = replace(theirs, ladder=replace(theirs.ladder, operator=operator))
    assert carry.differs(mine, fewer, cases=[CASE]) == "other cases"
    assert (
        carry.differs(mine, theirs, cases=["0-f32-eps=1e-05-weight=same"]) == "no case launches it"
    )


def test_a_kernel_that_takes_a_function():
    """The function is in another package; it is compiled with the kernel."""
    pair = versions("triton_block", "silu")
    mine, theirs = (carry._planned(v, "4x66-f32-inf", v.rung.configs[0])[0] for v in pair)
    assert "('FORMULA', 'silu')" in mine and mine == theirs


def test_a_reason_in_other_words_is_no_difference(monkeypatch):
    mine, theirs = versions()
    case = next(
        c.id
        for c in mine.ladder.operator.cases
        if c.numel and mine.rung.supports(carry.H200, **carry_specs(mine, c))
    )
    said = replace(theirs, rung=replace(theirs.rung, supports=lambda gpu, **specs: "other words"))
    assert carry.differs(mine, said, cases=[case, CASE]) == f"other launches on {CASE}"
    assert carry._planned(said, case, {}) == carry._planned(mine, case, {})


def carry_specs(of, case):
    return of.module("workbench.inspection").specs_of(of.ladder, case)


def test_a_pytorch_rung_is_the_same_where_its_parts_are(then):
    pair = versions("native")
    assert carry.differs(*pair) == ""
    path = then / "ops" / "norm" / "layer_norm" / "torch_rungs.py"
    text = path.read_text()
    for word, differs in (("# a comment", ""), ("def native_layer_norm", "other sources")):
        path.write_text(text + f"\n\n{word}" + ("(*args):\n    return None\n" if differs else "\n"))
        carry.proof._packages.cache_clear()
        assert carry.differs(*pair) == differs
    path.write_text(text)
    carry.proof._packages.cache_clear()


def test_tuned_tables_of_the_former_source_are_carried(then, tmp_path, monkeypatch):
    mine, theirs = versions()
    present = source_hash(mine.ladder, mine.rung)
    table = tmp_path / "tuned" / "layer_norm.sm_90.json"
    table.parent.mkdir()
    monkeypatch.setitem(vars(mine.ladder), "folder", tmp_path)
    house = theirs.module("dispatch")
    monkeypatch.setattr(house, "source_hash", lambda *_: "before")
    for was, found in (("before", [table]), ("long before", [])):
        table.write_text(
            json.dumps({"buckets": {}, "sources": {"cuda_block": was, "of": "others"}})
        )
        assert carry._tables(mine, theirs) == found
    carry._retable(table, mine)
    kept = json.loads(table.read_text())
    assert kept == {"buckets": {}, "sources": {"cuda_block": present, "of": "others"}}


def test_only_what_is_missing_is_taken():
    mine, _ = versions()
    present = source_hash(mine.ladder, mine.rung)
    old = Record("layer_norm", "cuda_block", "*", "nvidia-h200", "a run", "pass", hash="before")
    of_no_case = replace(old, case="no such case")
    known = replace(old, config=dict(mine.rung.configs[0]))
    (found,) = carry._missing_here(mine, [of_no_case, known, replace(old, hash=present)])
    assert found == replace(of_no_case, hash=present, carried="before")


def test_a_record_of_another_commit_may_have_fields_that_are_gone(monkeypatch):
    _, theirs = versions()
    then = make_dataclass("Then", [("gone", tuple, ())], bases=(Record,), frozen=True)
    old = Record("layer_norm", "cuda_block", "*", "nvidia-h200", "a run", "pass", hash="before")
    module = theirs.module("workbench.records.records")
    monkeypatch.setattr(module, "load", lambda *_: [then(**asdict(old))])
    assert carry._records(theirs) == [old]


def test_counters_are_carried_too():
    mine, _ = versions()
    present = source_hash(mine.ladder, mine.rung)
    old = counters.Counted("layer_norm", "cuda_block", "before", "a case", 0, "k", {"n": 1.0})
    others = [replace(old, rung="cuda_warp"), replace(old, hash=present)]
    (found,) = carry._uncounted_here(mine, [old, *others])
    assert found == replace(old, hash=present, carried="before")
