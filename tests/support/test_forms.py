"""The forms of Python and CUDA C++ are equal if, and only if, a change is one of those that they
leave out."""

import ast

import pytest

from kernelwright.support import cuda_form, python_form
from kernelwright.support.imports import Packages


def of_python(text, names=(), compiled=False):
    statements = ast.parse(text).body
    module = python_form.Module(frozenset(names), compiled)
    return python_form.form(statements, module, python_form.messages(statements))


PLAN = """
def plan(gpu, config, x, *rest, **others):
    \"\"\"Says what.\"\"\"
    rows: int = x.rows  # a comment
    block, n = config["block"], cdiv(rows, 4)
    assert n > 0, "no rows"
    if n > LIMIT:
        raise ValueError(f"x: {n} rows")
    def one(k, name):
        return launch(k, name, n, **others)
    return [one(i, "a") for i in range(n) if i not in rest], sorted(x, key=lambda t: t + n), block
"""
KERNEL = """
@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if n > 4:
        a = i
        b = i + 1
    else:
        a, b = i, i
    total = tl.sum(tl.load(x_ptr + i, mask=i < n) + a * b)
    assert total > 0, "total"
    tl.store(x_ptr, total)
"""


def replaced(text, old, new):
    assert old in text, old
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Says what."""', '"""Says why."""'),
        ("# a comment", "# another"),
        ("rows: int =", "rows ="),
        ("rows", "lines"),  # also in a message
        ('"no rows"', '"none"'),
        ('f"x: {n} rows"', 'f"x: has {n + 1} rows, at most {LIMIT}"'),
        ("rest", "left"),
        ("others", "more"),
        ("(k, name", "(j, name"),
        ("i in range(n) if i not", "n in range(n) if n not"),
    ],
)
def test_python_that_does_the_same(old, new):
    changed = replaced(PLAN, old, new)
    if old == "rows":
        changed = changed.replace("x.lines", "x.rows")
    if old == "(k, name":
        changed = changed.replace("launch(k,", "launch(j,")
    if old.startswith("i in"):
        changed = changed.replace("one(i,", "one(n,")
    assert of_python(changed) == of_python(PLAN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('["block"]', '["warps"]'),
        ("cdiv(rows, 4)", "cdiv(rows, 8)"),
        ("cdiv(rows, 4)", "cdiv(block, 4)"),
        ("cdiv(rows, 4)", "cdiv(4, rows)"),
        ("cdiv", "rows"),  # a local name instead of a global one
        ("block, n = ", "n, block = "),
        ("block, n = ", "block, x = "),
        ("n > 0,", "n >= 0,"),
        ("n > LIMIT", "n > MOST"),
        ("ValueError", "TypeError"),
        ("config", "options"),  # callers may name it
        ("x.rows", "x.columns"),
        ("(n) if", "(block) if"),
        ("launch(k, name, n", "launch(name, k, n"),
        ("t: t + n", "u: u + n"),  # what calls it may name it
        ("**others)", "others)"),
        ("def one(k, name):", "def one(k, n):"),  # hides the other
        ('one(i, "a")', 'one(i, name="a")'),
        ("range(n)", "range(LIMIT)"),
    ],
)
def test_python_that_does_something_else(old, new):
    assert of_python(replaced(PLAN, old, new)) != of_python(PLAN)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = a\n    y = b\n    return x, y", "x = b\n    y = a\n    return x, y"),
        ("x = a\n    y = b\n    return x, y", "x = a\n    y = b\n    return y, x"),
        ("x = a\n    return locals()", "y = a\n    return locals()"),
        ("x = a\n    return f'{x=}'", "y = a\n    return f'{y=}'"),
        ("global x\n    x = a", "global y\n    y = a"),
        ("import math as x\n    return x", "import math as y\n    return y"),
        ("return [x for x in a], x", "return [y for y in a], y"),  # a global name
        ("class C:\n        x = a\n    return C", "class C:\n        y = a\n    return C"),
        ("def g(x):\n        return x\n    return g", "def g(y):\n        return y\n    return g"),
        ("x = a\n    def x():\n        pass\n    return x", "y = a\n    def y():\n        pass\n"),
    ],
)
def test_names_that_differ(one, other):
    assert of_python(f"def f(a, b):\n    {one}\n") != of_python(f"def f(a, b):\n    {other}\n")


@pytest.mark.parametrize("decorator", ["numba.njit", "triton.autotune", "script"])
def test_other_decorators_may_read_every_name(decorator):
    one = f"@{decorator}\ndef f(a):\n    x = a\n    return x\n"
    assert of_python(one) != of_python(one.replace("x", "y"))
    plain = one.partition("\n")[2]
    assert of_python(plain) == of_python(plain.replace("x", "y"))
    assert of_python(plain, compiled=True) != of_python(plain.replace("x", "y"), compiled=True)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("total", "sums", False),  # the message of an assert is in a debug build
        ("i,", "i,", True),
        ("a, b = i, i", "a, c = i, i", False),
        ("tl.store(x_ptr, total)", "tl.store(x_ptr, b)", False),
        ("BLOCK", "WIDE", False),
        ("n >", "x_ptr >", False),
        (": tl.constexpr", "", False),
        ("total = ", "total: tl.constexpr = ", False),
    ],
)
def test_kernels_of_triton(old, new, same):
    assert (of_python(replaced(KERNEL, old, new)) == of_python(KERNEL)) == same
    renamed = KERNEL.replace("i = tl", "at = tl").replace("i <", "at <").replace("+ i,", "+ at,")
    renamed = (
        renamed.replace("a = i", "a = at").replace("= i +", "= at +").replace("i, i", "at, at")
    )
    assert of_python(renamed) == of_python(KERNEL)
    # both branches set it: the order of the names is that of the values
    assert of_python(KERNEL.replace("b", "c")) != of_python(KERNEL)
    assert of_python(renamed, ["at"]) != of_python(KERNEL)  # without a value, it is the module's


REASONS = {
    "toy/__init__.py": "",
    "toy/plans.py": "from .limits import rows\n\ndef plan(x):\n    return rows(x)\n",
    "toy/limits.py": """from . import words

