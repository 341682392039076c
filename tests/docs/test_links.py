"""Links between the pages lead somewhere: to a file, and to a heading in it."""

import re
import subprocess

import pytest

from support.paths import ROOT

LISTED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
    cwd=ROOT, capture_output=True, text=True, check=True,
).stdout.split()  # fmt: skip
PAGES = [p for p in sorted(LISTED) if (ROOT / p).exists() and "/templates/" not in p]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def prose(text):
    """A page without its code."""
    return re.sub(r"`[^`\n]*`", "`code`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def anchors(path):
    """Anchors of a page's headings, as GitHub names them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    found = []
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return found


def broken(page, text):
    """The links of a page that lead nowhere."""
    out = []
    for link in LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        if not target.exists() or (anchor and target.is_file() and anchor not in anchors(target)):
            out.append(link)
    return out


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    page = ROOT / name
    assert broken(page, page.read_text(encoding="utf-8")) == []


def test_a_broken_link_is_found():
    page = ROOT / "README.md"
    text = (
        "[a](docs/none.md) [b](docs/install.md#nowhere) [c](docs) ![d](none.svg) [e](https://x.y)"
    )
    assert broken(page, text) == ["docs/none.md", "docs/install.md#nowhere", "none.svg"]


def test_every_page_is_in_the_contents():
    """A page of docs/ is linked from the index."""
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [p for p in PAGES if p.startswith("docs/") and p.count("/") == 1]
    assert [p for p in pages if f"({p.removeprefix('docs/')})" not in index] == ["docs/README.md"]
