"""Builds the documentation as a static site, in site/.

    python -m tools.site

The pages are README.md, docs/, the README.md files of the operators and of the emulator's
libraries, and two generated ones: the API, from the docstrings of the public functions, and the
commands, from their help. The first page is README.md. The search finds an operator by all names
in tools/aliases.py. Sphinx fails the build where a link leads nowhere. Nothing on the site is
loaded from elsewhere.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import typer

import kernelwright
from kernelwright import cli
from kernelwright.ops import LADDERS
from kernelwright.workbench.lessons import lesson
from tools import aliases, translations

ROOT = Path(__file__).resolve().parents[1]
OPS, LIBRARIES = Path("src/kernelwright/ops"), "src/kernelwright/emulator/libraries"
SOURCE, OUT = ROOT / ".cache" / "site", ROOT / "site"
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
#: The sections of the site: title, and pages of docs/, some under another title in the menu.
SECTIONS = (
    ("Start", ("All pages <README>", "install", "tour")),
    (
        "Train faster",
        (
            "patch",
            "families",
            "operators",
            "Autograd, torch.compile, DTensor: what works <pytorch>",
            "language_models",
            "serve_http",
            "serving",
            "export",
            "training",
        ),
    ),
    ("Judge a kernel", ("judge", "compare", "emulator", "mutations")),
    (
        "Learn CUDA and Triton",
        (
            "first_reduction",
            "lessons",
            *(f"lessons/{n}" for n in lesson.NAMES),
            "exercises",
            "inference",
            "layouts",
            "notes",
            "dissect",
            "run",
            "glossary",
        ),
    ),
    (
        "Reference",
        ("api", "commands", "cli", "report", "NVIDIA's libraries <../" + LIBRARIES + "/README>"),
    ),
    ("中文", ("zh/README",)),
)


def main() -> int:
    from sphinx.cmd.build import main as sphinx

    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE / "docs")
    shutil.copytree(ROOT / OPS, SOURCE / OPS, ignore=shutil.ignore_patterns("__pycache__"))
    (SOURCE / LIBRARIES).mkdir(parents=True)
    pages = ("README.md", "README.zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md")
    for name in (*pages, f"{LIBRARIES}/README.md"):
        shutil.copy(ROOT / name, SOURCE / name)
    (SOURCE / "docs" / "api.md").write_text(api(), encoding="utf-8")
    (SOURCE / "docs" / "cli.md").write_text(commands(), encoding="utf-8")
    index = SOURCE / "README.md"
    index.write_text(index.read_text(encoding="utf-8") + contents(), encoding="utf-8")
    for page, names in indexed().items():
        text = (SOURCE / page).read_text(encoding="utf-8")
        title, rest = text.split("\n", 1)
        (SOURCE / page).write_text(f"{title}\n\n{entries(names)}\n{rest}", encoding="utf-8")
    link_translations()
    for page in SOURCE.rglob("*.md"):
        page.write_text(linked(page.read_text(encoding="utf-8"), page.parent), encoding="utf-8")
    shutil.rmtree(OUT, ignore_errors=True)
    done = sphinx(
        ["-q", "-W", "--keep-going", "-E", "-c", str(ROOT / "docs"), "-d", str(SOURCE / ".tree"),
         str(SOURCE), str(OUT)]
    )  # fmt: skip
    if done == 0:
        for page in (*(OUT / "docs" / "zh").rglob("*.html"), OUT / "README.zh-CN.html"):
            text = page.read_text(encoding="utf-8")
            page.write_text(text.replace('lang="en"', 'lang="zh-CN"', 1), encoding="utf-8")
        shutil.copy(OUT / "README.html", OUT / "index.html")
        print(OUT / "index.html")
    return done


def link_translations() -> None:
    """Add the links between a page and its translation, and the menu of the Chinese pages."""
    for page in translations.switches():
        text = (SOURCE / page).read_text(encoding="utf-8")
        (SOURCE / page).write_text(translations.switched(page, text), encoding="utf-8")
    index = SOURCE / "docs" / "zh" / "README.md"
    text = index.read_text(encoding="utf-8") + translations.contents()
    index.write_text(text, encoding="utf-8")


def linked(text: str, folder: Path) -> str:
    """A page whose links to a folder lead to the page in it, and whose links to a file that is no
    page are its name: the site has pages and pictures only."""

    def link(match: re.Match[str]) -> str:
        target = folder / match[2]
        if ":" in match[2] or match[1][0] == "!":
            return match[0]
        if (target / "README.md").exists():
            return f"{match[1]}{match[2].rstrip('/')}/README.md{match[3]}"
        if target.suffix == ".md":
            return match[0]
        return match[1][1:-2]

    return LINK.sub(link, text)


def indexed() -> dict[str, tuple[str, ...] | list[str]]:
    """By page, the names that the search finds it by."""
    pages = {f"docs/{name}.md": names for name, names in aliases.DOCS.items()}
    return pages | {page(ladder): aliases.names(ladder) for ladder in LADDERS}


def page(ladder: str) -> str:
    return str(OPS / ladder.replace(".", "/") / "README.md")


def entries(names: tuple[str, ...] | list[str]) -> str:
    """Index entries of a page. Those marked with "!" are main entries, which the search lists
    before pages that merely contain the words."""
    lines = "\n".join(f"   ! single: {name}" for name in names)
    return f"```{{eval-rst}}\n.. index::\n{lines}\n```\n"


def contents() -> str:
    """The table of contents, which the side bar shows."""
    out = ""
    listed = {re.sub(r".*<|>", "", page) for _, pages in SECTIONS for page in pages}
    every = sorted(p.stem for p in (SOURCE / "docs").glob("*.md"))
    others = [name for name in every if name not in listed]
    for title, pages in SECTIONS:
        names = [*pages, *(others if title == "Reference" else ())]
        out += _tree(title, [re.sub(r"([^<>]+)(>?)$", r"docs/\1\2", name) for name in names])
    out += _tree("Operators", operators())
    return out + _tree("Contribute", ("CONTRIBUTING", "CHANGELOG"))


def operators() -> list[str]:
    """The operators' pages under the names of their functions, and the pages in their folders."""
    titles = {", ".join(names): page(ladder) for ladder, names in LADDERS.items()}
    folders = {Path(p).parent for p in titles.values()}
    for path in sorted((ROOT / OPS).glob("*/*/*/**/README.md")):
        parent = next(f for f in path.relative_to(ROOT).parents if f in folders)
        heading = path.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")
        titles[f"{parent.name}: {heading}"] = str(path.relative_to(ROOT))
    return [f"{title} <{titles[title].removesuffix('.md')}>" for title in sorted(titles)]


