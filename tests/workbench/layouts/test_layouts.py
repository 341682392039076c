"""The layout calculator: each operation against its definition, and rungs' tiles against the index
formulas in their sources."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.cli import app
from kernelwright.support.errors import UsageError
from kernelwright.workbench.layouts import algebra, picture
from kernelwright.workbench.layouts.algebra import Layout, Swizzle
from kernelwright.workbench.layouts.expression import parse
from kernelwright.workbench.layouts.tiles import TILES
from support.paths import ROOT

POWERS = st.sampled_from((1, 2, 4, 8))


@st.composite
def layouts(draw):
    """Layouts of powers of two, whose sizes and strides often divide each other."""
    n = draw(st.integers(1, 3))
    shape, stride = (tuple(draw(POWERS) for _ in range(n)) for _ in range(2))
    return Layout(shape, stride)


def values(of):
    return [of(i) for i in range(algebra.size(of))]


@given(layouts())
def test_coalesce_keeps_the_function(a):
    assert values(algebra.coalesce(a)) == values(a)


@given(layouts(), layouts())
def test_a_composition_is_one_function_after_the_other(a, b):
    try:
        c = algebra.composition(a, b)
    except UsageError:
        return
    inside = [i for i in range(algebra.size(b)) if b(i) < algebra.size(a)]
    assert [c(i) for i in inside] == [a(b(i)) for i in inside]
    assert algebra.size(c) == algebra.size(b)


@given(layouts(), st.sampled_from((16, 64, 128)))
def test_copies_at_a_complement_fill_all_offsets_once(a, n):
    try:
        rest = algebra.complement(a, n)
    except UsageError:
        return
    both = values(algebra.joined(algebra.coalesce(a), rest))
    assert len(set(both)) == len(both) and set(range(n)) <= set(both)


def test_a_division_has_the_tile_first_and_a_product_has_copies():
    tiled = parse("(16,16):(16,1) / [(4,8):(1,16)]")
    assert [tiled((i, 0)) for i in range(32)] == [
        Layout((16, 16), (16, 1))(r + 16 * c) for c, r in itertools.product(range(8), range(4))
    ]
    copies = parse("(2,2):(1,2) * [3:1]")
    assert [[copies((i, k)) for i in range(4)] for k in range(3)] == [
        [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]
    ]  # fmt: skip


def test_a_swizzle_is_its_own_inverse():
    swizzle = Swizzle(3, 4, 3)
    assert sorted(map(swizzle, range(1024))) == list(range(1024))
    assert all(swizzle(swizzle(i)) == i for i in range(1024))


@pytest.mark.parametrize("name", TILES)
def test_a_tile_is_what_its_kernel_computes(name):
    """The formula stands in the source; C++'s operators mean the same in Python, "/" as "//"."""
    tile = TILES[name]
    source = (ROOT / "src/kernelwright/ops" / tile.source).read_text(encoding="utf-8")
    assert [part for part in tile.written if part not in source] == []
    code = compile(re.sub("/", "//", tile.index), name, "eval")
    for i, row in enumerate(algebra.offsets(parse(tile.text))):
        for j, offset in enumerate(row):
            assert eval(code, {}, {"i": i, "j": j}) == offset * tile.divisor, (i, j)


def banks(of, rows, column):
    return len({of(r + algebra.flat(of.shape)[0] * column) % 32 for r in rows})


def test_padding_and_swizzles_spread_a_column_over_the_banks():
    assert banks(parse(TILES["permute_copy.cuda_tile"].text), range(32), 3) == 1
    assert banks(parse(TILES["permute_copy.cuda_padded"].text), range(32), 3) == 32
    units = parse(TILES["matmul.cuda_mma"].text)
    assert len({units(r + 64 * 5) % 8 for r in range(8)}) == 8  # 8 units of 16 bytes, all banks


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(8,8):(8)", "each size needs one stride"),
        ("(8,8", "instead of )"),
        ("8:1 nonsense", "no part of a layout"),
        ("(4,6):(1,8) o 3:3", "do not divide"),
        ("(2,2):(1,1) o (2,2):(1,1)", "overlap"),
        ("8:1 8:1", "left over"),
        ("complement((2,2):(1,1), 8)", "overlap"),
        ("8:0 o", "instead of a number"),
    ],
)
def test_a_mistake_is_named(text, why):
    with pytest.raises(UsageError, match=re.escape(why)):
        parse(text)


def test_the_command_prints_and_draws(tmp_path, capsys):
    to = tmp_path / "a.svg"
    assert app(["layout", "(2,4):(4,1)", "--picture", str(to)], standalone_mode=False) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["0", "1", "2", "3"], ["4", "5", "6", "7"]
    ]  # fmt: skip
    assert to.read_text() == picture.picture(parse("(2,4):(4,1)"))
    assert to.read_text().count('class="bank"') == 8
    app(["layout"], standalone_mode=False)
    listed = capsys.readouterr().out
    assert [name for name in TILES if name not in listed] == []


def test_the_page_shows_what_the_calculator_prints():
    text = (ROOT / "docs" / "layouts.md").read_text(encoding="utf-8")
    shown = re.findall(r'^\$ kernelwright layout "(.*)"\n(.*)   size (\d+)\n', text, re.M)
    assert len(shown) > 8
    for expression, written, size in shown:
        of = parse(expression)
        assert (str(of), algebra.size(of)) == (written, int(size))
    rows = re.findall(r"^\| `(\w+\.\w+)` \| `([^`]+)` \| `(.*)$", text, re.M)
    assert [(name, layout) for name, layout, _ in rows] == [(n, t.text) for n, t in TILES.items()]
