"""The report: what is on the page, what may not be, and how a browser sees it."""

import json
import random
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from kernelwright.dispatch import ladder, ladders
from kernelwright.dispatch.selection import config_of
from kernelwright.workbench.records import metrics
from kernelwright.workbench.records.records import Record
from kernelwright.workbench.report import charts, report, sections, shown, steps, svg
from support import served
from tools import readme_tables

MACHINE = "nvidia-h200"
HOSTILE = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)>"


def made_up(machine=MACHINE, run="20260101T000000Z-0000"):
    """Records of softmax and its backward on three cases: each rung faster than the one below,
    a peer between them, the top rung not run on the largest case."""
    found = []
    for name in ("softmax", "softmax.backward"):
        lad = ladder(name)
        cases = [c for c in lad.operator.cases if c.use == "bench"][:3]
        for case in cases:
            bytes_ = 2 * case.numel * case.dtype.itemsize
            roof = bytes_ / 4e6

            def record(rung, us, case=case, bytes_=bytes_, name=name, **more):
                cold = tuple(us * (1 + 0.002 * i) for i in range(12))
                return Record(
                    name, rung, case.id, machine, run, "pass", cold=cold, bytes=bytes_,
                    flops=5 * case.numel, **more,
                )  # fmt: skip

            found.append(record("roof:r1w1", roof))
            found.append(record("peer:liger", roof * 1.3, host=(20.0,)))
            for i, rung in enumerate(lad.rungs):
                us = roof * (1.05 + (len(lad.rungs) - i) / 2)
                config = served.config(lad, rung, case)
                found.append(
                    record(rung.name, us, warm=(us / 2,), bound="bandwidth", config=config)
                )
        last = lad.rungs[-1].name
        found = [r for r in found if (r.rung, r.case) != (last, cases[-1].id)]
        found.append(
            Record(name, last, cases[-1].id, machine, run, "unsupported", why=f"too long {HOSTILE}")
        )
        found.append(Record(name, last, "*", machine, run, "pass", why="12 cases passed"))
    return found


@pytest.fixture(scope="module")
def page():
    return report.html(made_up())


PACKED = re.compile(
    r'<details class="part" id="([^"]+)".*?<script type="text/plain">(.*?)</script>', re.S
)


def sections_of(page):
    """The expanded sections, by their anchors."""
    return {anchor: report.unpacked(text) for anchor, text in PACKED.findall(page)}


def expanded(page):
    """The page and everything that can be opened in it."""
    return PACKED.sub("", page) + "".join(sections_of(page).values())


class Reader(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, k, v or "") for k, v in attrs]

    def handle_data(self, data):
        self.text.append(data)


def test_every_ladder_and_rung_is_there(page):
    text = "".join(Reader(expanded(page)).text)
    for lad in ladders():
        assert f'id="{lad.name.replace(".", "-")}"' in page
        for rung in lad.rungs:
            assert rung.name in text
            assert rung.idea in text


def test_missing_records_show_as_missing(page):
    assert "no record" in expanded(page)
    assert "unsupported: too long" in expanded(page)


def test_an_empty_set_of_records_makes_a_page():
    text = report.html([])
    assert "There are no records yet" in text
    assert expanded(text).count("no record") >= sum(len(x.rungs) for x in ladders())


def test_nothing_is_loaded_from_elsewhere(page):
    remote = [
        (tag, k, v)
        for tag, k, v in Reader(expanded(page)).attributes
        if k in ("src", "href", "action", "data", "poster", "srcset") and not v.startswith("#")
    ]
    assert [v for _, _, v in remote if v != "data:,"] == []
    assert not re.search(r"url\(|@import", expanded(page))


def test_texts_are_escaped(page):
    assert HOSTILE not in expanded(page)
    kinds = [v for tag, k, v in Reader(expanded(page)).attributes if (tag, k) == ("script", "type")]
    assert set(kinds) == {"application/json"}
    scripts = Reader(expanded(page)).tags.count("script")
    assert scripts == len(kinds) + 1, "one script runs, the others are data"
    assert not [a for a in Reader(expanded(page)).attributes if a[1].startswith("on")]


def test_the_policy_allows_what_is_there_and_nothing_else(page):
    policy = next(v for t, k, v in Reader(page).attributes if "default-src" in v)
    assert "default-src 'none'" in policy
    for kind in ("style", "script"):
        inside = re.search(rf"<{kind}>(.*?)</{kind}>", page, re.S)
        assert inside
        assert report._hash(inside[1]) in policy
    assert not [a for a in Reader(expanded(page)).attributes if a[1] == "style"]


def data_in(text):
    inside = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.S)
    assert inside and "<" not in inside[1]
    return json.loads(inside[1])


def test_embedded_figures_are_json(page):
    found = data_in(sections_of(page)["softmax-backward"])
    row = next(r for t in found for r in t["rows"] if HOSTILE in r.get("status", ""))
    assert "cold_us" not in row
    found = data_in(sections_of(page)["softmax"])
    lad = ladder("softmax")
    table = metrics.headline(lad, MACHINE, made_up())
    mine = next(t for t in found if t["case"] == table.case)
    assert [r.get("cold_us") for r in mine["rows"]] == [
        r.cold and pytest.approx(r.cold, rel=1e-3) for r in table.rows
    ]


