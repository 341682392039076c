"""compare: verdicts and exit codes, the meaning of names, and the workflow in docs/compare.md."""

import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer
import yaml
from rich.console import Console
from torch.utils._python_dispatch import TorchDispatchMode

import kernelwright
from kernelwright import cli
from kernelwright.cli.render import comparison
from kernelwright.dispatch import UnknownOperator, ladder
from kernelwright.machine import clock
from kernelwright.support.errors import UsageError
from kernelwright.workbench.compare import compare, git_version, operands

GPU = torch.cuda.is_available()
DOCS = Path(kernelwright.__file__).parents[2] / "docs"
CASE = "33001-f32-approximate=none"
# a GPU cannot time cases of which thousands fit in its cache
SMALL = "4096x768-f32-dim=-1" if GPU else "4x1000-f32-dim=-1"


def row(verdict, ratio=None):
    return compare.Row("softmax", "c", "a", "b", verdict, ratio=ratio)


@pytest.mark.parametrize(
    ("verdicts", "whole", "code"),
    [
        ((), "same", 0),
        (("same", "same"), "same", 0),
        (("same", "faster", "untimed"), "faster", 0),
        (("faster", "ambiguous"), "ambiguous", 4),
        (("faster", "ambiguous", "slower"), "slower", 1),
        (("slower", "wrong"), "wrong", 5),
        (("slower", "error"), "error", 5),
        (("untimed", "untimed"), "untimed", 3),
    ],
)
def test_the_worst_case_decides(verdicts, whole, code):
    found = compare.Compared("A", "B", [row(v) for v in verdicts])
    assert (found.verdict, found.exit_code) == (whole, code)


def test_the_mean_is_of_ratios():
    found = compare.Compared("A", "B", [row("faster", 4.0), row("slower", 0.25), row("untimed")])
    assert found.ratio == pytest.approx(1.0) and len(found.timed) == 2


def test_samples_are_judged_as_b_against_a():
    a = [100.0 + i % 3 for i in range(32)]
    again = [100.0 + (i + 1) % 3 for i in range(32)]
    half, same = [x / 2 for x in a], [x * 1.001 for x in a]
    found = compare.judged(a, half, again)
    assert found["verdict"] == "faster" and found["ratio"] == pytest.approx(2.0)
    assert (found["a_us"], found["b_us"]) == (101.0, 50.5)
    assert compare.judged(half, a, half)["verdict"] == "slower"
    assert compare.judged(a, same, again)["verdict"] == "same"
    assert compare.judged(a, [x * 1.2 for x in a], a, clock_spread=0.5)["verdict"] == "ambiguous"


def test_a_noisy_control_gives_no_verdict():
    """A difference of less than twice the noise is "same" only if the noise is small."""
    a = [100.0] * 16
    wild = [84.0 + i % 5 for i in range(16)]
    b = [x * 1.15 for x in a]
    found = compare.judged(a, b, wild)
    assert found["noise"] > compare.UNSTEADY and found["verdict"] == "ambiguous"
    assert compare.judged(a, [x * 3 for x in a], wild)["verdict"] == "slower"