def rows(x):
    return x.rows or "no rows"

def fits(x):
    if why := too_long(x):
        return why
    if kind(x) == "of four":
        return f"x: {words.spelled(x)}"
    return small(x) or _none(x)

def too_long(x):
    why = "the rows are too long"
    return why if rows(x) else None

def kind(x):
    return "of four" if x else "of five"

def small(x):
    return None if x else "x is small"

def _none(x):
    return table(text(x))

def text(x):
    return "some text"

def table(x):
    return None
""",
    "toy/words.py": "def spelled(x):\n    return str(x)\n",
}


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ('f"x: {words.spelled(x)}"', '"x: does not fit"', True),
        ('"the rows are too long"', 'f"rows of {x} bytes"', True),
        ('else "x is small"', 'else "x: is too small"', True),
        ('else "x is small"', 'else ""', False),
        ('else "x is small"', "else None", False),
        ('"no rows"', '"none"', False),  # the plan reads it
        ('== "of four"', '== "of six"', False),
        ('else "of five"', 'else "of four"', False),
        ('"some text"', '"other text"', False),
        ("if rows(x) else", "if x else", False),
    ],
)
def test_reasons_that_nothing_reads(tmp_path, old, new, same):
    for name, text in REASONS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def texts():
        packages = Packages({"toy": tmp_path / "toy"})
        return packages.texts([("toy.plans", ("plan",))], [("toy.limits", ("fits",))])

    before = texts()
    path = tmp_path / "toy/limits.py"
    path.write_text(replaced(REASONS["toy/limits.py"], old, new))
    assert (texts() == before) == same


def test_messages_count_where_exceptions_are_caught(tmp_path):
    (tmp_path / "toy").mkdir()
    path = tmp_path / "toy/__init__.py"
    text = 'def plan(x):\n    return other(x)\n\ndef other(x):\n    raise ValueError("x")\n'
    caught = text.replace(
        "    return other(x)", "    try:\n        return other(x)\n    except ValueError as e:\n"
        "        return str(e)", 1)  # fmt: skip
    for code, same in ((text, True), (caught, False)):
        found = []
        for message in ("x", "y"):
            path.write_text(code.replace('"x"', f'"{message}"'))
            found.append(Packages({"toy": path.parent}).texts([("toy", ("plan",))]))
        assert (found[0] == found[1]) == same


# --- CUDA C++ ----------------------------------------------------------------------------------

SOURCE = """
#define TWICE(value) (2 * value)
constexpr int kWide = 4;
struct Row { int at, columns; };
template <typename T> __global__ void __launch_bounds__(128)
    scale(const T *__restrict__ x, T *y, long long n, Row row) {
  static_assert(kWide == 4, "four");
  __shared__ float parts[kWide];
  const long long first = blockIdx.x * 128, step = gridDim.x;
  kw::Vec<T, kWide> raw[kWide];
  // a comment
#pragma unroll
  for (int i = 0; i < kWide; ++i)
    for (T &v : raw[i].v) v = x[first + i];
  for (int i = threadIdx.x; i < n; i += step) { float sum = parts[i]; y[i] = sum + row.columns; }
  auto add = [&](float a, float b) { return a + b; };
  if (first) { const float max = add(row.at, kWide); y[first] = max(max, 1.0f); }
  y[0] = max(y[1], y[2]);
}
inline int macros(int n) { return TWICE(n); }
inline int asserts(int n) { assert(n > 0); return n; }
inline int branches(int n) {
#ifdef WIDE
  n = 2;
#endif
  return n;
}
"""


def of_cuda(tmp_path, text):
    path = tmp_path / "source.cu"
    path.write_text(text)
    return cuda_form.codes([path])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("// a comment", "// another"),
        ("(const T *__restrict__ x, T *y,", "(\n  const T *__restrict__ x,\n  T *y,"),
        ('"four"', '"a vector has four"'),
        (', "four"', ""),
        ("first", "start"),
        ("step", "stride"),
        ("raw", "values"),
        ("long long n, Row row) {", "long long columns, Row row) {"),
        ("float sum = parts[i]; y[i] = sum", "float n = parts[i]; y[i] = n"),
        ("float max = add(row.at, kWide); y[first] = max(max,", "float m = add(row.at, kWide); y[first] = m(m,"),  # noqa: E501
        ("(float a, float b) { return a + b", "(float b, float a) { return b + a"),
        ("T &v : raw[i].v) v", "T &w : raw[i].v) w"),
    ],
)  # fmt: skip
def test_cuda_that_compiles_to_the_same(tmp_path, old, new):
    changed = replaced(SOURCE, old, new)
    if new.startswith("long long columns"):
        changed = changed.replace("i < n; i += step", "i < columns; i += step")
    assert of_cuda(tmp_path, changed) == of_cuda(tmp_path, SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kWide = 4", "kWide = 8"),
        ("kWide = 4", "kSize = 4"),
        ("kWide == 4", "kWide >= 4"),
        ("TWICE", "DOUBLED"),
        ("TWICE(value) (2 * value)", "TWICE(u) (2 * u)"),  # directives are kept as they are
        ("parts", "sums"),  # a symbol of the machine code
        ("row.at", "row.columns"),
        ("int at, columns", "int columns, at"),
        ("blockIdx", "threadIdx"),
        ("x[first + i]", "x[step + i]"),
        ("i < kWide", "i < kTall"),
        ("return a + b", "return b + a"),
        ("float a, float b) {", "float a, float n) {"),
        ("float sum = parts[i]; y[i] = sum", "float i = parts[i]; y[i] = i"),
        ("const float max =", "const float min ="),
        ("y[0] = max(", "y[0] = min("),
        ("T *y", "T *z"),
        ("macros(int n) { return TWICE(n)", "macros(int m) { return TWICE(m)"),
        ("(int n) { assert(n > 0); return n", "(int m) { assert(m > 0); return m"),
        ("branches(int n)", "branches(int m)"),
        ("threadIdx.x; i", "threadIdx.y; i"),
        ("#pragma unroll", "#pragma unroll 1"),
        ("++i", "+ +i"),
    ],
)
def test_cuda_that_may_compile_to_something_else(tmp_path, old, new):
    assert of_cuda(tmp_path, replaced(SOURCE, old, new)) != of_cuda(tmp_path, SOURCE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int x = a; int y = b; f(x, y);", "int x = b; int y = a; f(x, y);"),
        ("int x = a, y = b; f(x, y);", "int x = a, y = b; f(y, x);"),
        ("{ int x = a; } f(x);", "{ int y = a; } f(y);"),  # a global name
        ("for (int x = 0; x < a; ++x) f(x); f(x);", "for (int y = 0; y < a; ++y) f(y); f(y);"),
        ("int x = a; { int y = b; f(x); }", "int x = a; { int x = b; f(x); }"),
        ("int x[a]; f(x);", "int y[b]; f(y);"),
        ("int q = g<T, a, c>(b); f(a);", "int q = g<T, b, c>(b); f(b);"),
        ("int x; asm(\"%[x]\" : [x] \"=r\"(x));", "int y; asm(\"%[x]\" : [x] \"=r\"(y));"),
        ("extern __shared__ int x[]; f(x);", "extern __shared__ int y[]; f(y);"),
        ("auto g = [&](int x) { return x; }; f(x);", "auto g = [&](int y) { return y; }; f(y);"),
        ("do { int x = a; } while (x);", "do { int y = a; } while (y);"),
        ("for (auto x : x) f(x);", "for (auto y : y) f(y);"),
        ("s.x = a; int x = b;", "s.y = a; int y = b;"),
        ("int x = a; struct S { int x; } s; f(s.x);", "int y = a; struct S { int y; } s; f(s.x);"),
        ("goto x; x: f(a);", "goto y; y: f(a);"),
    ],
)  # fmt: skip
def test_names_of_scopes_that_differ(tmp_path, one, other):
    text = "void g(int a, int b) {{ {} }}"
    assert of_cuda(tmp_path, text.format(one)) != of_cuda(tmp_path, text.format(other))
