"""What CONTRIBUTING.md tells to write works as it stands there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import kernelwright
from kernelwright.workbench.scaffold import scaffold

TEXT = (Path(kernelwright.__file__).parents[2] / "CONTRIBUTING.md").read_text()


def blocks():
    """Blocks of code by the file that their first line names."""
    found = re.findall(r"^```\w+\n(?://|#) (\S+?):?(?: [^\n]*)?\n(.*?)^```$", TEXT, re.M | re.S)
    return dict(found)


def test_an_operator_as_scaffolded_and_a_cuda_rung_as_written_are_right(tmp_path):
    scaffold.new("scale", tmp_path)
    folder, written = tmp_path / "scale", blocks()
    init = folder / "__init__.py"
    line = written.pop("__init__.py")
    above = "        rungs.triton("
    assert init.read_text().count(above) == 1
    init.write_text(init.read_text().replace(above, line + above))
    for name, text in written.items():
        (folder / name).write_text(text)
    assert set(written) == {"cuda.py", "cuda_thread.cu"}
    command = [sys.executable, "-m", "kernelwright.cli", "verify", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    rows = json.loads(done.stdout)["rows"]
    outcomes = {(r["operator"], r["rung"]): r["outcome"] for r in rows}
    assert outcomes["scale", "cuda_thread"] == outcomes["scale.backward", "cuda_thread"] == "pass"
    assert {operator for operator, _ in outcomes} == {"scale", "scale.backward"}
    assert set(outcomes.values()) == {"pass"} and done.returncode == 0