class Counted(TorchDispatchMode):
    """A deterministic clock: each operator takes one microsecond."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def counted(candidates, device, rule=None):
    """Replaces machine.clock.measure."""
    times = {}
    for k, candidate in enumerate(candidates):
        with Counted() as found:
            candidate.calls[0]()
        jitter = [1 + (3 * i + k) % 7 / 1e4 for i in range(16)]
        times[candidate.name] = clock.Times(cold=tuple(found.count * j for j in jitter))
    return clock.Result(times)


@pytest.fixture
def steady(monkeypatch):
    monkeypatch.setattr(clock, "measure", counted)


@pytest.fixture
def kernels(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\n"
        "def good(x, dim):\n    return torch.softmax(x, dim)\n"
        "def slow(x, dim):\n"
        "    for _ in range(20):\n        y = torch.softmax(x, dim)\n    return y\n"
        "def rough(x, dim):\n    return torch.softmax(x.half(), dim).to(x.dtype)\n"
        "def fails(x, dim):\n    raise ArithmeticError('no softmax today')\n"
        "number = 3\n"
        "def last(input):\n    return torch.softmax(input, -1)\n"
        "def named(dim, x):\n    return torch.softmax(x, dim)\n"
    )
    return path


def run(a, b, case=SMALL):
    return compare.compare(
        operands.pairs(str(a), str(b), None, ()), names=(str(a), str(b)), cases=[case], quick=True
    )


def test_a_slower_function_is_found_and_so_is_a_faster(kernels, steady):
    found = run("softmax.native", f"{kernels}:slow")
    assert (found.verdict, found.exit_code) == ("slower", 1), found.rows
    (one,) = found.rows
    assert one.low <= one.ratio <= one.high < 1 < one.b_us / one.a_us
    assert one.ratio == pytest.approx(1 / 20, rel=1e-2)
    assert (one.a, one.b) == ("native", "slow")
    assert run(f"{kernels}:slow", "softmax.native").verdict == "faster"
    assert run("softmax.native", f"{kernels}:good").verdict == "same"
    out = io.StringIO()
    Console(file=out).print(comparison.row(comparison.rows(), one), soft_wrap=True)
    head, shown = (line.split("\t") for line in out.getvalue().splitlines())
    cells = dict(zip(head, shown, strict=True))
    assert cells["verdict"] == "slower" and cells["B as fast"] == f"{one.ratio:.3f}x"


def test_incorrect_kernels_are_not_timed(kernels):
    found = run("softmax.native", f"{kernels}:rough")
    (one,) = found.rows
    assert found.exit_code == 5 and one.verdict == "wrong" and one.ratio is None
    assert one.why.startswith("B: y: ")
    found = run(f"{kernels}:fails", "softmax.native")
    (one,) = found.rows
    assert found.exit_code == 5 and one.verdict == "error"
    assert one.why == "A: ArithmeticError: no softmax today"


def test_functions_are_called_as_judge_calls_them(kernels, steady):
    assert run("softmax.native", f"{kernels}:last").verdict == "same"
    assert run("softmax.native", f"{kernels}:named").verdict == "same"
    if GPU:  # the case below is too small for its clock
        return
    (one,) = run("softmax.native", f"{kernels}:last", case="4x3x64-f32-dim=-2").rows
    assert (one.verdict, one.why) == ("untimed", "B: it takes no dim, which is -2 here")


@pytest.mark.skipif(GPU, reason="a GPU times no empty case")
def test_a_call_that_a_rung_does_not_take(kernels):
    """An empty tensor launches nothing."""
    found = run("softmax.native", "softmax.manual", case="3x0-f32-dim=-1")
    (one,) = found.rows
    assert found.exit_code == 3 and one.verdict == "untimed"
    assert one.why == "B: an empty row has no largest element"


@pytest.mark.long
@pytest.mark.skipif(GPU, reason="there is a GPU to time on")
def test_without_a_gpu_kernels_are_compiled_side_by_side():
    found = run("softmax.cuda_warp", "softmax.triton_row", case="4096x768-bf16-dim=-1")
    assert found.exit_code == 3
    assert found.rows[0].why == "A: needs a GPU to be timed; B: needs a GPU to be timed"
    (facts,) = found.facts
    assert facts.a[0]["kernel"].startswith("softmax_fwd_warp")
    assert facts.b[0]["kernel"] == "softmax_fwd_row"
    assert all(side[0]["resources"]["registers"] > 0 for side in (facts.a, facts.b))
    table = comparison.facts(facts, "one", "other")
    assert {"registers", "spills", "occupancy"} <= {row[1].plain for row in table.rows}
    json.dumps(found.as_json())


MISTAKES = {
    "rung": ("softmax.nothing", "softmax.native", "softmax has no rung 'nothing'"),
    "operator": ("sofmax.native", "softmax.native", "there is no operator 'sofmax'"),
    "two operators": ("softmax.native", "gelu.native", "computes gelu"),
    "commit": ("softmax@nowhere", "softmax", "has no such commit"),
    "half a commit": ("@HEAD", "softmax", "only one of them names an operator"),
    "file": ("softmax.native", "nowhere.py:f", "there is no file nowhere.py"),
}


@pytest.mark.parametrize(("a", "b", "said"), MISTAKES.values(), ids=MISTAKES.keys())
def test_names_that_refer_to_nothing(a, b, said):
    with pytest.raises((UsageError, UnknownOperator), match=re.escape(said)):
        operands.pairs(a, b, None, ())


def test_names_of_functions(kernels):
    with pytest.raises(UsageError, match="--as: name the operator"):
        operands.pairs(f"{kernels}:good", f"{kernels}:slow", None, ())
    with pytest.raises(UsageError, match="has no function 'number'"):
        operands.pairs("softmax.native", f"{kernels}:number", None, ())
    with pytest.raises(UsageError, match="--op: is for two whole commits"):
        operands.pairs("softmax.native", "softmax.manual", None, ("gelu",))
    ((a, b),) = operands.pairs(f"{kernels}:good", f"{kernels}:slow", "softmax", ())
    assert a.operator == b.operator == "softmax"


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """A repository with this package in two commits; in the second softmax's native is slow."""
    root = tmp_path_factory.mktemp("history")
    package = Path(kernelwright.__file__).parent
    target = root / "src" / "kernelwright"

    def git(*words):
        who = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
        subprocess.run(["git", "-C", root, *who, *words], check=True, capture_output=True)

    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(package, target, ignore=ignored)
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    rungs = target / "ops" / "reduce" / "softmax" / "torch_rungs.py"
    text = rungs.read_text()
    slow = text.replace(
        "def native(x, dim):\n",
        "def native(x, dim):\n    for _ in range(20):\n        torch.softmax(x, dim)\n",
    )
    assert slow != text
    rungs.write_text(slow)
    git("commit", "-q", "-am", "second")
    return root


