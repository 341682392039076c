"""Checks that each tested set can be installed from the public package index alone.

    python tools/resolve_sets.py
    python tools/resolve_sets.py --python 3.13

pip resolves and installs nothing. It reads neither its configuration nor the environment
(`--isolated`), so that no index or wheel of this machine's own takes part; only a certificate
bundle named in PIP_CERT is passed on. With --python another version's wheels are asked for; markers
are evaluated for the Python that runs this.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from setup_venv import EXTRAS, SETS, constraints, requirements

# Older ones download every wheel, some 3 GB a set, to read what it requires.
PIP = "pip==26.3"
INSTALL = ("-m", "pip", "install", "--isolated", "--quiet", "--disable-pip-version-check",
           "--root-user-action=ignore")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    parser.add_argument("--python", default=here, help=f"default: {here}")
    python = parser.parse_args().python
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        install = [sys.executable, *INSTALL]
        if certificate := os.environ.get("PIP_CERT"):
            install += ["--cert", certificate]
        subprocess.run([*install, "--no-deps", "--target", folder, PIP], check=True)
        running = {name: _resolving(install, name, python, Path(folder)) for name in SETS}
        for name, pip in running.items():
            said, _ = pip.communicate()
            if pip.returncode:
                failed.append(name)
            verdict = f"does not resolve\n{said}" if pip.returncode else "resolves"
            print(f"constraints/{name}.txt, Python {python}: {verdict}", flush=True)
    return 1 if failed else 0


def _resolving(install: list[str], name: str, python: str, folder: Path) -> subprocess.Popen[str]:
    """pip of `folder`, resolving a set as if nothing were installed."""
    command = [*install, "--dry-run", "--ignore-installed", "--use-feature=fast-deps"]
    # pip asks for both with --python-version; nothing is written
    command += ["--python-version", python, "--only-binary=:all:", "--target", str(folder / "none")]
    command += ["--constraint", str(constraints(name)), *requirements(EXTRAS)]
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


if __name__ == "__main__":
    sys.exit(main())
