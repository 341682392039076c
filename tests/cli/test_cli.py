"""The command line: exit codes, one JSON document, one-line errors, a fast --help."""

import errno
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kernelwright
from kernelwright import cli
from kernelwright.cli import names
from kernelwright.dispatch import ladder, ladders
from kernelwright.support.settings import PACKAGE, settings
from kernelwright.workbench import listing
from kernelwright.workbench.scaffold import scaffold
from kernelwright.workbench.scaffold.stub import stub

SOURCE = Path(kernelwright.__file__).parents[1]
COMMANDS = (
    "env", "list", "verify", "bench", "tune", "inspect", "ledger", "compare", "exercise", "report",
    "new", "train", "generate", "profile", "learn", "export",
    "serve", "bench-serve",
)  # fmt: skip
GPU = torch.cuda.is_available()


def run(*arguments, cwd=None):
    """(exit code, stdout, stderr) of the command in a separate process."""
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


def call(capfd, *arguments):
    """Like `run`, in this process."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(arguments))
    out, err = capfd.readouterr()
    return stopped.value.code, out, err


def python(code):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=True,
    )
    return done.stdout.strip()


def loaded(code, after=""):
    """Names of the modules that code loads, in a separate process in which `after` has run."""
    said = python(
        f"import json, sys\n{after}\nbefore = set(sys.modules)\n"
        f"try:\n    {code}\nexcept SystemExit: pass\n"
        "print(); print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    return set(json.loads(said.splitlines()[-1]))


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "-o", "."),
        ("new", "square", "--into", "/proc"),
        ("new", "--spec", "square", "--into", "/proc"),
        ("extension", "gelu.cuda_vec16", "-o", "/proc/mine"),
    ],
)
def test_an_output_that_cannot_be_written_is_named(arguments, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, said = call(capfd, *arguments)
    where = arguments[-1] if arguments[0] != "new" else "/proc/square"
    assert code == 3 and f"{where}" in said and "cannot be written: " in said, said
    assert "choose another" in said and "Traceback" not in said
    assert not [*tmp_path.iterdir()]


def test_a_full_disk_leaves_the_old_file(capfd, tmp_path, monkeypatch):
    page = tmp_path / "report.html"
    page.write_text("old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", str(page))

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr("kernelwright.workbench.report.report.html", lambda found: "new")
    code, _, said = call(capfd, "report", "-o", str(page))
    assert code == 3 and "MiB free on its disk" in said and page.read_text() == "old"
    assert [*tmp_path.iterdir()] == [page]


def test_an_internal_error_is_no_verdict(capfd, monkeypatch):
    """Python's exit code for a traceback is 1, which means that a check failed."""
    monkeypatch.setattr(cli, "app", lambda **_: [][1])
    code, _, said = call(capfd, "list")
    assert code == 3 and "Traceback" in said and "internal error, please report it" in said


def test_a_misspelled_operator_is_answered_with_the_nearest(capfd):
    code, _, said = call(capfd, "judge", f"{__file__}:run", "--as", "sofmax")
    assert code == 2 and "did you mean softmax" in said and "cross_entropy" not in said


def packages(modules):
    return {m.split(".")[0] for m in modules} - sys.stdlib_module_names


