"""The report: what is on the page, what may not be, and how a browser sees it."""

import json
import random
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from kernelwright.dispatch import ladder, ladders
from kernelwright.dispatch.selection import config_of
from kernelwright.workbench.records import metrics
from kernelwright.workbench.records.records import Record
from kernelwright.workbench.report import charts, report, shown
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
    text = "".join(Reader(page).text)
    for lad in ladders():
        assert f'id="{lad.name.replace(".", "-")}"' in page
        for rung in lad.rungs:
            assert rung.name in text
            assert rung.idea in text


def test_missing_records_show_as_missing(page):
    assert "no record" in page
    assert "unsupported: too long" in page


def test_an_empty_set_of_records_makes_a_page():
    text = report.html([])
    assert "There are no records yet" in text
    assert text.count("no record") >= sum(len(x.rungs) for x in ladders())


def test_nothing_is_loaded_from_elsewhere(page):
    remote = [
        (tag, k, v)
        for tag, k, v in Reader(page).attributes
        if k in ("src", "href", "action", "data", "poster", "srcset") and not v.startswith("#")
    ]
    assert [v for _, _, v in remote if v != "data:,"] == []
    assert not re.search(r"url\(|@import", page)


def test_texts_are_escaped(page):
    assert HOSTILE not in page
    assert Reader(page).tags.count("script") == 2
    assert not [a for a in Reader(page).attributes if a[1].startswith("on")]


def test_the_policy_allows_what_is_there_and_nothing_else(page):
    policy = next(v for t, k, v in Reader(page).attributes if "default-src" in v)
    assert "default-src 'none'" in policy
    for kind in ("style", "script"):
        inside = re.search(rf"<{kind}>(.*?)</{kind}>", page, re.S)
        assert inside
        assert report._hash(inside[1]) in policy
    assert not [a for a in Reader(page).attributes if a[1] == "style"]


def test_embedded_figures_are_json(page):
    inside = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)
    assert inside and "<" not in inside[1]
    found = json.loads(inside[1])
    row = next(r for t in found for r in t["rows"] if HOSTILE in r["status"])
    assert row["cold_us"] is None


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
    svg = charts.standalone(charts.ladder(table, width=880, title="a title"))
    assert svg.startswith("<svg") and "<style>" in svg and "a title" in svg
    assert svg.count('class="bar"') == len(table.timed)


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
<iframe id="page" width="WIDTH" height="900" src="report.html"></iframe><pre id="found"></pre>
<script>
const frame = document.getElementById("page");
frame.addEventListener("load", () => {
  const page = frame.contentDocument, root = page.documentElement;
  const seen = (e) => e.getClientRects().length > 0 && e.getBoundingClientRect().width > 0;
  const found = {width: root.scrollWidth, title: page.title};
  found.charts = [...page.querySelectorAll("svg.chart")].filter(seen).length;
  found.bars = [...page.querySelectorAll("svg.chart rect.bar")].filter(seen).length;
  found.points = [...page.querySelectorAll("svg.chart circle.point")].filter(seen).length;
  const pick = page.querySelector('#softmax [data-pick="case"]');
  const shown = () => [...page.querySelectorAll("#softmax [data-case]")].filter(seen)
    .map((e) => e.dataset.case).join();
  found.before = shown();
  pick.value = [...pick.options].find((o) => o.value !== pick.value).value;
  pick.dispatchEvent(new Event("change"));
  found.after = shown();
  found.picked = pick.value;
  for (const d of page.querySelectorAll("details")) d.open = true;
  found.opened = root.scrollWidth;
  found.sources = [...page.querySelectorAll("details pre")].filter(seen).length;
  const small = [...page.querySelectorAll("svg.chart text")].filter(seen)
    .map((e) => e.getBoundingClientRect().height);
  found.smallest = Math.min(...small);
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
    return json.loads(found[1]), console


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@needs_browser
@pytest.mark.parametrize("width", [1200, 390])
def test_in_a_browser(page, tmp_path, width):
    found, console = browse(tmp_path, page, width)
    assert console == []
    assert found["title"] == "Kernelwright report"
    assert found["charts"] >= len(ladders()) + 1
    assert found["bars"] >= 2 * len(ladder("softmax").rungs) - 2
    assert found["points"] > 0
    assert found["before"] != found["after"] == found["picked"]
    assert found["width"] <= width and found["opened"] <= width
    assert found["sources"] >= len(ladders())
    assert found["smallest"] >= 10


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
    svg = charts.roofline(points, memory=4000.0, compute=None, machine="a machine")
    found = re.findall(r'<text[^>]*x="([\d.]+)%"[^>]*y="([\d.]+)"[^>]*>(operator_\d+)<', svg)
    names = [(float(x), float(y), 0.4 * len(name)) for x, y, name in found]
    assert len(names) >= 4
    dots = re.findall(r'<circle[^>]*cx="([\d.]+)%"[^>]*cy="([\d.]+)"', svg)
    assert len(dots) == len(points)
    for i, (x, y, half) in enumerate(names):
        others = [*names[:i], *((float(a), float(b), 0.0) for a, b in dots)]
        assert not any(abs(x - a) < half + h and -9 < y - b < 13 for a, b, h in others)


def test_a_ladder_without_a_record_has_no_table():
    text = report.html([])
    first = text.split("data-ladder>")[1].split("</section>")[0]
    assert "no record" in first and "<th>verified</th>" not in first


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
    assert 'id="overview"' not in report.html(left)


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
