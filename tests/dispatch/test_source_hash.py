"""The source hash covers everything that determines a kernel's machine code, and nothing else."""

import ast
import gc
import json
import sys
from functools import cache
from itertools import islice

import pytest

from kernelwright.contract import H200
from kernelwright.dispatch import entry_of, ladder, ladders, proof, source_hash
from kernelwright.support.imports import CannotFollow, Packages
from kernelwright.support.settings import PACKAGE
from kernelwright.workbench.inspection import specs_of
from support import another

GPU_RUNGS = [(x, r) for x in ladders() for r in x.rungs if r.is_gpu]
WITH_PLANS = [x for x in ladders() if any(r.is_gpu for r in x.rungs)]
each_ladder = pytest.mark.parametrize("lad", WITH_PLANS, ids=lambda x: x.name)
FEW = 2  # cases of each config; most others take the same path through a plan


CHANGED = "kernelwright_changed"


@cache
def reached(lad, rung):
    """The Python definitions in a rung's hash, by module and name as they are imported."""
    packages = proof._packages(proof.PACKAGE, lad.package)
    shared = proof._shared_roots(proof.PACKAGE, rung.backend) if rung.is_gpu else []
    return set(packages.reached([proof._entry(lad, rung), *shared], proof._supports(lad, rung)))


@cache
def specs(lad, case):
    return specs_of(lad, case)


@cache
def calls(lad, rung):
    """Supported calls from both ends of a rung's list of cases, with each of its configs."""
    cases = [c for c in lad.operator.cases if c.numel]

    def taken(some):
        for case in some:
            if not rung.supports or rung.supports(H200, **specs(lad, case)) is None:
                yield specs(lad, case)

    some = [*islice(taken(cases), FEW), *islice(taken(reversed(cases)), FEW)]
    return [(config, call) for config in rung.configs for call in some]


@each_ladder
def test_every_function_that_a_plan_runs_is_in_the_hash(lad):
    for rung in (r for r in lad.rungs if r.is_gpu):
        ran = set()

        def note(frame, event, argument, ran=ran):
            path, name = frame.f_code.co_filename, frame.f_code.co_qualname.split(".")[0]
            if event == "call" and path.startswith(str(PACKAGE)) and name[0] != "<":
                ran.add((frame.f_globals["__name__"], name))

        entry = entry_of(lad, rung)
        for config, call in calls(lad, rung):
            gc.disable()  # it would call finalizers of other tests
            sys.setprofile(note)
            try:
                entry(H200, config, **call)
                if rung.supports:
                    rung.supports(H200, **call)
            finally:
                sys.setprofile(None)
                gc.enable()
        assert ran, rung.name
        assert ran - reached(lad, rung) == set(), rung.name


@each_ladder
def test_every_source_that_a_plan_compiles_is_in_the_hash(lad):
    for rung in (r for r in lad.rungs if r.backend == "cuda"):
        planned = {
            step.kernel.source.resolve()
            for config, call in calls(lad, rung)
            for step in entry_of(lad, rung)(H200, config, **call).launches
        }
        assert planned <= {(lad.folder / source).resolve() for source in rung.sources}


@each_ladder
def test_no_plan_is_made_from_a_closed_module(lad):
    """Another operator's `__init__` is not followed: only PyTorch rungs use names from it."""
    open_to_all = Packages({proof.PACKAGE: PACKAGE})
    for rung in (r for r in lad.rungs if r.is_gpu):
        roots = [proof._entry(lad, rung)], proof._supports(lad, rung)
        assert set(open_to_all.reached(*roots)) <= reached(lad, rung)


# --- what lapses -------------------------------------------------------------------------------


@pytest.fixture(scope="session")  # a module's is made again after tests of other modules
def then(tmp_path_factory):
    """The package under another name, so that its files can be changed to test whether a hash is
    computed from them."""
    return another.made(tmp_path_factory.mktemp("then"), CHANGED)