def _tree(title: str, pages: tuple[str, ...] | list[str]) -> str:
    lines = "\n".join(pages)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n"


def api() -> str:
    """The public functions and classes, by their docstrings."""
    out = "# API\n\nEverything in `kernelwright`, usually imported as `kw`.\n"
    for name in sorted(kernelwright.__all__):
        kind = "class" if isinstance(getattr(kernelwright, name), type) else "function"
        out += f"\n## {name}\n\n```{{eval-rst}}\n.. auto{kind}:: kernelwright.{name}\n```\n"
    for module in kernelwright._MODULES:
        part = getattr(kernelwright, module)
        for name in part.__all__:
            kind = "class" if isinstance(getattr(part, name), type) else "function"
            full = f"{module}.{name}"
            out += f"\n## {full}\n\n```{{eval-rst}}\n.. auto{kind}:: kernelwright.{full}\n```\n"
    return out


def commands() -> str:
    """Every command: what it does, its arguments and its options."""
    out = "# Command line\n\nEvery command has `--help`. [Commands](commands.md) is an overview.\n"
    for name, command in typer.main.get_command(cli.app).commands.items():
        out += f"\n## kernelwright {name}\n\n{_prose(command.help or '')}\n\n"
        out += "| argument or option | meaning |\n| --- | --- |\n"
        for parameter in command.params:
            names = ", ".join(parameter.opts) if parameter.opts[0][0] == "-" else parameter.metavar
            words = (parameter.help or "").replace("|", "\\|").replace("<", "&lt;")
            out += f"| `{(names or parameter.name).replace('|', chr(92) + '|')}` | {words} |\n"
    return out


def _prose(text: str) -> str:
    """A help text as Markdown: its blocks that keep their lines are code."""
    out: list[str] = []
    for part in text.split("\n\n"):
        out.append(f"```text\n{part[1:].strip(chr(10))}\n```" if part.startswith("\b") else part)
    return "\n\n".join(out)


if __name__ == "__main__":
    sys.exit(main())
