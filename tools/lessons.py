"""Writes the lessons' pages and pictures into docs/lessons and docs/zh/lessons, from a run of each.

    python -m tools.lessons [NAME ...]
    python -m tools.lessons --check    # exit 1 where a page was made of another source

Needs a C++ compiler and no GPU: a page has what is the same on every machine.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

from kernelwright.workbench.lessons import chapters, language, lesson, run
from kernelwright.workbench.lessons.language import translate
from kernelwright.workbench.lessons.lesson import (
    ENGLISH,
    LANGUAGES,
    Code,
    Lesson,
    Question,
    Shown,
    Text,
)
from kernelwright.workbench.lessons.run import Run
from kernelwright.workbench.lessons.tables import RECORD, Table, shown
from tools import machine_pictures

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "lessons"
INTRODUCTION = (
    "runs this lesson and checks your answers. The figures below are the same on every machine; "
    "where there is a GPU, the command also times the kernels on it. "
)
#: Pictures of the machine (tools/machine_pictures.py) after the picture of a lesson.
ALSO = {"roofline": "memory"}
MARK = re.compile(r"<!-- lesson (\w+) of ([0-9a-f]+) -->")


def folder(lang: str) -> Path:
    """The folder of the lessons' pages in a language."""
    return FOLDER if lang == ENGLISH else ROOT / "docs" / lang / "lessons"


def digest(of: Lesson) -> str:
    """A hash of all files from which a lesson's page in its language is made."""
    texts = "" if of.lang == ENGLISH else f".{of.lang}"
    other = [f"lesson.{x}.md" for x in LANGUAGES if f".{x}" != texts]
    files = sorted(p for p in of.folder.iterdir() if p.is_file() and p.name not in other)
    if of.lang != ENGLISH:
        files.append(lesson.FOLDER / f"{of.lang}.toml")
    text = b"".join(p.name.encode() + b"\0" + p.read_bytes() for p in files)
    return hashlib.sha256(text).hexdigest()[:16]


def page(done: Run) -> str:
    """A lesson as a page of the site."""
    of = done.lesson
    parts = [
        f"# {translate(f'Lesson {of.number}.', of.lang)} {of.title}",
        f"<!-- lesson {of.name} of {digest(of)} -->",
        *([f"> {translate(language.BEHIND, of.lang)}"] if of.is_behind else []),
        of.summary,
        f"`kernelwright learn {of.name}{'' if of.lang == ENGLISH else f' --lang {of.lang}'}` "
        + translate(INTRODUCTION, of.lang)
        + f"[{translate('All lessons', of.lang)}](../lessons.md)",
    ]
    for step in of.steps:
        parts.append(f"## {step.title}")
        parts += [_part(part, done) for part in step.parts]
    parts.append(f"## {LANGUAGES[of.lang]}")
    parts += [_question(i, q, done) for i, q in enumerate(of.questions, 1)]
    return "\n\n".join(parts) + "\n"


def _part(part: Text | Code | Shown, done: Run) -> str:
    of = done.lesson
    if isinstance(part, Text):
        return run.filled(part, done.measured, of.lang)
    if isinstance(part, Code):
        return f"```{'cpp' if part.language == 'cuda' else part.language}\n{part.code}\n```"
    if part.table is None:
        drawing = f"![{translate(done.measured.picture.title, of.lang)}]({of.name}.svg)"
        return "\n\n".join([drawing, *_machine(of)])
    return table(done.measured.table(part.table), of.lang)


def _machine(of: Lesson) -> list[str]:
    if of.name not in ALSO:
        return []
    name = ALSO[of.name]
    up = "../" if of.lang == ENGLISH else "../../"
    return [f"![{translate(machine_pictures.TITLES[name], of.lang)}]({up}{name}.svg)"]


