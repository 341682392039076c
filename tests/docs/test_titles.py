"""What the program prints names the documentation by the titles of its pages, docs: "TITLE",
"SECTION": pip does not install docs/."""

import ast
import re

import pytest

from docs.test_links import PAGES
from support.paths import ROOT

SOURCES = ROOT / "src" / "kernelwright"
KINDS = (".py", ".toml", ".html", ".js", ".md")
FILE = re.compile(r"\bdocs/[\w/]+\.md\b")
CITED = re.compile(r'docs: "([^"]+)"(?:, "([^"]+)")?')
PRINTED = [p for p in PAGES if p.startswith(("docs/", "src/kernelwright/ops/"))]


def messages(path):
    """The texts of a file that the program can print: a Python file's strings without the docstring
    of the module, which only readers of the source see; other files, as they are."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":  # a lesson is printed without its comments
        return re.sub(r"<!--.*?-->", "", text, flags=re.S)
    if path.suffix != ".py":
        return text
    tree = ast.parse(text)
    strings = [
        n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]
    first = tree.body[0] if tree.body else None
    own = first.value if isinstance(first, ast.Expr) else None
    return "\n".join(str(n.value) for n in strings if n is not own)


def cited(text):
    """The titles and sections that a text names. Raises AssertionError if one does not exist."""
    found = CITED.findall(text)
    for title, section in found:
        heads = [h for h in HEADINGS if h[0].startswith(title)]
        assert heads, f"no page is called {title}"
        assert not section or any(section in h for h in heads), f"no section {section} of {title}"
    return found


def headings(text):
    return re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)


HEADINGS = [h for p in PRINTED if (h := headings((ROOT / p).read_text(encoding="utf-8")))]
FILES = [
    p for p in sorted(SOURCES.rglob("*"))
    if p.suffix in KINDS and p.name != "README.md" and re.search("docs[/:]", p.read_text("utf-8"))
]  # fmt: skip


def test_no_message_names_a_file_that_pip_does_not_install():
    named = {p.relative_to(SOURCES): FILE.findall(messages(p)) for p in FILES}
    assert {name: found for name, found in named.items() if found} == {}


def test_what_messages_name_exists():
    found = [pair for p in FILES if p.suffix in (".py", ".toml") for pair in cited(messages(p))]
    assert len({title for title, _ in found}) > 5


def test_a_file_and_a_missing_title_are_seen(tmp_path):
    path = tmp_path / "x.py"
    path.write_text('"""See docs/own.md."""\nraise ValueError(f"{1} (see docs/run.md)")\n')
    assert FILE.findall(messages(path)) == ["docs/run.md"]
    with pytest.raises(AssertionError, match="nowhere"):
        cited('docs: "nowhere"')
