"""The emulator's checks: each planted fault found by its check, with lines and threads, and silence
where nothing is wrong."""

import pytest

from kernelwright.toolchain import emulator
from wrong.planted import PLANTED

pytestmark = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))


@pytest.mark.parametrize("planted", PLANTED, ids=lambda p: p.kernel)
@pytest.mark.parametrize("seed", [1, 2, 77])
def test_a_planted_fault_is_named_with_its_lines_and_threads(planted, seed):
    found = planted.found(seed)
    if not planted.check:
        assert found == []
        return
    lines = {planted.line(begins) for begins in planted.lines}
    told = [f for f in found if f.check == planted.check and set(f.lines) == lines]
    assert told, found
    assert any(planted.says in f.text for f in told), told