COMMITS = """
import json, sys
sys.path.append(sys.argv[1])
from test_compare import SMALL, counted
from kernelwright.machine import clock
clock.measure = counted
from kernelwright.workbench.compare import compare, operands
from kernelwright.dispatch import ladder
pairs = operands.pairs("@HEAD~1", "@HEAD", None, ())
print([a.operator for a, _ in pairs])
pairs = operands.pairs("softmax.native@HEAD~1", "softmax.native@HEAD", None, ())
found = compare.compare(pairs, names=("A", "B"), cases=[SMALL], quick=True)
back = operands.pairs("softmax.native@HEAD", "softmax.native@HEAD~1", None, ())
again = compare.compare(back, names=("A", "B"), cases=[SMALL], quick=True)
print(json.dumps([found.as_json(), again.as_json()]))
print(sorted(m for m in sys.modules if m.startswith("kernelwright_at_") and "." not in m))
import importlib
from kernelwright.dispatch import ladders, proven_on
from kernelwright.workbench.compare import git_version
then = importlib.import_module(git_version.package(git_version.resolve("HEAD~1")) + ".dispatch")
def proven(ladders, proven_on):
    return [f"{x.name}.{r.name}" for x in ladders() for r in x.rungs if proven_on(x, r)]
now, before = proven(ladders, proven_on), proven(then.ladders, then.proven_on)
print(len(now), now == before)
"""


@pytest.mark.long
def test_commits_are_timed_in_one_process(history):
    done = subprocess.run(
        [sys.executable, "-c", COMMITS, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(history / "src"), "HOME": str(history)},
    )
    assert done.returncode == 0, done.stderr
    changed, results, modules, proven = done.stdout.splitlines()
    count, same = proven.split()
    assert int(count) > 100 and same == "True", "what is proven there serves from there"
    assert changed == "['softmax']"  # softmax.backward, in the same file, has not changed
    slower, faster = json.loads(results)
    assert (slower["verdict"], slower["exit"]) == ("slower", 1)
    assert (faster["verdict"], faster["exit"]) == ("faster", 0)
    assert modules.count("kernelwright_at_") == 2
    left = subprocess.run(
        ["git", "-C", history, "worktree", "list"], capture_output=True, text=True, check=True
    )
    assert len(left.stdout.splitlines()) == 1


