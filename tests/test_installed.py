"""The wheel, installed outside the checkout, as a user gets it."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import torch

from kernelwright.cli import app
from support.paths import ROOT

PROGRAM = """
__global__ void f(int *x) { x[threadIdx.x] = threadIdx.x; }
int main() {
  int *x, y;
  cudaMalloc(&x, 32 * sizeof(int));
  f<<<1, 32>>>(x);
  cudaMemcpy(&y, x + 31, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(x);
  return y != 31;
}
"""
CASE = "67108864-bf16-list=one"
#: Writes the records that `tune` and `verify` write on a GPU.
OWN = """
import json
import kernelwright.ops.every
from kernelwright.contract import H200
from kernelwright.dispatch import ladder, source_hash
from kernelwright.dispatch.selection import tables_of
from kernelwright.workbench.bench import tune
from kernelwright.workbench.records import ledger, records

softmax = ladder("softmax")
rung = softmax.rung("triton_row")
result = tune.TuneResult("softmax", H200.capability, tune.sources(softmax))
result.buckets = {"mine": {"rung": rung.name, "configs": {rung.name: rung.configs[-1]}},
                  "gone": {"rung": "triton_gone", "configs": {"triton_gone": {}}}}
result.sources["triton_online"] = "another source"
result.buckets["stale"] = {"rung": "triton_online", "configs": {"triton_online": {}}}
print(result.write(tables_of(softmax)))
passed = [records.Record("softmax", rung.name, "*", "my-gpu", "run", "pass", config,
                         source_hash(softmax, rung)) for config in rung.configs]
print(records.save(passed, {"run": "run", "machine": "my-gpu"}))
ledger.write_proven()
"""
READ = """
import kernelwright.ops.every
from kernelwright.contract import H200
from kernelwright.dispatch import ladder, proven_on
from kernelwright.dispatch.selection import tuned_table

softmax = ladder("softmax")
table = tuned_table(softmax, H200)
print(table["mine"]["rung"], sorted({"gone", "stale"} & {*table}), len(table) > 1)
print(*proven_on(softmax, softmax.rung("triton_row")))
"""


def sources(folder):
    """A copy of this checkout, because a build writes to it."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "records"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, folder)
    return folder


def build(source, folder):
    """The wheel of a folder."""
    pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", folder, source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpacked_sdist(source, folder):
    """The folder of an unpacked source distribution of a folder."""
    program = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", program, folder], cwd=source, check=True, capture_output=True
    )
    (packed,) = folder.glob("*.tar.gz")
    with tarfile.open(packed) as tar:
        tar.extractall(folder, filter="data")
    return packed.with_name(packed.name.removesuffix(".tar.gz"))


def names(wheel):
    return set(zipfile.ZipFile(wheel).namelist())


