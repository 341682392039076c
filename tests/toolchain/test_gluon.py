"""A Gluon kernel is a TritonKernel that is compiled and inspected, and not interpreted."""

import json
import subprocess
import sys

import pytest

from kernelwright.workbench.scaffold import scaffold
from support.planning import no_gpu

pytestmark = no_gpu

KERNEL = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def fourth_fwd_block(x_ptr, y_ptr, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    i = gl.program_id(0).to(gl.int64) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    inside = i < n
    x = gl.load(x_ptr + i, mask=inside).to(gl.float32)
    gl.store(y_ptr + i, (x * x).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def fourth_bwd_block"""
SCRIPT = """
import json, sys
from pathlib import Path
from kernelwright.dispatch import ladder
from kernelwright.workbench import inspection
from kernelwright.workbench.scaffold import scaffold
from kernelwright.workbench.verify import cuda_kernels, verify
cases = cuda_kernels.thorough_cases
cuda_kernels.thorough_cases = lambda ladder: cases(ladder)[:1]  # each takes a process of its own
cuda_kernels.GPUS = cuda_kernels.GPUS[:2]
scaffold.load(Path(sys.argv[1]))
rows = verify.verify(["fourth.triton_block"]).rows
found = inspection.inspect(ladder("fourth"), "triton_block", arch="sm_90a")[0]
print(json.dumps([[r.outcome, r.why] for r in rows] + [found.as_json()]))
print(found.sass.count("STG"))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gluon") / "fourth"
    scaffold.new("fourth", folder.parent)
    module = folder / "triton_block.py"
    text = module.read_text()
    first = text.index("@triton.jit")
    second = text.index("@triton.jit\ndef fourth_bwd_block")
    rest = text[second + len("@triton.jit\ndef fourth_bwd_block") :]
    module.write_text(text[:first] + KERNEL.lstrip() + rest)
    heuristics = folder / "heuristics.py"
    heuristics.write_text(heuristics.read_text() + "\n\nCONFIGS = CONFIGS[:1]\n")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    document, stores = done.stdout.splitlines()[-2:]
    *rows, inspection = json.loads(document)
    return rows, inspection, int(stores)


def test_verify_says_that_gluon_is_compiled(told):
    rows, _, _ = told
    assert len(rows) == 1
    for outcome, why in rows:
        assert outcome == "compiled", why
        assert why.startswith("Gluon has no interpreter; kernels compiled here: ")
        assert "for sm_90a" in why and "for sm_80" in why and why.endswith("unproven")


def test_inspect_shows_a_gluon_kernel(told):
    _, inspection, stores = told
    assert inspection["kernel"] == "fourth_fwd_block"
    assert inspection["resources"]["registers"] > 0 and inspection["resources"]["spill_loads"] == 0
    assert stores > 0