def test_the_first_screen_has_every_timed_case(page, monkeypatch):
    found = data_in(page)
    assert found["machines"] == [MACHINE]
    lad, made = ladder("softmax"), made_up()
    rows = found["rows"][MACHINE]["softmax"]
    tables = shown.shown(lad, made)
    assert [r["case"] for r in rows] == [t.case for t in tables] and tables
    for row, t in zip(rows, tables, strict=True):
        native = next(r for r in t.rows if r.name == "native")
        assert row["torch"] == pytest.approx(native.cold / t.ours.cold, rel=1e-3)
        assert row["peer"] == pytest.approx(t.theirs.cold / t.ours.cold, rel=1e-3)
        assert row["here"], "a run that did not ship"


def test_what_shipped_and_what_was_measured_here_differ_in_every_figure():
    lad, made = ladder("softmax"), made_up()
    runs = frozenset(r.run for r in made)
    for here, said, other in ((runs, "measured here", "shipped"), ((), "shipped", "measured")):
        (machine,) = sections.view(lad, [MACHINE], made, frozenset(here), {}).machines
        assert machine.cases and machine.over_size
        for figure in (*machine.cases, *machine.over_size):
            assert said in figure.caption and other not in figure.caption
        for case in machine.cases:
            assert {r.get("source", said)[: len(said)] for r in case.figures["rows"]} == {said}
            assert ('class="row b-cuda here"' in case.chart) == (said == "measured here")
        points = "".join(c for v in machine.over_size for c in v.charts)
        assert ('class="point b-best here"' in points) == (said == "measured here")


def test_a_section_is_small(page):
    packed = dict(PACKED.findall(page))
    assert len(packed["softmax"]) < 40_000
    assert sum(map(len, packed.values())) / len(packed) < 30_000


@pytest.mark.long
def test_the_page_of_all_records_is_small():
    text = report.html()
    packed = [len(part) for _, part in PACKED.findall(text)]
    assert len(text.encode()) < 2_000_000
    assert sum(packed) / len(packed) < 30_000


def colours(scheme):
    """The colours of charts.css in light or dark."""
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
    """Times at random: the sequence keeps the ladder's order and its steps do not fall; a longer
    one does not exist."""
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
    text = charts.standalone(charts.ladder(table, width=880, title="a title"))
    assert text.startswith("<svg") and "<style>" in text and "a title" in text
    assert text.count('class="bar"') == len(table.timed)


@pytest.mark.parametrize("name", ["operators", "ladder softmax", "cases softmax"])
def test_readme_tables(name):
    text = readme_tables.render(name, made_up())
    lines = text.strip().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) > 3
    assert len({line.count("|") for line in rows}) == 1


def test_an_unknown_table_is_an_error():
    with pytest.raises(ValueError, match="table:nothing"):
        readme_tables.render("nothing", [])


# in a browser

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-sync", "--disable-background-networking", "--disable-component-update",
    "--enable-logging=stderr", "--allow-file-access-from-files", "--virtual-time-budget=8000",
    "--dump-dom",
)  # fmt: skip
PROBE = """<!doctype html><meta charset="utf-8"><title>probe</title>
<iframe id="page" width="WIDTH" height="900" src="report.html#softmax-cuda_warp"></iframe>
<pre id="found"></pre>
<script>
const frame = document.getElementById("page");
const until = async (ready) => {
  while (!ready()) await new Promise((done) => setTimeout(done, 20));
};
frame.addEventListener("load", async () => {
  const page = frame.contentDocument, root = page.documentElement;
  const all = (words) => [...page.querySelectorAll(words)];
  const seen = (e) => e.getClientRects().length > 0 && e.getBoundingClientRect().width > 0;
  const found = {nodes: all("*").length, loaded: frame.contentWindow.performance.now()};
  await until(() => page.querySelector("#softmax table"));
  found.linked = page.getElementById("softmax-cuda_warp").open;
  found.width = root.scrollWidth;
  found.title = page.title;
  found.operators = all("#summary tbody tr").length;
  found.sparks = all("#summary svg").filter(seen).length;
  found.cards = all("#cards b").map((e) => e.textContent);
  const type = (id, words) => {
    page.getElementById(id).value = words;
    page.getElementById(id).dispatchEvent(new Event("input"));
  };
  type("operator", "softmax.b");
  found.filtered = all("#summary tbody th").map((e) => e.textContent);
  type("operator", "");
  const shares = () => all("#summary tbody td:nth-of-type(1)");
  const numbers = () => shares().map((e) => parseFloat(e.textContent));
  all("#summary thead button")[1].click();
  found.falling = numbers();
  all("#summary thead button")[1].click();
  found.rising = numbers();
  found.sorted = all("#summary thead th")[1].ariaSort;
  found.focus = page.activeElement.tagName;
  const pick = page.querySelector('#softmax [data-pick="case"]');
  const caption = () => page.querySelector("#softmax figcaption").textContent;
  found.before = caption();
  pick.value = [...pick.options].find((o) => o.value !== pick.value).value;
  pick.dispatchEvent(new Event("change"));
  found.after = caption();
  found.picked = pick.selectedOptions[0].textContent;
  page.getElementById("machines").open = true;
  await until(() => page.querySelector("#machines svg"));
  for (const d of all("#softmax details")) d.open = true;
  found.opened = root.scrollWidth;
  found.charts = all("svg.chart").filter(seen).length;
  found.bars = all("svg.chart rect.bar").filter(seen).length;
  found.points = all("svg.chart svg.point").filter(seen).length;
  found.sources = all("details pre").filter(seen).length;
  const small = all("svg.chart text").filter(seen).map((e) => e.getBoundingClientRect().height);
  found.smallest = Math.min(...small);
  if (frame.contentWindow.axe) {
    const said = await frame.contentWindow.axe.run(page, {resultTypes: ["violations"]});
    found.axe = said.violations.map((v) => [v.id, v.nodes.map((n) => n.html)]);
    found.passes = said.passes.length;
  }
  document.getElementById("found").textContent = JSON.stringify(found);
});
</script>"""


