"""Reads a lesson's text. Importing this loads neither torch nor a measurement.

lesson.md is Markdown: a title, a paragraph that the list of lessons shows, and steps under headings
of the second level. A separate line may be

    {{code copy.cu}}               a file of the folder, without its leading comment
    {{code copy.cu strided}}       one function of it
    {{table strides}}              a table of the run
    {{picture}}                    the picture of the run

and {{strides | 8 | sectors}} in a sentence is a cell of a table. The last heading is "Questions".
Each question is a line "? question", a line "= table | row | column" with the cell that contains
the answer, for an answer in words a line ": one | another", and a line "! why".

lesson.zh.md is the same in Chinese; the cells of its questions are those of lesson.md. A comment
BEHIND in its head says that lesson.md has changed since.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernelwright.support.errors import UsageError

FOLDER = Path(__file__).resolve().parent
#: The number of each lesson, in the order of the course.
NUMBERS = {
    "host_device": 1,
    "indexing": 2,
    "global_memory": 3,
    "shared_memory": 4,
    "warps": 5,
    "occupancy": 6,
    "launches": 7,
    "roofline": 8,
    "ptx": 9,
    "measuring": 10,
}
NAMES = tuple(NUMBERS)
ENGLISH = "en"
#: The languages of lessons, and the title of the section of questions.
LANGUAGES = {ENGLISH: "Questions", "zh": "习题"}
CELL = re.compile(r"\{\{([\w ]+)\|([^|}]+)\|([^|}]+)\}\}")
BEHIND = "<!-- behind its source -->"
_COMMENTS = re.compile(r"\A(?:<!--.*?-->\s*)*", re.S)
_BLOCK = re.compile(r"^\{\{(code|table|picture)((?: [\w.]+)*)\}\}$", re.M)
_LANGUAGES = {".cu": "cuda", ".py": "python", ".sh": "sh"}
_KINDS = {"?": "question", "=": "cell", ":": "choices", "!": "why"}


@dataclass(frozen=True)
class Text:
    """Markdown, with cells of tables by name."""

    text: str


@dataclass(frozen=True)
class Code:
    language: str
    file: str
    code: str


@dataclass(frozen=True)
class Shown:
    """A table of the run, by its name, or the run's picture."""

    table: str | None


@dataclass(frozen=True)
class Step:
    title: str
    parts: tuple[Text | Code | Shown, ...]


@dataclass(frozen=True)
class Question:
    """`cell`: the table, row and column of the run that contain the answer. `choices`: for an
    answer in words."""

    question: str
    cell: tuple[str, str, str]
    choices: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Lesson:
    name: str
    number: int
    title: str
    summary: str
    steps: tuple[Step, ...]
    questions: tuple[Question, ...]
    lang: str = ENGLISH
    is_behind: bool = False

    @property
    def folder(self) -> Path:
        return FOLDER / self.name


def named(name: str, lang: str = ENGLISH) -> Lesson:
    """A lesson by its name or its number.

    Raises:
        UsageError: there is no such lesson.
    """
    name = next((n for n, number in NUMBERS.items() if str(number) == name), name)
    if name not in NAMES:
        raise UsageError(f"{name}: there is no such lesson; there are {', '.join(NAMES)}")
    return read(name, lang)


def read(name: str, lang: str = ENGLISH) -> Lesson:
    """Raises:
    ValueError: the text has no title, no question, or an unknown line.
    """
    file = "lesson.md" if lang == ENGLISH else f"lesson.{lang}.md"
    text = (FOLDER / name / file).read_text(encoding="utf-8")
    is_behind = BEHIND in text
    text = _COMMENTS.sub("", text)
    head, *sections = re.split(r"^## (?=\S)", text, flags=re.M)
    title, _, summary = head.removeprefix("# ").partition("\n")
    titles = [s.partition("\n")[0] for s in sections]
    if not head.startswith("# ") or not titles or titles[-1] != LANGUAGES[lang]:
        raise ValueError(f"{name}: a lesson begins with a title and ends with its questions")
    steps = tuple(_step(FOLDER / name, s) for s in sections[:-1])
    asked = sections[-1].partition("\n")[2].strip()
    cells = [q.cell for q in read(name).questions] if lang != ENGLISH else ()
    questions = tuple(
        _question(block, *cells[i : i + 1]) for i, block in enumerate(asked.split("\n\n"))
    )
    summary = " ".join(summary.split())
    return Lesson(name, NUMBERS[name], title, summary, steps, questions, lang, is_behind)


def _step(folder: Path, section: str) -> Step:
    title, _, body = section.partition("\n")
    parts: list[Text | Code | Shown] = []
    at = 0
    for match in _BLOCK.finditer(body):
        parts += _text(body[at : match.start()])
        parts.append(_block(folder, match[1], match[2].split()))
        at = match.end()
    return Step(title, (*parts, *_text(body[at:])))


def _text(text: str) -> list[Text]:
    rest = CELL.sub("", text)
    if "{{" in rest:
        raise ValueError(f"not a block or a cell: {rest[rest.index('{{') :].splitlines()[0]}")
    return [Text(text.strip("\n"))] if text.strip() else []


def _block(folder: Path, kind: str, words: list[str]) -> Code | Shown:
    if kind == "code":
        path = folder / words[0]
        code = _body(path.read_text(encoding="utf-8"), path.suffix)
        code = _function(code, words[1]) if len(words) > 1 else code
        return Code(_LANGUAGES[path.suffix], path.name, code.strip("\n"))
    return Shown(words[0] if kind == "table" else None)


def _body(text: str, suffix: str) -> str:
    """A file without its leading comment."""
    lead = r"(?:\s*//.*\n)+" if suffix == ".cu" else r'(?:"""[\s\S]*?"""|(?:#.*\n)+)'
    return re.sub(rf"\A{lead}", "", text)


def _function(code: str, name: str) -> str:
    """The function with the given name: from the paragraph that declares it to its closing line.

    Raises:
        ValueError: there is no such function.
    """
    match = re.search(rf"(?:^(?![\s}}]).*\n)*?^(?![\s}}]).*\b{name}\(", code, re.M)
    if match is None:
        raise ValueError(f"there is no function {name}")
    rest = code[match.start() :]
    end = re.search(r"^\}\n|\n\n\n|\Z", rest, re.M)
    assert end is not None
    return rest[: end.end()]


def _question(block: str, cell: tuple[str, ...] = ()) -> Question:
    said = {"choices": "", "cell": " | ".join(cell)}
    for line in block.splitlines():
        if line[:1] not in _KINDS or line[1:2] != " ":
            raise ValueError(f"not a line of a question: {line}")
        said[_KINDS[line[0]]] = line[2:].strip()
    table, row, column = (p.strip() for p in said["cell"].split("|"))
    choices = tuple(c.strip() for c in said["choices"].split("|") if c.strip())
    return Question(said["question"], (table, row, column), choices, said["why"])
