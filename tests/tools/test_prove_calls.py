"""tools/prove_calls.py, with a driver that launches nothing."""

import json
import random
import shutil
import time

import pytest
import torch

from kernelwright.dispatch import native_calls
from kernelwright.support import settings
from kernelwright.toolchain import c_extensions, cpp_extension, modes
from support.cpp_calls import _switch, in_cpp
from support.hosted import hosted
from tools import prove_calls

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def switch(tmp_path_factory):
    if modes.has_gpu() or c_extensions.compiler() is None or cpp_extension.compiler() is None:
        pytest.skip("a stand-in for a GPU, built with a C compiler")
    with hosted(tmp_path_factory.mktemp("driver")), in_cpp(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(prove_calls, "_bits", lambda t: torch.tensor(0))  # no kernel writes them
        yield _switch()


def compared(name, switch):
    rng, end = random.Random(name), time.monotonic() + 600
    return prove_calls.operator_compared(name, CPU, switch, rng, end)


@pytest.mark.long
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "mul", "gelu"])
def test_calls_that_agree_are_counted(name, switch):
    found = compared(name, switch)
    assert not found["problems"]
    assert found["agreed"].keys() == {name, f"{name}.backward"}


@pytest.mark.long
def test_a_call_that_differs_is_a_problem(switch, monkeypatch):
    names = native_calls.entries["tanh"].__globals__

    def wrong(x, rung):
        return x.clone()

    kept = [
        (c, run, [(n, f, wrong if n is names else entry) for n, f, entry in users])
        for c, run, users in switch._kept
    ]
    monkeypatch.setattr(switch, "_kept", kept)
    assert compared("tanh", switch)["problems"]


def test_only_a_record_of_the_current_source_proves(tmp_path, monkeypatch):
    monkeypatch.setenv("KW_RECORDS", str(tmp_path))
    settings.settings.cache_clear()
    try:
        shipped = native_calls.proven.__wrapped__()
        path = prove_calls.record({"softmax": 3}, tmp_path)
        assert native_calls.proven.__wrapped__() == shipped | {"softmax"}
        document = json.loads(path.read_text())
        path.write_text(json.dumps({**document, "source": "0" * 16}))
        assert native_calls.proven.__wrapped__() == shipped
    finally:
        settings.settings.cache_clear()


def test_without_a_proof_nothing_is_built(monkeypatch):
    started = []
    monkeypatch.setattr(cpp_extension, "start", lambda: started.append(True))
    for proven, expected in ((frozenset(), []), (frozenset({"softmax"}), [True])):
        monkeypatch.setattr(native_calls, "proven", lambda proven=proven: proven)
        native_calls.start()
        assert started == expected


@pytest.mark.parametrize(
    ("file", "old", "new", "counts"),
    [
        ("cpp_extension/plan.h", "\n#include", "\n// a comment\n#include", False),
        ("gpu_executor.py", "from struct import pack", "from struct import pack  # bytes", False),
        ("gpu_executor.py", "\ndef ", "\n\n@cache\ndef ", True),
        ("cpp_extension/module.cpp", "return", "return !", True),
    ],
)
def test_a_proof_of_calls_depends_on_code_alone(file, old, new, counts, tmp_path, monkeypatch):
    folder = tmp_path / "toolchain"
    shutil.copytree(cpp_extension.FOLDER, folder / "cpp_extension")
    shutil.copy(cpp_extension.FOLDER.with_name("gpu_executor.py"), folder)
    before = native_calls.source_hash()
    monkeypatch.setattr(cpp_extension, "FOLDER", folder / "cpp_extension")
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    assert (native_calls.source_hash.__wrapped__() != before) is counts