def browse(folder, page, width):
    """(what the probe found, lines on the console) of a page in a window of some width."""
    (folder / "report.html").write_text(page, encoding="utf-8")
    (folder / "probe.html").write_text(PROBE.replace("WIDTH", str(width)), encoding="utf-8")
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={folder}/{width}", f"file://{folder}/probe.html"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)
    assert found and found[1], done.stdout[-2000:] + done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(unescape(found[1])), console


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@needs_browser
@pytest.mark.parametrize("width", [1400, 390])
def test_in_a_browser(page, tmp_path, width):
    found, console = browse(tmp_path, page, width)
    assert console == []
    assert found["title"] == "Kernelwright report"
    assert found["nodes"] < 3000, "sections are expanded when they are opened"
    assert found["linked"], "a link to a rung opens it"
    assert found["operators"] == 2 and found["cards"][0].endswith("x")
    assert found["sparks"] == (2 if width > 560 else 0)
    assert found["filtered"] == ["softmax.backward"]
    assert found["falling"] == sorted(found["falling"], reverse=True)
    assert found["rising"] == sorted(found["rising"]) and found["sorted"] == "ascending"
    assert found["before"] != found["after"] and found["picked"].split()[0] in found["after"]
    assert found["charts"] >= 4
    assert found["bars"] >= len(ladder("softmax").rungs)
    assert found["points"] > 0
    assert found["width"] <= width and found["opened"] <= width
    assert found["sources"] >= len(ladder("softmax").rungs)
    assert found["smallest"] >= 10


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page, tmp_path, scheme):
    axe = pytest.importorskip("axe_core_python")
    source = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    open_page = re.sub(r"<meta http-equiv=[^>]*>", "", page)
    if scheme == "dark":
        open_page = open_page.replace("@media (prefers-color-scheme: dark)", "@media all")
    open_page = open_page.replace("</body>", f"<script>{source}</script></body>")
    found, _ = browse(tmp_path, open_page, 1400)
    assert found["axe"] == []
    if scheme == "dark":
        return
    bad = open_page.replace('<label>Machine <select id="machine">', '<select id="machine">')
    found, _ = browse(tmp_path, bad.replace("</select></label>", "</select>", 1), 1400)
    assert [rule for rule, _ in found["axe"]] == ["select-name"]


@needs_browser
def test_the_browser_test_can_fail(page, tmp_path):
    """Neither a script that the policy forbids nor a wide page passes."""
    wide = page.replace("<main>", f"<main><h1>{'x' * 400}</h1><script>1</script>")
    found, console = browse(tmp_path, wide, 390)
    assert found["width"] > 390
    assert any("Content Security Policy" in line for line in console)


def test_a_page_has_a_picture_once_there_are_records():
    assert "no record of gelu" in readme_tables.render("picture gelu", made_up()).lower()
    shown = readme_tables.render("picture softmax", made_up())
    assert re.fullmatch(
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


def test_a_case_is_shown_where_what_serves_it_is_timed(monkeypatch):
    found = made_up()
    lad = ladder("softmax")
    timed = metrics.timed_cases(lad, MACHINE, found)
    row = lad.rung("triton_row")
    monkeypatch.setattr(shown, "served", lambda *of: (row, config_of(lad, row, *of[1:])))
    assert [t.case for t in shown.shown(lad, found)] == timed
    at = ("triton_row", timed[0])
    left = [r for r in found if (r.rung, r.case) != at]
    assert [t.case for t in shown.shown(lad, left)] == timed[1:]
    other = [replace(r, config={"tile": 3}) if (r.rung, r.case) == at else r for r in found]
    assert [t.case for t in shown.shown(lad, other)] == timed[1:], "nobody is served that config"
    left = [r for r in found if r.rung != "triton_row"]
    assert "No record of softmax" in readme_tables.render("cases softmax", left)
    rows = report._first_screen([MACHINE], left, frozenset())["rows"]
    assert "softmax" not in rows.get(MACHINE, {})


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
