"""The website: its menu, and the names that its search finds pages by. The build
itself, in CI, fails where a link or a page is wrong."""

import re

import pytest

import kernelwright
from kernelwright.ops import COMPOSED, LADDERS
from support.paths import ROOT
from tools import aliases, site

#: A query, and the operator whose page is its first result.
QUERIES = {
    "F.rms_norm": "norm.layer_norm",
    "torch.softmax": "reduce.softmax",
    "LigerRMSNorm": "norm.layer_norm",
    "LigerFusedLinearCrossEntropyLoss": "loss.linear_cross_entropy",
    "LigerSwiGLUMLP": "elementwise.glu",
    "flash attention": "attention.sdpa",
    "flash_attn_varlen_func": "attention.varlen",
    "flash decoding": "attention.decode",
    "FastAtomicAdd": "reduce.dot",
    "MoE": "matmul.grouped",
    "kw.log_softmax": "reduce.softmax",
    "kl_div": "loss.cross_entropy",
    "prefix sum": "scan.cumsum",
}


@pytest.mark.parametrize(("query", "ladder"), QUERIES.items())
def test_an_operator_is_found_by_the_names_of_others(query, ladder):
    assert query.lower() in [name.lower() for name in aliases.names(ladder)]


def test_every_name_of_the_search_leads_to_one_page():
    pages = site.indexed()
    assert [page for page in pages if not (ROOT / page).is_file()] == []
    every = [name.lower() for names in pages.values() for name in names]
    assert sorted({name for name in every if every.count(name) > 1}) == []
    functions = [f for names in (LADDERS | COMPOSED).values() for f in names]
    assert {f for f in functions if f not in every} == set()
    assert aliases.OTHERS.keys() == LADDERS.keys(), "each ladder has names of the field"


def test_an_entry_is_a_main_entry():
    """A main entry is listed before pages that only contain the words."""
    assert site.entries(("kw.patch",)).splitlines() == [
        "```{eval-rst}", ".. index::", "   ! single: kw.patch", "```"
    ]  # fmt: skip


def test_the_menu_has_every_page_of_an_operator_under_its_functions():
    menu = site.operators()
    assert "layer_norm" in next(line for line in menu if "rms_norm" in line)
    pages = {re.sub(r".*<|>", "", line) + ".md" for line in menu}
    assert pages == {str(p.relative_to(ROOT)) for p in (ROOT / site.OPS).rglob("README.md")}


def test_a_page_may_have_another_title_in_the_menu():
    pages = [page for _, names in site.SECTIONS for page in names]
    assert any(page.endswith("<pytorch>") for page in pages)
    files = {re.sub(r".*<|>", "", page) for page in pages} - {"api", "cli"}
    assert [f for f in sorted(files) if not (ROOT / "docs" / f"{f}.md").is_file()] == []


TEXTS = "".join(
    p.read_text(encoding="utf-8")
    for p in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / site.OPS).rglob("*.md"))
)


def test_every_command_module_and_example_is_on_a_page():
    table = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    commands = [c.name or c.callback.__name__ for c in site.cli.app.registered_commands]
    assert [c for c in commands if f"`kernelwright {c}" not in table] == []
    modules = (*kernelwright.nn.__all__, *kernelwright.optim.__all__)
    assert [m for m in modules if m not in TEXTS] == []
    assert [f for f in kernelwright.__all__ if f"kw.{f}" not in TEXTS] == []
    examples = {p.name for p in (ROOT / "examples").iterdir()} - {"__pycache__"}
    assert [name for name in examples if f"examples/{name}" not in TEXTS] == []