def table(source: Table, lang: str = ENGLISH) -> str:
    """A table in Markdown under its title."""
    marked = source.source == RECORD
    sides = [":" * source.is_figures(i) for i in range(len(source.columns))]
    source = language.table(source, lang)
    rows = ["| " + " | ".join(source.columns) + " |"]
    rows.append("| " + " | ".join(f"---{side}" for side in sides) + " |")
    for row in source.rows:
        rows.append("| " + " | ".join(_cell(shown(c)) for c in row) + " |")
    mark = f"**{source.source}**" if marked else source.source
    end = f" ({mark}):" if lang == ENGLISH else f"（{mark}）："
    return f"{source.title}{end}\n\n" + "\n".join(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _question(number: int, q: Question, done: Run) -> str:
    lang = done.lesson.lang
    answer = shown(language.cell(run.answer(q, done.measured), lang))
    if lang == ENGLISH:
        choices, text = f" ({', '.join(q.choices)})", f"{answer}. {q.why}"
    else:
        choices, text = f"（{'、'.join(q.choices)}）", f"{answer}。{q.why}"
    return (
        f"{number}. {q.question}{choices if q.choices else ''}\n\n"
        f"<details><summary>{translate('Answer', lang)}</summary>\n\n{text}\n\n</details>"
    )


def write(name: str) -> None:
    """Run a lesson and write its pages and pictures."""
    done = run.run(lesson.read(name), timed=False)
    for lang in LANGUAGES:
        of = replace(done, lesson=lesson.read(name, lang))
        folder(lang).mkdir(parents=True, exist_ok=True)
        (folder(lang) / f"{name}.md").write_text(page(of), encoding="utf-8")
        drawing = run.drawn(of.lesson, done.measured.picture)
        (folder(lang) / f"{name}.svg").write_text(drawing, encoding="utf-8")


def stale(lang: str = ENGLISH) -> list[str]:
    """Lessons whose page is missing or was made of other files."""
    names: list[str] = []
    for name in lesson.NAMES:
        path = folder(lang) / f"{name}.md"
        mark = MARK.search(path.read_text(encoding="utf-8")) if path.exists() else None
        if mark is None or mark.groups() != (name, digest(lesson.read(name, lang))):
            names.append(name)
    return names


def contents(lang: str = ENGLISH) -> str:
    """docs/lessons.md: the lessons, and what they and the exercises correspond to."""
    text = (folder(lang).parent / "lessons.md").read_text(encoding="utf-8")
    for name, text_of_list in (("lessons", listing(lang)), ("chapters", chapters.markdown(lang))):
        text = re.sub(
            rf"<!-- {name} -->\n.*?<!-- /{name} -->",
            lambda _, n=name, m=text_of_list: f"<!-- {n} -->\n{m}\n<!-- /{n} -->",
            text,
            flags=re.S,
        )
    return text


def listing(lang: str = ENGLISH) -> str:
    rows = [f"| | {translate('lesson', lang)} | |", "| ---: | --- | --- |"]
    for name in lesson.NAMES:
        of = lesson.read(name, lang)
        rows.append(f"| {of.number} | [{of.title}](lessons/{name}.md) | {of.summary} |")
    return "\n".join(rows)


def main(arguments: list[str]) -> None:
    if arguments == ["--check"]:
        stale_pages = [
            (folder(x) / f"{n}.md").relative_to(ROOT) for x in LANGUAGES for n in stale(x)
        ]
        for path in stale_pages:
            print(f"{path}: made of other files")
        if stale_pages:
            sys.exit("python -m tools.lessons writes them")
        return
    for name in arguments or lesson.NAMES:
        write(lesson.named(name).name)
        print(f"docs/lessons/{name}.md", flush=True)
    for lang in LANGUAGES:
        (folder(lang).parent / "lessons.md").write_text(contents(lang), encoding="utf-8")


if __name__ == "__main__":
    # as on a machine without a GPU, and with the shipped records alone
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.pop("KW_RECORDS", None)
    main(sys.argv[1:])