def test_another_schema_is_no_comparison(monkeypatch):
    class Other:
        name = "softmax"
        operator = type("O", (), {"schema": "(Tensor x) -> (Tensor y)"})
        names = ("native",)

        def rung(self, name):
            return name

    house = type("House", (), {"ladders": staticmethod(lambda: [Other()])})
    monkeypatch.setattr(operands, "_dispatch", lambda package: house)
    with pytest.raises(UsageError, match="its schema is"):
        operands.pairs("softmax.native", "softmax.native", None, ())
    assert ladder("softmax").operator.schema != Other.operator.schema


def test_no_checkout_has_no_commits(monkeypatch, tmp_path):
    git_version.root.cache_clear()
    monkeypatch.setattr(git_version, "PACKAGE", tmp_path)
    with pytest.raises(UsageError, match="is not a git checkout"):
        git_version.root()
    git_version.root.cache_clear()


@pytest.mark.skipif(GPU, reason="a GPU times other cases")
def test_the_command(capfd):
    words = ["compare", "gelu.native", "gelu.manual", "--case", CASE, "--quick", "--json"]
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    out = json.loads(capfd.readouterr().out)
    assert out["exit"] == stopped.value.code == {"slower": 1, "same": 0}.get(out["verdict"], 4)
    assert [r["case"] for r in out["rows"]] == [CASE]


# The documents


def commands(text):
    """Every kernelwright command in a text, as words; variables are not replaced."""
    found = re.findall(r"(?:^|\s|`)(?:\.venv/bin/)?kernelwright ([a-z][^\n`>|]*)", text)
    return [shlex.split(line, comments=True) for line in found]


def parse(words):
    """Parse with the command's own parser; raises if a command or an option does not exist."""
    group = typer.main.get_command(cli.app)
    name, *rest = words
    assert name in group.commands, f"there is no command {name}"
    return group.commands[name].make_context(name, rest).params


@pytest.mark.parametrize("document", ["compare.md", "exercises.md"])
def test_the_commands_of_the_documents_are_there(document):
    text = (DOCS / document).read_text()
    lines = "\n".join(line for line in text.splitlines() if line.startswith("    kernelwright"))
    found = commands(lines) + [w for block in workflows(text) for w in commands(scripts(block))]
    assert len(found) >= 3
    for words in found:
        parse(words)


def workflows(text):
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.S)]


def scripts(workflow):
    steps = [s for job in workflow["jobs"].values() for s in job["steps"]]
    return "\n".join(s["run"] for s in steps if "run" in s)


def test_the_recipe_is_a_workflow():
    (flow,) = workflows((DOCS / "compare.md").read_text())
    assert "pull_request" in flow[True]  # YAML 1.1 reads `on` as true
    assert flow["permissions"] == {"contents": "read"}
    verify, compared = flow["jobs"]["verify"], flow["jobs"]["compare"]
    assert compared["needs"] == "verify" and "gpu" in compared["runs-on"]
    assert "head.repo.full_name == github.repository" in compared["if"]
    (checkout,) = [s for s in compared["steps"] if "checkout" in s.get("uses", "")]
    assert checkout["with"]["fetch-depth"] == 0
    for job in (verify, compared):
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert "uses" not in step or re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
    assert ["verify"] in commands(scripts({"jobs": {"verify": verify}}))
    ((_, a, b, *_),) = [
        w for w in commands(scripts({"jobs": {"c": compared}})) if w[0] == "compare"
    ]
    assert (a, b) == ("@$BASE", ".")
    assert [w for w in commands(scripts({"jobs": {"c": compared}})) if "--record" in w]
    base = next(s["env"]["BASE"] for s in compared["steps"] if "env" in s)
    assert base == "${{ github.event.pull_request.base.sha }}"


@pytest.mark.parametrize(("code", "fails"), [(0, 0), (1, 1), (4, 0), (5, 5), (3, 3)])
def test_the_recipes_script_fails_where_it_should(code, fails, tmp_path):
    (flow,) = workflows((DOCS / "compare.md").read_text())
    step = next(s for s in flow["jobs"]["compare"]["steps"] if "env" in s)
    command = tmp_path / ".venv" / "bin" / "kernelwright"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nprintf "%s " "$@"\nexit {code}\n')
    command.chmod(0o755)
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "BASE": "abc"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == fails, done.stderr
    assert (tmp_path / "compare.json").read_text() == "compare @abc . --json "
    assert ("::warning::" in done.stdout) == (code == 4)
