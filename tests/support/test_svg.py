"""One module writes SVG, and what it writes is well-formed."""

import re
from xml.etree import ElementTree

from kernelwright.support import svg
from support.paths import ROOT


def test_texts_and_attributes_are_escaped():
    words, label = 'a < b & "c"', 'x > "y"'
    parts = [svg.text(0, 12, words, "soft", "end"), svg.rect("bar", 0.25, 3, "50%", 14, rx=3)]
    root = ElementTree.fromstring(svg.picture(parts, 40, 20, label, ".bar { fill: red }"))
    style, text, rect = root
    assert root.attrib["aria-label"] == label and root.attrib["viewBox"] == "0 0 40 20"
    assert style.text == ".bar { fill: red }"
    assert text.text == words and text.attrib["text-anchor"] == "end"
    assert (rect.attrib["class"], rect.attrib["x"], rect.attrib["width"]) == ("bar", "0.2", "50%")


def test_no_other_module_writes_elements_by_hand():
    by_hand = re.compile(r"<(svg|rect|text|tspan|line|polyline|title)\b[^>]*=")
    files = [p for part in ("src", "tools", "benchmarks") for p in (ROOT / part).rglob("*.py")]
    assert len(files) > 100
    assert not [p for p in files if by_hand.search(p.read_text(encoding="utf-8"))]
