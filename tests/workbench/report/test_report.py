"""The report: what the page must contain, and what it must not."""

import json
import re
import subprocess
from dataclasses import replace

import pytest

from kernelwright.dispatch import ladder, ladders
from kernelwright.dispatch.selection import config_of
from kernelwright.workbench.records import metrics
from kernelwright.workbench.report import case_tables, origin, overview, report, sections
from support.reports import (
    CPU,
    HOSTILE,
    MACHINE,
    PACKED,
    Reader,
    expanded,
    made_up,
    measured_on_a_cpu,
    sections_of,
)
from tools import readme_tables


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
        assert report.content_hash(inside[1]) in policy
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
    tables = case_tables.current(lad, made)
    assert [r["case"] for r in rows] == [t.case for t in tables] and tables
    for row, t in zip(rows, tables, strict=True):
        native = next(r for r in t.rows if r.name == "native")
        assert row["torch"] == pytest.approx(native.cold / t.ours.cold, rel=1e-3)
        assert row["peer"] == pytest.approx(t.theirs.cold / t.ours.cold, rel=1e-3)
        assert row["here"], "a run that did not ship"


def test_a_machine_without_a_gpu_is_beside_the_reference_machine():
    mine = measured_on_a_cpu()
    here = frozenset(r.run for r in mine)
    machines = overview.machines([*made_up(), *mine], here)
    found = report._first_screen(machines, [*made_up(), *mine], here)
    assert found["opening"] == (MACHINE, CPU)
    rows = found["rows"][CPU]["softmax"]
    assert rows and all(r["theirs"] and r["torch"] >= 1 for r in rows)
    assert {(r["roof"], r["peer"]) for r in rows} == {(None, None)}
    assert not any(r["theirs"] for r in found["rows"][MACHINE]["softmax"])


def test_other_machines_are_alone_when_the_page_opens():
    assert overview.opening([]) == ("", "")
    assert overview.opening([MACHINE, CPU]) == (MACHINE, ""), "the CPU's records were shipped"
    assert overview.opening(["nvidia-l4", MACHINE]) == ("nvidia-l4", "")
    assert overview.opening([CPU]) == (CPU, ""), "there is no record of the reference machine"


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


def test_what_a_checkout_has_committed_is_shipped(tmp_path, monkeypatch):
    def git(*words):
        who = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True)

    def write(machine, *runs):
        (folder := tmp_path / "records" / machine).mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps({"run": run}) + "\n" for run in runs)
        (folder / "runs.jsonl").write_text(text)

    found = [replace(made_up()[0], run=run) for run in ("a", "b", "c", "d")]
    monkeypatch.setattr(origin, "RECORDS", tmp_path / "records")
    write(MACHINE, "a")
    write(CPU, "b")
    assert origin.runs_here(found) == {"c", "d"}, "without git, all of its records"
    git("init")
    git("add", ".")
    git("commit", "-m", "records")
    write(MACHINE, "a", "c")
    write("nvidia-l4", "d")
    assert origin.runs_here(found) == {"c", "d"}


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


def test_a_case_is_shown_where_what_serves_it_is_timed(monkeypatch):
    found = made_up()
    lad = ladder("softmax")
    timed = metrics.timed_cases(lad, MACHINE, found)
    row = lad.rung("triton_row")
    monkeypatch.setattr(case_tables, "served", lambda *of: (row, config_of(lad, row, *of[1:])))
    assert [t.case for t in case_tables.current(lad, found)] == timed
    at = ("triton_row", timed[0])
    left = [r for r in found if (r.rung, r.case) != at]
    assert [t.case for t in case_tables.current(lad, left)] == timed[1:]
    other = [replace(r, config={"tile": 3}) if (r.rung, r.case) == at else r for r in found]
    assert [t.case for t in case_tables.current(lad, other)] == timed[1:], (
        "that config is not dispatched"
    )
    left = [r for r in found if r.rung != "triton_row"]
    assert "No record of softmax" in readme_tables.render("cases softmax", left)
    rows = report._first_screen([MACHINE], left, frozenset())["rows"]
    assert "softmax" not in rows.get(MACHINE, {})
