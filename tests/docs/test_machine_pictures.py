"""The pictures of threads and memory: drawn from the current records, and on the pages of both
languages; and the axes of the roofline."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from support.paths import ROOT
from tools import machine_pictures

DOCS = ROOT / "docs"
SHOWN = {
    "threads": ("tour", "first_reduction", "glossary"),
    "memory": ("glossary", "lessons/roofline"),
}


def texts(path):
    return [e.text or "" for e in ElementTree.parse(path).iter() if e.tag.endswith("}text")]


@pytest.mark.parametrize("name", machine_pictures.PICTURES)
def test_a_picture_is_what_the_records_give(name):
    kept = (DOCS / f"{name}.svg").read_text(encoding="utf-8")
    assert kept == machine_pictures.PICTURES[name](), "python -m tools.readme_tables"


@pytest.mark.parametrize("name", SHOWN)
def test_pages_of_both_languages_show_the_same_file(name):
    for page in SHOWN[name]:
        for path in (DOCS / f"{page}.md", DOCS / "zh" / f"{page}.md"):
            files = re.findall(r"!\[[^]]+\]\(([^)]+\.svg)\)", path.read_text(encoding="utf-8"))
            assert DOCS / f"{name}.svg" in [(path.parent / f).resolve() for f in files], path


def test_the_memory_has_a_size_for_each_level_and_only_recorded_bandwidths():
    found = {level.name: level for level in machine_pictures.levels()}
    assert found["Registers"].rates == (), "no record has their bandwidth"
    rates = [rate for level in found.values() for rate, _ in level.rates]
    assert rates == sorted(rates, reverse=True) and len(rates) == 4
    written = texts(DOCS / "memory.svg")
    assert {level.size for level in found.values()} < set(written)
    assert [t for t in written if "TB/s" in t] == [
        f"{rate / 1e3:.2f} TB/s, {what}" for level in found.values() for rate, what in level.rates
    ]


def test_the_thread_of_the_picture_has_the_index_of_the_formula():
    written = texts(DOCS / "threads.svg")
    thread = 2 * 32 + 5
    assert f"threadIdx.x = 2 * 32 + 5 = {thread}" in written
    assert f"  = 1 * 256 + {thread} = {1 * 256 + thread}" in written


@pytest.mark.parametrize(
    ("folder", "across", "up"),
    [
        ("lessons", "arithmetic intensity, FLOP/byte", "the roof, TFLOP/s"),
        ("zh/lessons", "算术强度，FLOP/字节", "上限，TFLOP/s"),
    ],
)
def test_the_roofline_has_axes_with_units_and_ticks(folder, across, up):
    """Who reads the height of the roof at 10 FLOP/byte: the ticks are in proportion."""
    path = DOCS / folder / "roofline.svg"
    assert {across, up} < set(texts(path))
    ticks = [e for e in ElementTree.parse(path).iter() if e.text in ("1", "10", "100", "1,000")]
    xs = [float(e.attrib["x"]) for e in ticks if e.get("text-anchor") == "middle"]
    ys = [float(e.attrib["y"]) for e in ticks if e.get("text-anchor") == "end"]
    assert len(xs) == 4 and len(ys) == 3
    assert [b - a for a, b in pairwise(xs)] == pytest.approx([76] * 3, abs=1)
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2) and ys[0] > ys[2]