def computed(lad, rung):
    """The hash of a rung of the other package, from its current files."""
    proof._packages.cache_clear()
    proof._shared.cache_clear()
    theirs = sys.modules[f"{CHANGED}.dispatch"].ladder(lad.name)
    return proof.computed_hash(theirs, theirs.rung(rung.name), CHANGED)


def with_more(path, names):
    """The text of a module with an additional token in a definition of one of these names."""
    text = path.read_text()
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in names:
            indent = " " * node.body[-1].col_offset
            lines.insert(node.end_lineno, f"{indent}0")
            return "\n".join(lines) + "\n"
        targets = ast.walk(node.targets[0]) if isinstance(node, ast.Assign) else ()
        name = next((t.id for t in targets if isinstance(t, ast.Name) and t.id in names), "")
        if name:
            lines.insert(node.end_lineno, f"{name} = 0")
            return "\n".join(lines) + "\n"
    aliases = (
        a for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom) for a in n.names
    )
    a = next(a for a in aliases if a.name in names)  # re-exported names: another name is
    line = lines[a.lineno - 1]
    lines[a.lineno - 1] = f"{line[: a.col_offset]}{a.name}_ as {line[a.col_offset :]}"
    return "\n".join(lines) + "\n"


def files_of_rungs():
    """Each file that some GPU rung depends on, such a rung, and the names that it uses."""
    found = {}
    for lad, rung in GPU_RUNGS:
        packages = proof._packages(proof.PACKAGE, lad.package)
        files = {path: set() for path in proof._files(lad, rung, proof.PACKAGE)}
        for module, name in reached(lad, rung):
            files.setdefault(packages.file(module), set()).add(name)
        for path, names in files.items():
            found.setdefault(path.relative_to(PACKAGE), (lad, rung, names))
    return sorted(found.items())


@pytest.mark.parametrize("part", [0, *(pytest.param(i, marks=pytest.mark.long) for i in (1, 2))])
def test_changing_a_file_of_a_plan_removes_the_proof(then, part):
    files, before = files_of_rungs(), {}
    rooms = {path.parts[0] for path, _ in files}
    assert rooms == {"ops", "contract", "toolchain", "support", "include"}
    kept = []
    for path, (lad, rung, names) in files[part::3]:
        before[lad, rung] = before.get((lad, rung)) or computed(lad, rung)
        file = then / path
        text = file.read_text()
        file.write_text(with_more(file, names) if path.suffix == ".py" else f"{text}\nint more;\n")
        try:
            now = computed(lad, rung)
        except CannotFollow:  # the name is no longer defined
            now = ""
        file.write_text(text)
        kept += [str(path)] if now == before[lad, rung] else []
    assert not kept


@pytest.fixture
def edit(then):
    """Change a file of the other package; it is restored after the test."""
    texts = {}

    def change(name, old, new):
        path = then / name
        texts.setdefault(path, path.read_text() if path.exists() else None)
        text = path.read_text() if path.exists() else ""
        assert old in text, (name, old)
        path.write_text(text.replace(old, new) if old else new)

    yield change
    for path, text in texts.items():
        if text is None:
            path.unlink()
        else:
            path.write_text(text)


WARP = "softmax", "cuda_warp"
ROW = "softmax", "triton_row"


@pytest.mark.parametrize(
    ("which", "name", "old", "new"),
    [
        (WARP, "contract/arithmetic.py", "return -(-a // b)", "return a // b + 1"),
        (WARP, "ops/reduce/softmax/tiling.py", "REGISTERS = ", "REGISTERS = 2 * "),
        (WARP, "ops/reduce/softmax/heuristics.py", "def fits_warp(gpu, ", "def fits_warp(g, "),
        (WARP, "toolchain/nvrtc.py", '"-std=c++17", ', '"-std=c++17", "--use_fast_math", '),
        (WARP, "contract/operator.py", 'if major >= 9 else', "if major >= 8 else"),
        (WARP, "contract/signature.py", "return math.prod(self.shape)", "return 1"),
        (WARP, "include/kw/row.cuh", "if (inside)", "if (!inside)"),
        (ROW, "toolchain/build.py", "value % 16 == 0", "value % 8 == 0"),
        (ROW, "toolchain/triton_aot.py", '"num_stages": kernel.num_stages', '"num_stages": 1'),
        (ROW, "contract/plan.py", "num_stages: int = 2", "num_stages: int = 3"),
        (ROW, "ops/_triton/math.py", "-126.0), 126.0)", "-126.0), 127.0)"),
    ],
)  # fmt: skip
def test_changing_a_token_of_a_plan_removes_the_proof(edit, which, name, old, new):
    lad = ladder(which[0])
    before = computed(lad, lad.rung(which[1]))
    edit(name, old, new)
    assert computed(lad, lad.rung(which[1])) != before


