"""The bits of wgmma's sums, compared with those that a GPU has given."""

import subprocess
import sys

import pytest

from kernelwright import emulator
from support.paths import FIXTURES, ROOT

pytestmark = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))

RECORDS = sorted((FIXTURES / "emulated").glob("wgmma_h*.txt"))


@pytest.mark.long
@pytest.mark.skipif(not RECORDS, reason="no record of a GPU's wgmma on this machine")
def test_wgmma_has_the_bits_of_a_gpu():
    """The records are those of tools/wgmma_probe.cu on an H100 or H200."""
    code = (
        "import sys; from pathlib import Path; from kernelwright.emulator import program\n"
        f"sys.exit(program.run(Path({str(ROOT / 'tools' / 'wgmma_probe.cu')!r})).code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    emulated = [line.strip() for line in done.stdout.splitlines()]
    for record in RECORDS:
        tiles = zip(emulated, record.read_text().splitlines(), strict=True)
        other = [a.rpartition(" ")[0] for a, b in tiles if a != b]
        assert not other, f"{record.name}: {len(other)} tiles differ: {', '.join(other[:20])}"
