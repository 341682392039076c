"""The hash of what compiles: what it covers, and what it leaves out."""

import pytest

from kernelwright.contract import Ladder, Operator, Rung
from kernelwright.dispatch import ladders, proof


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A ladder of one Triton and one CUDA rung in a folder of their own."""
    folder = tmp_path / "ops" / "toy"
    (tmp_path / "include" / "kw").mkdir(parents=True)
    folder.mkdir(parents=True)
    monkeypatch.setattr(proof, "ROOT", tmp_path)
    monkeypatch.setattr(proof, "INCLUDE", tmp_path / "include")
    files = {
        "ops/toy/__init__.py": "",
        "ops/toy/rung.py": '"""Docs."""\nfrom .shared import f\n\ndef plan():\n    return f(1)\n',
        "ops/toy/shared.py": "def f(x):\n    return x\n",
        "ops/toy/kernel.cu": '#include "kw/a.cuh"\n// a comment\nint main;\n',
        "include/kw/a.cuh": "#include <kw/b.cuh>\nint a;\n",
        "include/kw/b.cuh": "#ifdef __CUDA_ARCH__\nint b;\n#else\nint cpu;\n#endif\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def digest(**edits):
        for name, text in edits.items():
            (tmp_path / name).write_text(text)
        triton = Rung("triton", "triton", "rung:plan", "", sources=("kernel.cu",))
        operator = Operator("toy", "(Tensor x) -> ()", None, None, (), None, None)
        native = Rung("native", "torch", "m:f", "")
        ladder = Ladder(operator, (triton, native), "kernelwright.ops.toy", None, None)
        ladder.__dict__["folder"] = folder
        return proof.source_hash(ladder, triton)

    digest.files = files
    return digest


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ops/toy/rung.py", "Docs.", "Other words."),
        ("ops/toy/rung.py", "return f(1)", "return f(1)  # why"),
        ("ops/toy/shared.py", "def f(x):\n", 'def f(x):\n    """What."""\n'),
        ("ops/toy/kernel.cu", "a comment", "another"),
        ("ops/toy/kernel.cu", "int main;", "/* two\nlines */ int   main;"),
        ("include/kw/b.cuh", "int b;", "// b\nint b;"),
        ("include/kw/b.cuh", "int cpu", "long cpu"),
        ("include/kw/b.cuh", "#else\nint cpu;\n", ""),
    ],
)
def test_hash_ignores_comments_and_docstrings(sources, name, old, new):
    assert sources() == sources(**{name: sources.files[name].replace(old, new)})


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ops/toy/rung.py", "f(1)", "f(2)"),
        ("ops/toy/shared.py", "return x", "return -x"),
        ("ops/toy/kernel.cu", "int main", "long main"),
        ("include/kw/a.cuh", "int a", "long a"),
        ("include/kw/b.cuh", "int b", "long b"),
    ],
)
def test_hash_covers_code_imports_and_headers(sources, name, old, new):
    assert sources() != sources(**{name: sources.files[name].replace(old, new)})


def test_hash_is_the_same_in_every_python(sources):
    """The text that is hashed names no field that a syntax tree has in some versions only."""
    tree = proof.ast.parse("@jit\ndef f(x, *, n: int = 4) -> None:\n    return g(x)[0]\n")
    assert proof._dump(tree) == (
        "Module(body=[FunctionDef(name='f', args=arguments(args=[arg(arg='x')], "
        "kwonlyargs=[arg(arg='n', annotation=Name(id='int', ctx=Load()))], "
        "kw_defaults=[Constant(value=4)]), body=[Return(value=Subscript(value=Call("
        "func=Name(id='g', ctx=Load()), args=[Name(id='x', ctx=Load())]), "
        "slice=Constant(value=0), ctx=Load()))], decorator_list=[Name(id='jit', ctx=Load())], "
        "returns=Constant())])"
    )
    # what 3.12 adds where there is nothing
    function = tree.body[0]
    function.type_params, function._fields = [], (*function._fields, "type_params")
    assert "type_params" not in proof._dump(tree)


def test_every_rung_has_a_hash_and_its_kernels_are_in_it():
    for x in ladders():
        for rung in x.rungs:
            assert len(proof.source_hash(x, rung)) == 16
            names = {p.name for p in proof.sources(x, rung)}
            assert set(rung.sources) <= names
