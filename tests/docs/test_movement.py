"""The pictures of data movement: for every CUDA C++ and Triton rung of the pages, from its current
source, and identical to what the emulator and the interpreter draw now."""

import re

import pytest
import torch

from kernelwright.contract import case
from kernelwright.dispatch import ladder
from kernelwright.emulator.dissect import Place
from kernelwright.emulator.trace import Request, Traced
from tools import movement, movement_triton

emulated = pytest.mark.skipif(
    bool(movement.dissect.emulator.missing("dissected")), reason="no C++ compiler here"
)


def test_every_rung_has_a_picture_of_its_current_source():
    assert [f"{lad.name}.{rung.name}" for lad, rung in movement.stale()] == []


@pytest.mark.parametrize("operator", movement.MODELS)
def test_a_page_shows_each_of_its_rungs(operator):
    (name,) = {lad.folder / "README.md" for lad, _ in movement.rungs(operator)}
    text = name.read_text(encoding="utf-8")
    for _, rung in movement.rungs(operator):
        part = text.split(f"### `{rung.name}`: ")[1].split("\n### ")[0]
        assert f"docs/movement/{operator}.{rung.name}.svg" in part
        assert {"- Counter: ", "- Time: ", "- Next bottleneck: "} <= set(
            re.findall(r"^- \w[\w ]*: ", part, re.M)
        )
        diff = re.search(r"```diff\n(.*?)\n```", part, re.S)
        assert (rung == movement.rungs(operator)[0][1]) == (diff is None)
        assert diff is None or len(diff[1].splitlines()) <= movement.LINES


@pytest.mark.parametrize("operator", movement.MODELS)
def test_a_page_shows_each_triton_rung(operator):
    for lad, rung in movement.triton_rungs(operator):
        text = (lad.folder / "README.md").read_text(encoding="utf-8")
        part = text.split(f"### `{rung.name}`: ")[1].split("\n### ")[0]
        assert f"docs/movement/{operator}.{rung.name}.svg" in part
        assert {"- Counter: ", "- Time: ", "- Next bottleneck: "} <= set(
            re.findall(r"^- \w[\w ]*: ", part, re.M)
        )


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="Triton's interpreter needs a machine without a GPU"
)
def test_a_triton_picture_is_what_the_interpreter_sees():
    lad = ladder("softmax")
    rung = lad.rung("triton_online")
    at = movement.case_of(lad, rung)
    found = movement_triton.traced(lad, rung, at)
    kept = (movement.FOLDER / "softmax.triton_online.svg").read_text(encoding="utf-8")
    assert kept == movement_triton.picture("softmax.triton_online", at.id, found)
    assert found.programs == 32 and found.bytes == 3 * 32 * 64 * 4, "x twice, y once"
    rows = [(a.kind, a.tensor, *a.offsets) for a in found.accesses if a.program == 1]
    row = tuple(range(64 * 4, 2 * 64 * 4, 4))
    assert rows == [("load", "x", *row), ("load", "x", *row), ("store", "y", *row)]


@emulated
def test_a_picture_is_what_the_emulator_draws():
    lad = ladder("sum")
    rung = lad.rung("cuda_strided")
    at = movement.case_of(lad, rung)
    found = movement.traced(lad, rung, at)
    drawn = movement.picture("sum.cuda_strided", at.id, found)
    kept = movement.FOLDER / "sum.cuda_strided.svg"
    assert kept.read_text(encoding="utf-8") == drawn
    first = found.requests[0]
    assert (first.kind, first.memory, first.width) == ("load", "x", 4)
    assert first.offsets == {lane: 4 * lane for lane in range(32)}
    shared = next(r for r in found.requests if (r.kind, r.memory) == ("load", "shared"))
    assert shared.offsets == {lane: 8 * lane for lane in range(32)}, "two words apart"


def request(memory, width, offsets):
    return Request(Place("a.cu", 1), "load", memory, width, dict(enumerate(offsets)))


def test_cells_are_filled_as_far_as_lanes_access_them():
    cells, words = movement._sectors(request("x", 4, range(0, 128, 4)), 1024)
    assert len(cells) == 32 and cells[:5] == [1, 1, 1, 1, 0] and words == "4 sectors, 100% used"
    cells, words = movement._sectors(request("x", 4, range(0, 1024, 32)), 1024)
    assert cells == [0.125] * 32 and words == "32 sectors, 12% used"
    cells, words = movement._banks(request("shared", 4, range(0, 256, 8)))
    assert sum(c > 0 for c in cells) == 16 and words == "2 words of a bank, 32 lanes"
    cells, words = movement._banks(request("shared", 4, [64]))
    assert cells.index(max(cells)) == 16 and words == "1 word of a bank, 1 lane"


def test_equal_requests_are_not_all_drawn():
    found = Traced("k", (1, 1, 1), (32, 1, 1), (request("x", 4, [0]),) * 9, {"x": 64})
    text = movement.picture("a.b", case((16,), movement.F32).id, found)
    assert text.count('class="load"') == movement.ALIKE and "and 6 more" in text


def test_the_limit_is_read_from_a_header():
    assert movement.limit("// A.\n//\n// It beats B. Limit: the x\n// and y.\n#include <z>\n") == (
        "the x and y."
    )
    assert movement.limit("// Limit: x.\n// Over `b`: y.\nint a;\n") == "x."
    with pytest.raises(ValueError, match="no Limit"):
        movement.limit("int a;\n")
