"""The report in a browser: links, keyboard, narrow screens, both colour schemes, axe."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from kernelwright.dispatch import ladder
from kernelwright.workbench.report import origin, report
from support.reports import CPU, MACHINE, made_up, measured_on_a_cpu

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
  const text = (words) => all(words).filter(seen).map((e) => e.textContent);
  const screen = () => ({
    text: text("#overview :is(b, span, p, td, th button)"), columns: text("#summary thead button"),
    note: text("#theirs"), rows: all("#summary tbody tr").map((e) => e.textContent),
    lines: all("#summary polyline").map((e) => e.getAttribute("points")),
  });
  found.opened_with = [page.getElementById("machine").value, page.getElementById("other").value];
  found.screen = screen();
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
  if (found.opened_with[1]) {
    type("machine", found.opened_with[1]);
    type("other", "");
    found.alone = screen();
    found.width = root.scrollWidth;
    document.getElementById("found").textContent = JSON.stringify(found);
    return;
  }
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
    """(the probe's findings, lines on the console) for a page in a window of some width."""
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
@pytest.mark.long
def test_a_machine_without_a_gpu(tmp_path, monkeypatch):
    """It opens beside the H200, says what "over PyTorch" is, and shows no figure it has not."""
    mine = measured_on_a_cpu()
    monkeypatch.setattr(origin, "runs_here", lambda found: frozenset(r.run for r in mine))
    page = report.html([*made_up(), *mine])
    found, console = browse(tmp_path, page, 1400)
    assert console == []
    assert found["opened_with"] == [MACHINE, CPU]
    both, alone = found["screen"], found["alone"]
    assert {"of roof", "over the other", "other over PyTorch"} <= set(both["columns"])
    assert both["rows"][0].startswith("softmax") and len(both["rows"]) == 2
    assert f"Beside it {CPU}: 1 operators" in " ".join(both["text"])
    assert alone["columns"] == ["operator", "over PyTorch", "source"]
    for screen in (both, alone):
        assert "every timed rung is PyTorch's" in screen["note"][0] and CPU in screen["note"][0]
        assert not any("n/a" in words or words == "0.00x" for words in screen["text"])
    assert alone["lines"] == []


@needs_browser
@pytest.mark.long
def test_a_line_of_the_first_screen_is_not_vertical(tmp_path):
    found, _ = browse(tmp_path, report.html(r for r in made_up() if r.operator == "softmax"), 1400)
    (points,) = [line.split() for line in found["screen"]["lines"] if line]
    same = [replace(r, bytes=1 << 24) for r in made_up() if r.operator == "softmax"]
    found, _ = browse(tmp_path, report.html(same), 1400)
    (one,) = [line.split() for line in found["screen"]["lines"] if line]
    assert len(points) > 1 and len({p.split(",")[0] for p in points}) == len(points)
    assert len(one) == 1, "one size is one point"


@pytest.mark.long
@needs_browser
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
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
    """The test rejects a script that the policy forbids, and a page that is too wide."""
    wide = page.replace("<main>", f"<main><h1>{'x' * 400}</h1><script>1</script>")
    found, console = browse(tmp_path, wide, 390)
    assert found["width"] > 390
    assert any("Content Security Policy" in line for line in console)
