"""One kernel of a file with a launch file, for verify --check, dissect and debug."""

import io
import shutil
import subprocess
import sys

import pytest

from kernelwright import emulator
from kernelwright.cli import own_kernels
from kernelwright.cli.render import programs, terminal
from kernelwright.emulator.checks import CHECKS
from kernelwright.support.errors import UsageError
from kernelwright.workbench.run_program import one_kernel, run_program
from support.paths import FIXTURES

SOURCE = FIXTURES / "judged" / "rows.cu"
watched = pytest.mark.skipif(bool(emulator.missing("watched")), reason="nothing is watched here")
LAUNCH = """
import torch
tensors = {"x": torch.arange(8 * 66.0).reshape(8, 66), "y": ((8,), torch.float32)}
def launch(x, y):
    return {"grid": 8, "block": 256, "args": ["x", "y", x.shape[1]]}
"""


@pytest.fixture
def launch(tmp_path):
    file = tmp_path / "launch.py"
    file.write_text(LAUNCH)
    return file


@pytest.mark.long
@watched
def test_a_fault_is_found_and_named(launch, tmp_path):
    program, arguments = one_kernel.program_of(f"{SOURCE}:row_sum_past_the_end", launch, tmp_path)
    result = run_program.emulated(program, arguments, "h200", tuple(CHECKS), 1)
    texts = [f.text for f in result.findings]
    assert any(t.startswith("rows.cu:") and "after x" in t for t in texts), texts


@pytest.mark.long
@watched
def test_costs_fit_a_terminal_of_80_columns(launch, tmp_path):
    program, arguments = one_kernel.program_of(f"{SOURCE}:row_sum_by_four", launch, tmp_path)
    costs = run_program.dissect(program, arguments, "h200")
    console = terminal.Output(None)
    console.file, console._force_terminal, console.width = io.StringIO(), True, 80
    for part in programs.after(costs, False):
        console.print(part)
    text = console.file.getvalue()
    assert "load x, 4 B" in text
    assert "store y, 4 B" in text
    assert max(map(len, text.splitlines())) <= 80, text


def test_what_is_wrong_is_said(launch, tmp_path):
    def said(call, *arguments):
        with pytest.raises(UsageError) as caught:
            call(*arguments)
        return str(caught.value)

    of = one_kernel.program_of
    assert "has no kernel 'other'" in said(of, f"{SOURCE}:other", launch, tmp_path)
    assert "rows.cu needs a launch file" in said(of, f"{SOURCE}:row_sum", None, tmp_path)
    assert "there is no file" in said(of, f"{SOURCE}:row_sum", tmp_path / "no", tmp_path)
    assert "needs --check" in said(own_kernels.check, f"{SOURCE}:row_sum", launch, (), None, False)
    assert "FILE.cu:KERNEL" in said(own_kernels.named, ["sum"], launch)
    launch.write_text("def launch(x):\n    return {}\n")
    assert "needs `tensors`" in said(of, f"{SOURCE}:row_sum", launch, tmp_path)
    launch.write_text(LAUNCH.replace('"y", x', '"z", x'))
    assert "'z' is not a tensor" in said(of, f"{SOURCE}:row_sum", launch, tmp_path)


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("gdb"), reason="there is no gdb")
def test_the_debugger_stops_in_the_first_thread(launch):
    code = (
        "import os, sys; from pathlib import Path; from kernelwright.cli import own_kernels\n"
        "commands = ('p threadIdx', 'p columns', 'cuda threads', 'kill')\n"
        "after = [w for c in commands for w in ('-ex', c)]\n"
        "real = os.execvpe\n"
        "def then(file, line, environment):\n"
        "    at = line.index('--args')\n"
        "    real(file, [*line[:at], *after, *line[at:]], environment)\n"
        "os.execvpe = then\n"
        "own_kernels.debug(sys.argv[1], Path(sys.argv[2]), ('-batch',))"
    )
    line = [sys.executable, "-c", code, f"{SOURCE}:row_sum", str(launch)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert "row_sum (x=" in done.stdout, done.stdout + done.stderr
    assert "x = 0" in done.stdout
    assert "= 66" in done.stdout