def test_help_imports_only_what_renders_it():
    drawn = loaded(
        "from typer import Typer; app = Typer(); app.callback()(lambda: None); "
        "app.command('a')(lambda: None); app(['--help'])"
    )
    ours = loaded("from kernelwright.cli import main; main(['--help'])")
    assert packages(ours) - packages(drawn) == {"kernelwright"}
    assert {m for m in ours if m.startswith("kernelwright.")} == {
        "kernelwright.cli",
        "kernelwright.ops",
        "kernelwright.support",
        "kernelwright.support.errors",
        *(f"kernelwright.cli.{p.stem}" for p in (PACKAGE / "cli").glob("[a-z]*.py")),
        "kernelwright.support.settings",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [(("bench", "softmx"), "softmx: there is no operator softmx; did you mean softmax or"),
     (("verify", "layer_nrm.backward.triton_row"), "did you mean layer_norm.backward or"),
     (("inspect", "softmax.cuda_wrap"), "has no rung cuda_wrap; did you mean cuda_warp or"),
     (("inspect", "zzz.cuda"), "there is no operator zzz (see kernelwright list)")],
)  # fmt: skip
def test_a_name_mistyped_is_answered_without_torch(words, said):
    code = (
        f"import sys; sys.modules['torch'] = None\nfrom kernelwright.cli import main; main({words})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and said in done.stderr


def test_a_rung_of_another_operator_is_mistyped(capfd):
    code, _, err = call(capfd, "inspect", "softmax.cuda_rows")
    assert code == 2 and "softmax has no such rung; did you mean" in err


def test_every_rung_can_be_named_before_the_hashes_have_it(monkeypatch):
    monkeypatch.setattr(names, "rungs", lambda: {x.name: [] for x in ladders()})
    for rung in {r.name: f"{x.name}.{r.name}" for x in ladders() for r in x.rungs}.values():
        assert names.known(rung) == rung


@pytest.mark.parametrize(
    ("words", "said"),
    [(("info", "softmax"), ("No such command 'info'. Did you mean 'list'?", "kernelwright --help")),
     (("verfy",), ("Did you mean 'verify'?", "kernelwright --help")),
     (("judge", "f.py:g"), ("'--as'", "judge my_kernel.py:my_softmax --as softmax", "--help")),
     (("bench", "softmax", "--pers"), ("--peers", "kernelwright bench --help"))],
)  # fmt: skip
def test_wrong_usage_is_answered_with_what_to_type(capfd, words, said):
    code, out, err = call(capfd, *words)
    assert code == 2 and not out and all(part in err for part in said)


def test_every_synonym_stands_for_a_command(capfd):
    _, out, _ = call(capfd, "--help")
    assert all(f"│ {name} " in out for name in cli.SYNONYMS.values())
    assert not any(f"│ {name} " in out for name in cli.SYNONYMS)


def test_the_version(capfd):
    assert call(capfd, "--version")[:2] == (0, f"kernelwright {kernelwright.__version__}\n")


def test_one_operator_is_listed(capfd):
    code, out, _ = call(capfd, "list", "softmax", "--json")
    found = [o["name"] for o in json.loads(out)["operators"]]
    assert code == 0 and found == ["softmax", "softmax.backward"]


def test_of_an_operator_alone_the_dispatched_rung_is_inspected(capfd):
    code, out, _ = call(capfd, "inspect", "gelu", "--json")
    assert code == 0 and json.loads(out)[0]["rung"] in ladder("gelu").names


def test_names_are_completed():
    assert "softmax.backward.triton_row" in names.complete("softmax.backward.tr")
    assert all(n.startswith("gelu") for n in names.complete("gelu"))


def test_importing_loads_the_table_of_operators_alone():
    found = loaded("import kernelwright", after="import torch")
    assert found == {"kernelwright", "kernelwright.ops"}


def test_an_operator_loads_without_the_others():
    """Of the operators, `kw.softmax` imports only its own ladder and what ladders share."""
    call = "import torch, kernelwright as kw; kw.softmax(torch.ones(2, 3), -1)"
    found = {m for m in loaded(call) if m.startswith("kernelwright.ops.")}
    ladder = "kernelwright.ops.reduce"
    own = (f"{ladder}.softmax", "kernelwright.ops._")
    assert found and all(m == ladder or m.startswith(own) for m in found)


def test_a_second_list_imports_no_kernel_language(capfd):
    call(capfd, "list")
    shown = loaded("from kernelwright.cli import main; main(['list'])", after="import torch")
    assert not packages(shown) & {"triton", "numba", "sympy"}


def test_list_keeps_what_follows_from_the_files(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("KW_CACHE", str(tmp_path / "cache"))
    settings.cache_clear()
    code, first, _ = call(capfd, "list", "--json")
    assert code == 0 and list((tmp_path / "cache" / "list").glob("*/*/facts.json"))
    monkeypatch.setattr(listing, "_facts", None)
    assert call(capfd, "list", "--json")[:2] == (0, first)
    monkeypatch.undo()
    monkeypatch.setenv("KW_CACHE", "/dev/null/nowhere")  # nothing can be kept there
    settings.cache_clear()
    assert call(capfd, "list", "--json")[:2] == (0, first)
    monkeypatch.undo()
    settings.cache_clear()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches(capfd, command):
    code, out, _ = call(capfd, command, "--help")
    assert code == 0
    assert "Examples:" in out and f"kernelwright {command}" in out and "--json" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("env", "--no-roofs"),
        ("verify", "softmax.native"),
        ("inspect", "softmax.cuda_warp"),
        ("ledger",),
    ],
    ids=lambda a: a[0],
)
def test_json_is_one_document_and_nothing_else(capfd, arguments):
    code, out, _ = call(capfd, *arguments, "--json")
    assert code == 0
    assert json.loads(out)


@pytest.mark.long
def test_json_report(capfd, tmp_path):
    code, out, _ = call(capfd, "report", "-o", str(tmp_path / "r.html"), "--json")
    assert code == 0
    assert json.loads(out)["bytes"] == (tmp_path / "r.html").stat().st_size


