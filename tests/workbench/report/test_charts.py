"""Charts and tables of the report, the README and the operator pages."""

import random
import re
from dataclasses import replace
from itertools import combinations, pairwise

import pytest

from kernelwright.dispatch import ladder
from kernelwright.workbench.records import metrics
from kernelwright.workbench.records.records import Record
from kernelwright.workbench.report import charts, report, sections, steps, svg
from support.reports import MACHINE, made_up
from tools import attention_table, readme_tables


def colours(scheme):
    """The colours of charts.css in light or dark mode."""
    css = (report.TEMPLATES / "charts.css").read_text()
    light, dark = css.split("@media (prefers-color-scheme: dark)")
    return dict(re.findall(r"--([\w]+): (#[0-9a-f]{6})", dark if scheme == "dark" else light))


def contrast(a, b):
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_differ_from_the_page_by_4_5_to_1(scheme):
    found = colours(scheme)
    for name in set(found) - {"paper", "faint", "track"}:
        assert contrast(found[name], found["paper"]) >= 4.5, name
    assert contrast(found["soft"], found["track"]) >= 4.5


def test_each_series_has_a_shape_of_its_own():
    assert (
        len({svg.MARKERS[k] for k in ("best", "torch", "inductor", "peer", "peer2", "peer3")}) == 6
    )
    backends = ("torch", "inductor", "triton", "cuda", "numba", "peer")
    assert len({svg.MARKERS[k] for k in backends}) == 6


@pytest.mark.parametrize("seed", range(20))
def test_steps_rise_in_the_teaching_sequence(seed):
    """With random times, the sequence keeps the ladder's order, its steps do not fall, and there is
    no longer one."""
    rng = random.Random(seed)
    lad = ladder("softmax")
    case = next(c.id for c in lad.operator.cases if c.use == "bench")
    times = {r.name: rng.choice((None, rng.uniform(1, 50))) for r in lad.rungs}
    records = [
        Record("softmax", name, case, MACHINE, "run", "pass", cold=(us,), bytes=8)
        for name, us in times.items() if us
    ]  # fmt: skip
    table = metrics.table(lad, MACHINE, case, records)
    found = steps.steps(table)
    assert {r.name for r in found.baselines} == {"manual", "native", "compiled"}
    assert len(found.baselines + found.sequence + found.others) == len(table.rows)
    timed = [r for r in table.rows if r.timed and r.rung.is_ours]
    names = [r.name for r in found.sequence]
    if not timed:
        assert names == [r.name for r in lad.rungs if r.is_ours]
        return
    assert names == [r.name for r in timed if r.name in names]
    rising = lambda rows: all(b.cold <= a.cold * (1 + steps.LEVEL) for a, b in pairwise(rows))  # noqa: E731
    assert rising(found.sequence)
    longest = max(n for n in range(len(timed) + 1) if any(map(rising, combinations(timed, n))))
    assert len(names) == longest
    factors = [found.over_previous(r) for r in found.sequence]
    assert factors[:1] == [None]
    assert factors[1:] == [pytest.approx(a.cold / b.cold) for a, b in pairwise(found.sequence)]


def test_the_chart_marks_the_dispatched_rung():
    table = metrics.headline(ladder("softmax"), MACHINE, made_up())
    text = charts.ladder(table, dispatched="cuda_warp")
    assert text.count("\u25c0") == 1
    assert re.search(r">cuda_warp<tspan class=\"dispatched\"", text)
    rung = sections.dispatched(ladder("softmax"), MACHINE, table.case)
    assert rung in ladder("softmax").names
    assert sections.dispatched(ladder("softmax"), "cpu-x", table.case) == "native"


def test_a_changed_line_marks_what_changed():
    (hunk, old, new, same) = sections._diff("a = b + c\nd\n", "a = b - c\nd\n")
    assert (hunk.kind, old.kind, new.kind, same.kind) == ("hunk", "del", "add", "")
    assert [t for t, changed in old.parts if changed] == ["+"]
    assert [t for t, changed in new.parts if changed] == ["-"]
    assert "".join(t for t, _ in new.parts) == "+a = b - c"


def test_figures_compare_one_run_only():
    found = made_up()
    lad = ladder("softmax")
    case = metrics.timed_cases(lad, MACHINE, found)[0]
    table = metrics.table(lad, MACHINE, case, found)
    assert all(r.over_below for r in table.rows[1:-1])
    other = [r for r in made_up(run="20250101T000000Z-0000") if r.rung == "manual"]
    mixed = [r for r in found if r.rung != "manual"] + other
    table = metrics.table(lad, MACHINE, case, mixed)
    assert table.rows[0].of_roof is None
    assert table.rows[1].over_below is None


def test_the_newest_run_counts_though_an_older_one_was_faster():
    lad = ladder("softmax")
    case = next(c.id for c in lad.operator.cases if c.use == "bench")
    rows = [
        Record("softmax", "native", case, MACHINE, run, "pass", {"n": n}, cold=(us,), bytes=8)
        for n, (run, us) in enumerate((("2025", 1.0), ("2026", 3.0), ("2026", 2.0)))
    ]
    table = metrics.table(lad, MACHINE, case, rows)
    assert next(r.cold for r in table.rows if r.name == "native") == 2.0


@pytest.mark.parametrize(
    ("us", "text"), [(0.5, "500 ns"), (37.24, "37.2 us"), (999.4, "999 us"), (1240, "1.24 ms")]
)
def test_microseconds(us, text):
    assert metrics.microseconds(us) == text


