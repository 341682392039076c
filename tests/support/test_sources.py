"""The scanner of what a Python function and a C++ source depend on."""

import ast

import pytest

from kernelwright.support import includes, python_form
from kernelwright.support.errors import CompileError
from kernelwright.support.imports import CannotFollow, Packages

FILES = {
    "toy/__init__.py": "from .shape import columns\nfrom . import grids\nLIMIT = 3\nOTHER = 4\n",
    "toy/entry.py": '''"""Docs."""
import math

import toy.tables
import toy.words as w
from toy import LIMIT, columns as c, grids

from . import shape
from .deep import inner


def plan(gpu, x, spare=c):
    """What."""
    from .late import late

    rows = shape.rows(x)
    return inner.depth(x), grids.grid(rows), toy.tables.TABLE[0], late(w.say), LIMIT, math.pi


def other(x):
    return shape.unused(x) + columns(x)
''',
    "toy/shape.py": """from .signs import sign

UNIT = 8

def rows(x):
    return x * UNIT

def columns(x):
    return sign(x)

def unused(grids):
    return grids.of
""",
    "toy/signs.py": "def sign(x):\n    return x > 0\n",
    "toy/grids.py": "def grid(n):\n    return n + 1\n\ndef of(n):\n    return n\n",
    "toy/tables.py": "from .signs import sign\nTABLE = []\nTABLE.append(2)\nTEXT = 'sign'\n",
    "toy/words.py": "def say(rows):\n    return [rows for rows in rows]\n",
    "toy/late.py": "try:\n    import fast as f\nexcept ImportError:\n    f = None\ncount = 5\n\n"
    "def late(x):\n    global count\n    count += 1\n    return f(x)\n",
    "toy/deep/__init__.py": "",
    "toy/deep/inner.py": "from ..signs import sign\n\nclass Depth:\n    at: sign = 0\n\n"
    "def depth(x) -> sign:\n    return Depth()\n",
    "toy/lazy.py": "def __getattr__(name):\n    return made(name)\n\n"
    "def made(name):\n    return 1\n",
}


@pytest.fixture
def toy(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "toy"


def reached(folder, *roots):
    packages = Packages({"toy": folder})
    return packages.reached(roots or [("toy.entry", ("plan",))])


def edited(folder, name, old, new):
    path = folder.parent / name
    assert FILES[name].count(old), (name, old)
    path.write_text(FILES[name].replace(old, new))


def test_what_a_function_names_by_any_import_is_part_of_it(toy):
    names = {module.removeprefix("toy."): set() for module, _ in reached(toy)}
    for module, name in reached(toy):
        names[module.removeprefix("toy.")].add(name)
    assert names == {
        "entry": {"plan", "math", "toy", "w", "LIMIT", "c", "grids", "shape", "inner"},
        "toy": {"LIMIT", "columns", "grids"},
        "shape": {"rows", "UNIT", "columns", "sign"},
        "signs": {"sign"},
        "grids": {"grid"},
        "tables": {"TABLE", ""},
        "words": {"say"},
        "late": {"late", "f", "count"},
        "deep.inner": {"depth", "Depth"},
    }


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("toy/entry.py", "pi", "e"),
        ("toy/entry.py", "shape.rows", "shape.columns"),
        ("toy/entry.py", "import LIMIT", "import OTHER as LIMIT"),
        ("toy/entry.py", "import math", "import cmath as math"),
        ("toy/__init__.py", "LIMIT = 3", "LIMIT = 4"),
        ("toy/__init__.py", "import columns", "import rows as columns"),
        ("toy/shape.py", "UNIT = 8", "UNIT = 9"),
        ("toy/signs.py", "x > 0", "x >= 0"),
        ("toy/grids.py", "n + 1", "n + 2"),
        ("toy/tables.py", "append(2)", "append(3)"),
        ("toy/late.py", "import fast", "import faster"),
        ("toy/late.py", "f(x)", "f(-x)"),
        ("toy/deep/inner.py", "at: sign = 0", "at: sign = 1"),
        ("toy/words.py", "[rows for", "[-rows for"),
    ],
)
def test_a_changed_token_is_seen(toy, name, old, new):
    before = reached(toy)
    edited(toy, name, old, new)
    assert reached(toy) != before


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("toy/entry.py", '"""Docs."""', '"""Other words."""'),
        ("toy/entry.py", '"""What."""', '"""Why."""  # a comment'),
        ("toy/entry.py", "    rows = shape.rows(x)", "\n    rows = shape.rows(\n        x\n    )"),
        ("toy/entry.py", "shape.unused(x)", "shape.unused(-x)"),
        ("toy/__init__.py", "OTHER = 4", "OTHER = 5"),
        ("toy/shape.py", "grids.of", "grids.off"),
        ("toy/grids.py", "return n\n", "return -n\n"),
        ("toy/tables.py", "'sign'", "'none'"),
    ],
)
def test_docstrings_and_other_definitions_are_not_hashed(toy, name, old, new):
    before = reached(toy)
    edited(toy, name, old, new)
    assert reached(toy) == before


def test_a_name_of_a_module_getattr_leads_to_that_function(toy):
    found = reached(toy, ("toy.lazy", ("anything",)))
    assert {name for _, name in found} == {"__getattr__", "made"}