def install(wheel, folder):
    """The Python of an environment with the wheel and access to the packages installed here."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    here = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    lines = (f"import site; site.addsitedir({p!r})\n" for p in here)
    (packages(folder) / "here.pth").write_text("".join(lines))
    return python


def pip(*words):
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *words], check=True)


def packages(folder):
    return Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))


def files(folder):
    return {p: p.stat().st_mtime_ns for p in folder.rglob("*")}


@pytest.fixture
def user(tmp_path):
    """Runs `kernelwright`, or its Python, like a user with an empty home directory."""
    python = install(build(sources(tmp_path / "source"), tmp_path), tmp_path / "venv")
    home = tmp_path / "home"
    home.mkdir()
    ours = ("PYTHON", "KW_", "XDG_", "TRITON_INTERPRET", "NUMBA_ENABLE_CUDASIM")
    env = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    env |= {"HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*words, program="kernelwright"):
        command = [python.with_name(program), *words]
        done = subprocess.run(command, cwd=home, env=env, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


TOOLS = (".py", ".clang-format")  # what the wheel has anyway, and what only developers need


def test_package_data_covers_every_file_of_the_source_tree():
    """A file without a pattern is missing from the wheel, and only its users notice."""
    tracked = subprocess.run(
        ["git", "ls-files", "src/kernelwright"], cwd=ROOT, text=True, capture_output=True
    ).stdout.split()
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-data"
    ]
    covered = {
        file
        for package, patterns in data.items()
        for pattern in patterns
        for file in (ROOT / "src" / ("" if package == "*" else package.replace(".", "/"))).glob(
            f"**/{pattern}" if package == "*" else pattern
        )
    }
    sources = [ROOT / file for file in tracked if not file.endswith(TOOLS)]
    assert not [str(file) for file in sources if file.is_file() and file not in covered]


@pytest.mark.long
def test_a_wheel_and_a_wheel_of_an_sdist_have_the_records(tmp_path):
    source = sources(tmp_path / "source")
    (sdist := tmp_path / "sdist").mkdir()
    wheel = names(build(unpacked_sdist(source, sdist), sdist))
    assert wheel == names(build(source, tmp_path))
    records = {str(p.relative_to(ROOT)) for p in (ROOT / "records").rglob("*.json*")}
    shipped = {n.removeprefix("kernelwright/data/") for n in wheel if "/data/records/" in n}
    assert shipped == records and "records/nvidia-h200/softmax.jsonl" in records


#: A short call of each command, by which it needs its own files; the help alone where it needs a
#: GPU, a debugger, minutes, or packages that are not installed.
COMMANDS = {
    "list": ["softmax"],
    "verify": ["relu.native"],
    "bench": ["get_total_norm", "--quick", "--case", CASE],
    "tune": ["--help"],
    "compare": ["relu.manual", "relu.native", "--quick", "--case", "5x33-f32"],
    "inspect": ["gelu.triton_block"],
    "dissect": ["sum.cuda_shuffle"],
    "debug": ["--help"],
    "profile": ["--help"],
    "judge": ["kernel.py:f", "--as", "relu", "--case", "5x33-f32"],
    "run": ["program.cu"],
    "new": ["square", "--into", "."],
    "extension": ["gelu.cuda_vec16", "-o", "square_extension"],
    "learn": [],
    "exercise": [],
    "train": ["--steps", "2", "--eval-batches", "1", "--out", "run"],
    "generate": ["run", "a", "--tokens", "3"],
    "serve": ["--help"],
    "bench-serve": ["run", "--requests", "2"],
    "env": ["--no-roofs"],
    "ledger": [],
    "layout": ["(8,8):(8,1)"],
    "export": ["--help"],
    "report": [],
}


@pytest.mark.long
def test_what_a_user_gets(user, tmp_path):
    package, home = packages(tmp_path / "venv") / "kernelwright", tmp_path / "home"
    assert (package / "py.typed").is_file()
    source = ROOT / "src" / "kernelwright"
    skipped = ("__pycache__", ".egg-info", ".clang-format")
    assert {str(p.relative_to(source)) for p in source.rglob("*")
            if p.is_file() and not any(s in str(p) for s in skipped)} <= {
        str(p.relative_to(package)) for p in package.rglob("*")
    }  # fmt: skip
    (home / "program.cu").write_text(PROGRAM)
    (home / "kernel.py").write_text("import torch\n\n\ndef f(x):\n    return torch.relu(x)\n")
    assert set(COMMANDS) == {c.name for c in app.registered_commands}
    for command, words in COMMANDS.items():
        user(command, *words)
    before = files(package)
    own = home / ".local/share/kernelwright/records"

    backends = json.loads(user("env", "--no-roofs", "--json"))["backends"]
    assert backends["torch"] is None
    operators = json.loads(user("list", "--json"))["operators"]
    assert {"softmax", "sum"} <= {o["name"] for o in operators}
    if not torch.cuda.is_available():  # because other tests share its memory
        assert "1 config: 1 pass" in user("verify", "relu.native", "--record")
    said = user("bench", "get_total_norm", "--quick", "--record", "--case", CASE)
    (written,) = own.rglob("get_total_norm.jsonl")
    assert f"recorded in {written.parent}\n" in said
    assert "MB, opens offline" in user("report")
    assert (home / "report.html").is_file()

    table, folder = user("-c", OWN, program="python").split()
    assert Path(table) == own / "tuned" / "softmax.sm_90.json"
    assert Path(folder) == own / "my-gpu"
    assert user("-c", READ, program="python").splitlines() == [
        "triton_row [] True", "nvidia-h200 my-gpu"
    ]  # fmt: skip
    rows = json.loads(user("ledger", "--json"))["rows"]
    (row,) = (r for r in rows if (r["operator"], r["rung"]) == ("softmax", "triton_row"))
    assert row["proven"] == ["my-gpu", "nvidia-h200"]
    assert files(package) == before  # an installed package is never written to