@pytest.mark.parametrize(
    ("which", "name", "old", "new"),
    [
        (WARP, "ops/reduce/softmax/cuda.py", '"""Launch plans', '"""Plans'),
        (WARP, "ops/reduce/softmax/cuda.py", "def _naive(side, ", "def _naive(s, "),
        (WARP, "ops/reduce/softmax/cuda.py", "\n\n\ndef _warp(", "\n\n\n# a comment\ndef _warp("),
        (WARP, "ops/reduce/softmax/cuda_warp.cu", "// A warp, or", "// Half of one, or"),
        (WARP, "ops/reduce/softmax/heuristics.py", "def choose_warp(gpu, ", "def choose_warp(g, "),
        (WARP, "contract/arithmetic.py", "LONGEST = 256", "LONGEST = 255"),
        (WARP, "contract/plan.py", "num_stages: int = 2", "num_stages: int = 3"),
        (ROW, "toolchain/nvrtc.py", '"-std=c++17", ', '"-std=c++17", "--use_fast_math", '),
    ],
)
def test_changes_without_effect_on_results_keep_the_proof(edit, which, name, old, new):
    lad = ladder(which[0])
    before = computed(lad, lad.rung(which[1]))
    edit(name, old, new)
    assert computed(lad, lad.rung(which[1])) == before


def test_headers_beside_a_source_and_shared_headers_are_hashed(edit):
    lad = ladder("gelu")
    rung, hashes = lad.rung("cuda_thread"), []

    def step(*change):
        edit(*change)
        hashes.append(computed(lad, rung))

    step(
        "ops/elementwise/gelu/cuda_thread.cu", '#include "kw/', '#include "near.cuh"\n#include "kw/'
    )
    step("ops/elementwise/gelu/near.cuh", "", '#include "kw/far.cuh"\n')
    step("include/kw/far.cuh", "", "int far() { return 1; }\n")
    step("include/kw/far.cuh", "return 1", "return 2")
    assert len(set(hashes)) == 4


def test_the_same_files_under_another_name_have_the_same_hash(then):
    for lad, rung in GPU_RUNGS[::7]:
        assert computed(lad, rung) == source_hash(lad, rung)


def test_a_function_without_a_name_is_refused():
    with pytest.raises(CannotFollow, match="is not bound to a name at the top level of a module"):
        proof._named(lambda gpu: None, "kernelwright.ops.reduce.softmax")


# --- what ships --------------------------------------------------------------------------------


def test_the_shipped_hashes_are_those_of_the_sources():
    computed = {f"{x.name}.{r.name}": source_hash(x, r) for x in ladders() for r in x.rungs}
    assert json.loads(proof.HASHES.read_text()) == computed, "make tables writes them"


def test_an_installed_package_parses_no_source_to_know_what_is_proven(monkeypatch):
    assert proof.CHECKOUT
    monkeypatch.setattr(proof, "CHECKOUT", False)
    monkeypatch.setattr(proof, "computed_hash", None)  # calling it would fail
    monkeypatch.setattr(ast, "parse", None)
    known = json.loads(proof.HASHES.read_text())
    for lad, rung in ((x, r) for x in ladders() for r in x.rungs):
        assert source_hash.__wrapped__(lad, rung) == known[f"{lad.name}.{rung.name}"]
