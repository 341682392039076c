"""The table of CUDA's built-ins: what is derived from it, and that nothing else lists them."""

import ast
import importlib
import re
import sys

from kernelwright.emulator import program
from kernelwright.emulator.compiler import HERE
from kernelwright.emulator.program import cuda_builtins
from kernelwright.emulator.program.cuda_builtins import TABLE, Builtin, pattern, rows

EVERY = pattern(TABLE)
#: Kinds of names of which there are many. Instructions of PTX have names such as those of C.
LISTED = pattern(rows("warp", "barrier", "fence", "wait", "atomic", "math", "thread", "launch"))
#: Of the compilers that build the emulator, not of CUDA.
OF_THE_COMPILER = re.compile(
    r"__(?:builtin|atomic|attribute)_*\w*|__align__|__launch_bounds__|__maxnreg__"
)
KERNEL = """
__global__ void k(int *x, int n) {
  __shared__ int s[64];
  for (int i = 0; i < __twice(n); ++i) {
    s[threadIdx.x] = x[threadIdx.x] + i;
    __syncthreads();
    x[threadIdx.x] = s[63 - threadIdx.x];
    __syncthreads();
  }
}
"""


def test_a_row_is_all_that_a_function_of_numbers_needs(monkeypatch):
    def reason() -> str | None:
        """Why the kernel gets no loops, by an analysis that is loaded anew."""
        monkeypatch.setattr(program, "loops", None)  # what this replaces is restored later
        for module in [m for m in sys.modules if m.startswith(f"{program.__name__}.loops")]:
            monkeypatch.delitem(sys.modules, module)
        loops = importlib.import_module(f"{program.__name__}.loops")
        reasons: dict[str, str | None] = {}
        loops.with_loops(KERNEL, loops.ProgramIndex([KERNEL]), reasons)
        return reasons["k"]

    assert reason() == "a barrier under a condition of the threads (for)"
    row = Builtin("__twice", "math", uniform=True)
    monkeypatch.setattr(cuda_builtins, "TABLE", [*TABLE, row])
    assert reason() is None


def test_the_functions_of_the_headers_are_in_the_table():
    headers = [*(HERE / "include" / "emulator").glob("*.h"), *HERE.rglob("device_api.h")]
    for path in headers:
        names = set(re.findall(r"\b(__[a-z]\w+|atomic[A-Z]\w*)\s*\(", path.read_text()))
        unknown = {n for n in names if not EVERY.fullmatch(n) and not OF_THE_COMPILER.fullmatch(n)}
        assert not unknown, path.name


def test_operations_of_a_warp_run_in_loops():
    text = (HERE / "warp_operations.h").read_text()
    operations = re.findall(r"ROW\((\w+_sync),", text)
    loops = pattern(row for row in rows("warp") if row.loops)
    assert len(set(operations)) == 14
    assert all(loops.fullmatch(f"__{name}") for name in operations)


def test_no_other_module_lists_built_ins():
    for path in HERE.rglob("*.py"):
        if path.name == "cuda_builtins.py":
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                strings = [s.value for s in ast.walk(node) if isinstance(s, ast.Constant)]
                words = {w for s in strings if isinstance(s, str) for w in re.findall(r"\w+", s)}
                known = {
                    w for w in words if LISTED.fullmatch(w) and re.search("__.*[^_]$|[A-Z]", w)
                }
                assert len(known) < 2, f"{path.name}:{node.lineno} lists {sorted(known)}"