def test_a_module_that_is_a_value_is_part_of_it_whole(toy):
    (toy / "whole.py").write_text("from . import grids\nEVERY = vars(grids)\n")
    found = {name for module, name in reached(toy, ("toy.whole", ("EVERY",))) if "grids" in module}
    assert found == {"grid", "of"}


def test_a_closed_module_is_not_followed_but_those_below_it_are(toy):
    closed = Packages({"toy": toy}, closed=["toy", "toy.grids"])
    modules = {module for module, _ in closed.reached([("toy.entry", ("plan",))])}
    assert "toy.shape" in modules and not modules & {"toy", "toy.grids"}


def test_the_name_of_a_package_does_not_count(toy):
    one = Packages({"toy": toy}).texts([("toy.entry", ("plan",))])
    for path in toy.rglob("*.py"):
        path.write_text(path.read_text().replace("toy", "toy_then"))
    assert Packages({"toy_then": toy}).texts([("toy_then.entry", ("plan",))]) == one


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("from .shape import *\n\ndef f():\n    return rows(1)\n", "from toy.shape import [*]"),
        ("def f():\n    from .shape import missing\n    return missing\n", "not define missing"),
        ("import importlib as i\n\ndef f(x):\n    return i.import_module(x)\n", "i.import_module"),
        ("def f():\n    return globals()['g']\n", "globals: write the name"),
        ("def g():\n    return 1\n", "does not define f"),
    ],
)
def test_what_cannot_be_followed_is_refused(toy, code, what):
    (toy / "loose.py").write_text(code)
    with pytest.raises(CannotFollow, match=what):
        reached(toy, ("toy.loose", ("f",)))


def test_code_is_the_same_text_in_every_python():
    """The text contains no field that syntax trees have only in some versions."""
    tree = ast.parse("@jit\ndef f(x, *, n: int = 4) -> None:\n    return g(x)[0]\n")
    assert python_form.text(tree) == (
        "Module(body=[FunctionDef(name='f', args=arguments(args=[arg(arg='x')], "
        "kwonlyargs=[arg(arg='n', annotation=Name(id='int', ctx=Load()))], "
        "kw_defaults=[Constant(value=4)]), body=[Return(value=Subscript(value=Call("
        "func=Name(id='g', ctx=Load()), args=[Name(id='x', ctx=Load())]), "
        "slice=Constant(value=0), ctx=Load()))], decorator_list=[Name(id='jit', ctx=Load())], "
        "returns=Constant())])"
    )
    # what 3.12 adds if there is nothing
    function = tree.body[0]
    function.type_params, function._fields = [], (*function._fields, "type_params")
    assert "type_params" not in python_form.text(tree)


# --- C++ ---------------------------------------------------------------------------------------

HEADERS = {
    "op/kernel.cu": '#include "near.cuh"\n#  include <kw/a.cuh>\n#include <cuda_fp16.h>\n'
    '// #include "no.cuh"\n/*\n#include "no.cuh"\n*/\n',
    "op/near.cuh": '#pragma once\n#include "parts/part.cuh"\n#include "kw/b.cuh"\n',
    "op/no.cuh": "",
    "op/parts/part.cuh": '#include "same.cuh"\n#if 0\n#include <far.cuh>\n#endif\n',
    "op/parts/same.cuh": "",
    "op/same.cuh": "",
    "op/far.cuh": '#include "near.cuh"\n',
    "shared/kw/a.cuh": '#include "b.cuh"\n',
    "shared/kw/b.cuh": "",
}


@pytest.fixture
def headers(tmp_path):
    for name, text in HEADERS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_headers_are_found_where_a_compiler_finds_them(headers):
    found = includes.files(headers / "op" / "kernel.cu", headers / "shared")
    assert [str(p.relative_to(headers)) for p in found] == [
        "op/kernel.cu",
        "op/near.cuh",
        "op/parts/part.cuh",
        "op/parts/same.cuh",
        "op/far.cuh",
        "shared/kw/b.cuh",
        "shared/kw/a.cuh",
    ]


def test_a_header_that_a_macro_names_is_refused(headers):
    (headers / "op" / "near.cuh").write_text("#define WHICH <kw/a.cuh>\n#include WHICH\n")
    with pytest.raises(CompileError, match=r"near\.cuh: #include WHICH: write the header's name"):
        includes.files(headers / "op" / "kernel.cu")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("int a; // b", "int a;", True),
        ("int /* b\n */ a;", "int   a;\n", True),
        ("#ifdef __CUDA_ARCH__\nint b;\n#else\nint cpu;\n#endif\n", "int b;\n", True),
        ('asm("// a");', 'asm("// b");', False),
        ('char *c = "a  b";', 'char *c = "a b";', False),
        ("char c = '\"'; // a", "char c = '\"'; // b", True),
        ("int a = 1'000; // a", "int a = 1'000; // '", True),
        ("#define A\nB", "#define A B", False),
        ("#define A \\\n B", "#define A B", True),
        ("#if A\n#endif\nint a;", "#if A\nint a;\n#endif", False),
        ("int a;", "long a;", False),
    ],
)
def test_code_is_what_a_compiler_reads(tmp_path, one, other, same):
    files = tmp_path / "one.cuh", tmp_path / "other.cuh"
    for path, text in zip(files, (one, other), strict=True):
        path.write_text(text)
    assert (includes.code(files[0]) == includes.code(files[1])) == same
