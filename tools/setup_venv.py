"""Makes .venv for `make`: says what it downloads, then installs the tested set.

Run by any Python 3.11 or newer, with nothing installed. Where that Python already has a PyTorch
with CUDA, .venv sees it (and whatever else is installed there), and only what is missing is
downloaded; offline, nothing is.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
# The wheels that a CUDA toolkit on the machine stands in for.
TOOLKIT = {"nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl", "nvidia-cuda-crt"}
# MB of the wheels, Linux x86-64; the rest together.
SIZES = {"torch (CPU)": 192, "triton": 188, "NVRTC and CUDA headers": 97, "numba and numpy": 80,
         "transformers and accelerate": 24, "the rest": 54}  # fmt: skip


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - whatever python3 is runs this file
        sys.exit(f"python3 is {sys.version.split()[0]}: Kernelwright needs Python 3.11 or newer")
    cuda = _cuda_torch()
    extras = ",".join(sys.argv[1:]) or "test,lint"
    if cuda:
        print(f"python3 has PyTorch {cuda} with CUDA: .venv uses it and adds only what is missing.")
        _beside_the_systems(extras)
    else:
        _fresh(extras)
    (VENV / "ready").touch()


def _cuda_torch() -> str | None:
    probe = "import torch; print(torch.__version__ if torch.version.cuda else '')"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    return done.stdout.strip() or None if done.returncode == 0 else None


def _fresh(extras: str) -> None:
    sizes = ", ".join(f"{name} {mb} MB" for name, mb in SIZES.items())
    print(f"Making .venv: downloads about {sum(SIZES.values())} MB ({sizes});")
    print("2.4 GB on disk. Where pip's index has no CPU build of torch, it is 3 GB more:")
    print("PIP_EXTRA_INDEX_URL may name PyTorch's own CPU index.", flush=True)
    _run(sys.executable, "-m", "venv", str(VENV))
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(*pip, "-c", str(ROOT / "constraints.txt"), "-e", f"{ROOT}[{extras}]")


def _beside_the_systems(extras: str) -> None:
    _run(sys.executable, "-m", "venv", "--system-site-packages", str(VENV))
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # setuptools stands beside a system's torch, so that this needs no network
    _run(*pip, "--no-build-isolation", "--no-deps", "-e", str(ROOT))
    missing = _missing(extras.split(","))
    if shutil.which("nvcc") or Path("/usr/local/cuda/bin/nvcc").exists():
        missing = [m for m in missing if _name(m) not in TOOLKIT]
    if not missing:
        return
    print(f"Downloading what is missing: {', '.join(missing)}", flush=True)
    if subprocess.run([*pip, "--retries", "1", "--timeout", "10", *missing]).returncode:
        print("They could not be installed: `kernelwright env` says what that leaves out.")


def _missing(extras: list[str]) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    probe = "import sys; from importlib import metadata; metadata.version(sys.argv[1])"
    return [
        w.split(";")[0].strip()
        for w in wanted
        if subprocess.run([PYTHON, "-c", probe, _name(w)], capture_output=True).returncode
    ]


def _name(requirement: str) -> str:
    return re.split(r"[<>=;\s]", requirement)[0]


def _run(*command: str) -> None:
    done = subprocess.run(command)
    if done.returncode:
        sys.exit(f"failed: {' '.join(command)}")


if __name__ == "__main__":
    main()