def test_a_ladder_chart_stands_alone():
    found = made_up()
    table = metrics.headline(ladder("softmax"), MACHINE, found)
    assert table
    text = charts.standalone(charts.ladder(table, title="a title"))
    assert text.startswith("<svg") and "<style>" in text and "a title" in text
    assert text.count('class="bar"') == len(table.timed)


@pytest.mark.parametrize("name", ["operators", "ladder softmax", "cases softmax", "attention"])
def test_readme_tables(name):
    text = readme_tables.render(name, made_up())
    lines = text.strip().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) > 3
    assert len({line.count("|") for line in rows}) == 1


def test_the_table_of_attention_has_the_fastest_config_of_each_rung():
    text = (
        "fwd 2x32x8192x64 causal wgmma:128/2 | 1.08 | 0.92 | wgmma:128/2: 420 wgmma:160/2: 439 "
        "wgmma_wide: 5 =dispatched: 455 FA2: 294\npacked fwd window varlen:1/2: 437us"
    )
    (row,) = attention_table.fastest(text)
    assert row == ["2", "32", "8,192", "64", "causal", "", "439", "", "", "5", "294", ""]


def test_no_line_over_sizes_is_vertical():
    """Cases of one size, and of sizes that differ in a weight's bytes, are one point of a line."""
    at = (1 << 20, 1 << 20, 1 << 24, (1 << 24) + 4096, 1 << 28)
    series = charts.Series("native", "torch", tuple((n, 10.0 + i) for i, n in enumerate(at)))
    for text in (
        charts.time_over_size([series], name="x"),
        charts.rate_over_size([series], name="x"),
    ):
        ends = re.findall(r'class="path b-torch" x1="([\d.]+)%" y1="[\d.]+" x2="([\d.]+)%"', text)
        assert len(ends) == 2, "three sizes"
        assert all(float(x2) - float(x1) > 5 for x1, x2 in ends)
        assert text.count('class="point') == len(at)


def test_cases_of_nearly_one_size_have_no_axis_of_sizes():
    lad = ladder("softmax")
    (machine,) = sections.view(lad, [MACHINE], made_up(), frozenset(), {}).machines
    assert machine.over_size
    one = [replace(r, bytes=(1 << 24) + 4096 * i) for i, r in enumerate(made_up()) if r.cold]
    (machine,) = sections.view(lad, [MACHINE], one, frozenset(), {}).machines
    assert machine.over_size == []


def test_an_unknown_table_is_an_error():
    with pytest.raises(ValueError, match="table:nothing"):
        readme_tables.render("nothing", [])


@pytest.mark.long
def test_a_page_has_a_picture_once_there_are_records():
    assert "**Picture**: none" in readme_tables.render("start gelu", made_up())
    shown = readme_tables.render("start softmax", made_up())
    assert re.search(
        r"!\[softmax, `[^`]+`: [^]]+\]\(\.\./[./]*docs/ladders/softmax\.svg\)\n", shown
    )
    made = readme_tables.texts()
    assert (readme_tables.PICTURES / "softmax.svg") in made
    assert all(
        path.stem in text for path, text in made.items() if path.parent == readme_tables.PICTURES
    )


def test_names_in_a_roofline_cover_no_dot_and_no_other_name():
    rng = random.Random(0)
    points = [
        charts.Point(
            f"operator_{k}", f"rung {r}", "cuda", 0.2 + 0.1 * (k % 4), rng.uniform(20, 900)
        )
        for k in range(12)
        for r in range(4)
    ]
    text = charts.roofline(points, memory=4000.0, compute=None, machine="a machine")
    found = re.findall(r'<text[^>]*x="([\d.]+)%"[^>]*y="([\d.]+)"[^>]*>(operator_\d+)<', text)
    names = [(float(x), float(y), 0.4 * len(name)) for x, y, name in found]
    assert len(names) >= 4
    dots = re.findall(r'<svg class="point[^>]*x="([\d.]+)%"[^>]*y="([\d.]+)"', text)
    assert len(dots) == len(points)
    for i, (x, y, half) in enumerate(names):
        others = [*names[:i], *((float(a), float(b), 0.0) for a, b in dots)]
        assert not any(abs(x - a) < half + h and -9 < y - b < 13 for a, b, h in others)


def test_a_band_holds_its_curves():
    edges = [(1.0, 3.0), (0.5, 1.5)]
    picture = charts.band(
        edges,
        [("cuda", (2.5, 1.0)), ("torch", (1.0, 1.5))],
        at=["10", "20"],
        title="t",
        caption="c",
    )
    assert picture.count("<rect") == 2 and ">20<" in picture
    tall = [float(h) for h in re.findall(r'<rect[^>]* height="([\d.]+)"', picture)]
    assert tall[0] == pytest.approx(2 * tall[1], rel=0.01)
    first, second = re.findall(r'points="([^"]+)"', picture)
    y = [[float(p.split(",")[1]) for p in line.split()] for line in (first, second)]
    assert y[0][0] < y[0][1] < y[1][0], "above the middle, on it, at the band's lower edge"


def test_the_training_checks_page_says_what_is_missing():
    assert readme_tables._training(None) == "No record of the training check on nvidia-h200 yet.\n"
    assert "bias_gelu" in readme_tables.render("training", [])