@pytest.mark.skipif(GPU, reason="a GPU times bench cases of gigabytes")
def test_bench_times_and_shows(capfd):
    case = "3x5000-f32-p=0.5"
    code, out, _ = call(capfd, "bench", "dropout", "--case", case, "--quick", "--json")
    assert code == 0
    found = json.loads(out)
    rows = {r["name"]: r for t in found["ladders"] for r in t["rows"]}
    assert rows["native"]["cold_us"] > 0
    assert any(s["rung"] == "triton_philox" for s in found["skipped"])
    code, out, _ = call(capfd, "bench", "dropout", "--case", case, "--quick")
    assert code == 0 and "native" in out and "on nvidia-h200" in out


def test_what_a_library_prints_stays_off_standard_output(capfd):
    from kernelwright.cli.render import terminal

    with terminal.output(True) as out:
        print("from Python")
        os.write(1, b"from C\n")
        out.emit({"one": 1})
    out, err = capfd.readouterr()
    assert json.loads(out) == {"one": 1}
    assert "from Python" in err and "from C" in err


MISTAKES = {
    "option": ("list", "--no-such"),
    "command": ("lst",),
    "operator": ("verify", "sofmax"),
    "rung": ("verify", "softmax.triton_rows"),
    "case": ("bench", "softmax", "--case", "nothing"),
    "inspected rung": ("inspect", "softmax.nothing"),
    "nothing to compile": ("inspect", "softmax.native"),
    "architecture": ("inspect", "softmax.cuda_warp", "--arch", "sm_1"),
    "folder": ("report", "-o", "/nowhere/at/all.html"),
    "name": ("new", "No-Name"),
    "taken": ("new", "softmax"),
    "no operator there": ("verify", "/nowhere/op"),
}


# One line, followed by commands to type if the usage is wrong.
MESSAGE = r"kernelwright: [^\n]+\n(  (example|all options|all commands):  kernelwright [^\n]+\n)*"


@pytest.mark.parametrize("arguments", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_line(capfd, arguments):
    code, out, err = call(capfd, *arguments)
    assert code == 2
    assert out == ""
    assert re.fullmatch(MESSAGE, err), err
    code, out, _ = call(capfd, *arguments, "--json")
    assert code == 2 and json.loads(out)["exit"] == 2


@pytest.mark.skipif(GPU, reason="there is a GPU to tune on")
def test_nothing_could_run(capfd):
    code, _, err = call(capfd, "tune", "softmax")
    assert code == 3
    assert "Traceback" not in err


@pytest.fixture
def cube(tmp_path):
    scaffold.new("cube", tmp_path)
    return tmp_path / "cube"


@pytest.mark.long
def test_a_wrong_rung_fails(cube):
    path, heuristics = cube / "triton_block.py", cube / "heuristics.py"
    path.write_text(path.read_text().replace("y = x * x", "y = x * x + 0.01"))
    heuristics.write_text(heuristics.read_text() + "\n\nCONFIGS = CONFIGS[:1]\n")
    code, out, _ = run("verify", f"{cube}", "--json")
    assert code == 1
    rows = {(r["operator"], r["rung"]): r["outcome"] for r in json.loads(out)["rows"]}
    assert rows["cube", "triton_block"] == "wrong"
    assert rows["cube", "manual"] == "pass"


def test_a_new_operator_is_lint_free(cube):
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff is not installed")
    config = SOURCE.parent / "pyproject.toml"
    for command in (("check",), ("format", "--check")):
        done = subprocess.run([ruff, *command, "--config", config, cube], capture_output=True)
        assert done.returncode == 0, done.stdout.decode()


def test_a_new_operator_is_entered_in_the_table(tmp_path):
    path = tmp_path / "__init__.py"
    path.write_text(Path(kernelwright.ops.__file__).read_text())
    scaffold._enter(path, "elementwise.cube", "cube")
    entered = runpy.run_path(str(path))["LADDERS"]
    assert entered == {**kernelwright.ops.LADDERS, "elementwise.cube": ("cube",)}


def test_the_stub_names_what_is_public():
    names = re.findall(r"(\w+) as \1,?$", stub(), re.M)
    assert sorted(names) == sorted([*kernelwright.__all__, *kernelwright._MODULES])
    for name in names:
        getattr(kernelwright, name)


@pytest.mark.parametrize(
    ("op", "into", "said"),
    [("scale", None, "FAMILY/scale; there are .*elementwise"),
     ("norms/scale", None, "FAMILY/scale"), ("norm/layer_norm", None, "already exists"),
     ("norm/scale", ".", "it has no family"),
     ("Scale", ".", "not a Python name")],
)  # fmt: skip
def test_what_cannot_be_scaffolded_is_said(op, into, said):
    with pytest.raises(scaffold.CannotScaffold, match=said):
        scaffold.new(op, into and Path(into))


def test_list_names_every_rung(capfd):
    code, out, _ = call(capfd, "list", "--json")
    found = {o["name"]: [r["name"] for r in o["rungs"]] for o in json.loads(out)["operators"]}
    assert code == 0
    assert found == {x.name: list(x.names) for x in ladders()}
