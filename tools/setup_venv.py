"""Makes a virtual environment for `make`: prints what it downloads, then installs a tested set.

    python tools/setup_venv.py
    python tools/setup_venv.py --set oldest --into .venv-oldest test

Any Python 3.11 or newer can run it, without installed packages. If that Python already has a
PyTorch with CUDA, .venv uses its packages, and only missing ones are downloaded (offline: none).
Otherwise the newest tested set is installed for which pip finds a CPU build of PyTorch, or, if
there is none, the newest set, whose PyTorch is a CUDA build.
"""

from __future__ import annotations

import argparse
import re
import shutil
import site
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETS = ("newest", "middle", "oldest")  # in constraints/
# The wheels that a CUDA toolkit on the machine stands in for.
TOOLKIT = {"nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl", "nvidia-cuda-crt"}
# MB of the wheels, Linux x86-64; the rest together.
EXTRAS = ["train", "test", "lint", "export", "serve"]
TORCH_CPU = {"torch (CPU)": 192}
TORCH_CUDA = {"torch (CUDA)": 539, "its CUDA libraries": 2150}
OTHERS = {"triton": 286, "NVRTC and CUDA headers": 97, "numba and numpy": 80,
          "transformers and accelerate": 24, "ONNX, its runtime": 38, "the rest": 54}  # fmt: skip


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - whatever python3 is runs this file
        sys.exit(f"python3 is {sys.version.split()[0]}: Kernelwright needs Python 3.11 or newer")
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--set", choices=SETS, help="default: see above")
    parser.add_argument("--into", type=Path, default=ROOT / ".venv", help="default: .venv")
    parser.add_argument(
        "extras", nargs="*", default=EXTRAS, help="default: train test lint export serve"
    )
    asked = parser.parse_args()
    cuda = _cuda_torch() if asked.set is None else None
    if cuda:
        print(f"python3 has PyTorch {cuda} with CUDA: .venv uses it and adds only what is missing.")
        _beside_the_systems(asked.into, asked.extras)
    else:
        _fresh(asked.into, asked.extras, asked.set)
    (asked.into / "ready").touch()


def constraints(name: str) -> Path:
    """The file of a tested set."""
    return ROOT / "constraints" / f"{name}.txt"


def requirements(extras: list[str]) -> list[str]:
    """What pyproject.toml requires, of these extras too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["dependencies"] + [
        r for extra in extras for r in project["optional-dependencies"][extra]
    ]


def _cuda_torch() -> str | None:
    probe = "import torch; print(torch.__version__ if torch.version.cuda else '')"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    return done.stdout.strip() or None if done.returncode == 0 else None


def _fresh(venv: Path, extras: list[str], name: str | None) -> None:
    _run(sys.executable, "-m", "venv", str(venv))
    set_name = next((n for n in ([name] if name else SETS) if _has_a_cpu_build(venv, n)), None)
    name = set_name or name or "newest"
    sizes = {**(TORCH_CPU if set_name else TORCH_CUDA), **OTHERS}
    listed = ", ".join(f"{what} {mb} MB" for what, mb in sizes.items())
    print(f"Making {venv.name} of constraints/{name}.txt: downloads about {sum(sizes.values())} MB")
    print(f"({listed}); {2.5 if set_name else 6.5} GB on disk.")
    if not set_name:
        print("pip finds no CPU build of PyTorch; README.md says how to get that, 2.5 GB smaller.")
    sys.stdout.flush()
    _run(*_pip(venv), "-c", str(constraints(name)), "-e", f"{ROOT}[{','.join(extras)}]")


def _has_a_cpu_build(venv: Path, name: str) -> bool:
    """Whether pip finds the set's torch as a CPU build, which has "+cpu" in its version. On a Mac
    there is no other."""
    torch = next(r for r in constraints(name).read_text().splitlines() if _name(r) == "torch")
    asked = [*_pip(venv), "--dry-run", "--no-deps", f"{torch}+cpu"]
    return sys.platform != "linux" or not subprocess.run(asked, capture_output=True).returncode


def _beside_the_systems(venv: Path, extras: list[str]) -> None:
    _run(sys.executable, "-m", "venv", str(venv))
    # --system-site-packages would miss those of a python3 that is in a virtual environment itself
    for own in venv.glob("lib/python*/site-packages"):
        (own / "beside.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    # setuptools stands beside a system's torch, so that this needs no network
    _run(*_pip(venv), "--no-build-isolation", "--no-deps", "-e", str(ROOT))
    missing = _missing(venv, extras)
    if shutil.which("nvcc") or Path("/usr/local/cuda/bin/nvcc").exists():
        missing = [m for m in missing if _name(m) not in TOOLKIT]
    if not missing:
        return
    print(f"Downloading what is missing: {', '.join(missing)}", flush=True)
    if subprocess.run([*_pip(venv), "--retries", "1", "--timeout", "10", *missing]).returncode:
        print("They could not be installed: `kernelwright env` says what that leaves out.")


def _missing(venv: Path, extras: list[str]) -> list[str]:
    probe = "import sys; from importlib import metadata; metadata.version(sys.argv[1])"
    python = str(venv / "bin" / "python")
    return [
        r.split(";")[0].strip()
        for r in requirements(extras)
        if subprocess.run([python, "-c", probe, _name(r)], capture_output=True).returncode
    ]


def _pip(venv: Path) -> list[str]:
    python = str(venv / "bin" / "python")
    return [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def _name(requirement: str) -> str:
    return re.split(r"[<>=;\s]", requirement)[0]


def _run(*command: str) -> None:
    done = subprocess.run(command)
    if done.returncode:
        sys.exit(f"failed: {' '.join(command)}")


if __name__ == "__main__":
    main()
