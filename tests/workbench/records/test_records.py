"""Records on disk: truncated or overwritten data is an error that names file and line."""

import json
import shutil
from types import SimpleNamespace

import pytest
from benchmarks import patched, training

from kernelwright import cli
from kernelwright.contract import H200 as GPU
from kernelwright.dispatch import data, ladder, proof, selection
from kernelwright.dispatch.selection import shipped_tables
from kernelwright.workbench.binary_info import dissect
from kernelwright.workbench.records import ledger, merge, records
from tools import counters, readme_tables

H200 = "nvidia-h200"


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A copy of the shipped records of two operators, and of the files that a run rewrites."""
    folder = tmp_path / "shipped"
    for pattern in ("softmax*.jsonl", "sum.jsonl", "runs.jsonl", "*.json"):
        for path in (records.ROOT / H200).glob(pattern):
            (folder / H200).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / H200)
    shutil.copytree(records.ROOT / "emulator", folder / "emulator")
    shutil.copy(proof.PROVEN, folder)
    monkeypatch.setattr(records, "ROOT", folder)
    monkeypatch.setattr(proof, "PROVEN", folder / "proven.json")
    for kept in (proof._proven, dissect.load):
        kept.cache_clear()
    yield folder
    monkeypatch.undo()
    for kept in (proof._proven, dissect.load):
        kept.cache_clear()


def cut(path, line, column):
    """Truncate a file after a column of a line."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: line - 1]) + lines[line - 1][:column])


READERS = {
    "ledger": lambda root: ledger.ledger(),
    "load": lambda root: records.load(H200, "softmax"),
    "save": lambda root: records.save(
        [*records.load(H200, "sum")[:1], records.Record("softmax", "x", "c", H200, "r", "error")],
        {"run": "r", "machine": H200},
    ),
    "merge": lambda root: merge.merge([root], root.parent / "into"),
    "report": lambda root: cli.main(["report", "-o", str(root / "report.html")]),
    "tables": lambda root: readme_tables.texts(),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_record_that_is_cut_short(shipped, reader, capsys):
    path = shipped / H200 / "softmax.jsonl"
    cut(path, 7, 100)
    before = path.read_bytes()
    with pytest.raises((data.Damaged, SystemExit)) as caught:
        READERS[reader](shipped)
    said = str(caught.value)
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == 1
        said = capsys.readouterr().err
    assert f"{path}:7: " in said and "the file is damaged" in said
    assert path.read_bytes() == before


def test_the_last_line_without_its_end(shipped):
    path = shipped / H200 / "softmax.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    last = len(path.read_bytes().splitlines())
    with pytest.raises(data.Damaged, match=f"softmax.jsonl:{last}: ends without a line break"):
        ledger.ledger()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"operator": "softmax"}\n', "is a record without rung and case and machine and run"),
        (b"[1, 2]\n", "is not a record"),
        (b"\x00\xff\xfe garbage\n", "has bytes that are not text|is not JSON"),
        (b"\0" * 50 + b"\n", "has bytes that are not text|is not JSON"),
    ],
)
def test_a_line_that_is_overwritten(shipped, line, why):
    path = shipped / H200 / "softmax.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], line, *lines[3:]]))
    for read in (lambda: records.load(H200, "softmax"), lambda: ledger.ledger()):
        with pytest.raises(data.Damaged, match=rf"softmax\.jsonl:3: ({why})"):
            read()


def test_the_runs(shipped):
    cut(shipped / H200 / "runs.jsonl", 2, 30)
    for read in (lambda: records.runs(H200), lambda: ledger.ledger()):
        with pytest.raises(data.Damaged, match=r"runs\.jsonl:2: "):
            read()


def test_records_whose_run_is_lost(shipped):
    cut(shipped / H200 / "runs.jsonl", 1, 10_000)
    assert any("which is not in runs.jsonl" in p for p in ledger.ledger().problems)
    with pytest.raises(data.Damaged, match=r"which is not in runs\.jsonl"):
        merge.merge([shipped], shipped.parent / "into")


def test_the_ledger_reads_what_is_recorded_elsewhere_too(shipped, tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    shutil.copytree(shipped, mine)
    cut(mine / H200 / "softmax.jsonl", 7, 100)
    monkeypatch.setattr(ledger.records, "settings", lambda: type("S", (), {"records": mine}))
    with pytest.raises(data.Damaged, match=rf"{mine}/.*softmax\.jsonl:7: "):
        ledger.ledger()


WHOLE = {
    "nvidia-h200/counters.json": lambda: counters.load(H200),
    "nvidia-h200/llama.json": lambda: patched.load(H200),
    "nvidia-h200/training.json": lambda: training.load(H200),
    "emulator/dissect.json": lambda: dissect.load(),
    "proven.json": lambda: proof._proven(),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_document_that_is_cut_short(shipped, name):
    path = shipped / name
    line = len(path.read_bytes().splitlines()) - 2
    cut(path, line, 1)
    for read in (WHOLE[name], ledger.ledger):
        with pytest.raises(data.Damaged, match=rf"{name}:{line}: is not JSON"):
            read()


def test_a_tuned_table_that_is_cut_short(tmp_path):
    shutil.copytree(shipped_tables(ladder("softmax")), tmp_path / "tuned")
    cut(tmp_path / "tuned" / "softmax.sm_90.json", 5, 1)
    softmax = SimpleNamespace(name="softmax", folder=tmp_path)
    with pytest.raises(data.Damaged, match=r"softmax\.sm_90\.json:5: "):
        selection.tuned_table.__wrapped__(softmax, GPU)


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "file.json"
    data.write(path, json.dumps([1]))
    real = type(path).write_text

    def half(self, text):
        real(self, text[:1])
        raise OSError("no space left on device")

    monkeypatch.setattr(type(path), "write_text", half)
    with pytest.raises(OSError, match="no space"):
        data.write(path, json.dumps([2]))
    assert data.document(path, None) == [1] and list(tmp_path.iterdir()) == [path]
