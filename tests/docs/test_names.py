"""Functions, commands and options that the pages name exist."""

import re

import pytest
import typer.main

import kernelwright as kw
from kernelwright import cli
from support.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = typer.main.get_command(cli.app).commands
#: A figure with the unit of a time or rate, or a ratio of times.
TIMING = re.compile(
    r"\d ?(us|µs|[TG]B/s|TFLOPS?(/s)?)\b|\d\.\d+ times as (fast|long)|\d ?% (faster|slower)"
)
#: Kernels' own sources, whose next change removes it.
WITH_TIMINGS = {"ops/attention/sdpa/cuda_wgmma_dynamic.cu"}


def quoted(page):
    """The inline code of a page, without blocks of code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_public_names_exist(page):
    for code in quoted(page):
        for name in re.findall(r"(?<![\w.])kw\.([a-z_A-Z][\w.]*\w|[a-z]\w*)", code):
            found = kw
            for part in name.split("."):
                assert hasattr(found, part), code
                found = getattr(found, part)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_commands_and_their_options_exist(page):
    for code in quoted(page):
        words = code.removeprefix("kernelwright ").split()
        if not words or (words[0] not in COMMANDS and not code.startswith("kernelwright ")):
            continue
        name = words[0].partition("|")[0]
        if name.startswith("-"):
            continue
        assert name in COMMANDS, code
        options = {o for p in COMMANDS[name].params for o in (*p.opts, *p.secondary_opts)}
        named = {w.partition("=")[0] for w in words[1:] if re.match(r"--[a-z]", w)}
        assert named <= options | {"--help"}, code


def test_the_pages_name_something():
    codes = [code for page in PAGES for code in quoted(page)]
    assert sum("kw." in code for code in codes) > 50
    assert sum(code.split()[0] in COMMANDS for code in codes if code.strip()) > 50


def test_comments_have_no_timings():
    """They are true of one version on one machine: they belong to records."""
    package = ROOT / "src" / "kernelwright"
    files = [p for part in ("ops", "dispatch", "contract", "include")
             for p in (package / part).rglob("*") if p.suffix in (".py", ".cu", ".cuh")
             and not {"lesson", "exercises.py"} & set(p.relative_to(package).parts)]  # fmt: skip
    assert len(files) > 300
    found = {str(p.relative_to(package)) for p in files if TIMING.search(p.read_text("utf-8"))}
    assert found == WITH_TIMINGS
