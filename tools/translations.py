"""Chinese pages and their English sources.

    python -m tools.translations              # list pages whose source has changed; exit 1 if any
    python -m tools.translations --write      # copy code blocks and generated tables into them
    python -m tools.translations --current [PAGE ...]    # record that they agree with their sources
    python -m tools.translations --outdated   # tell readers which pages are behind their sources

The first line of a translation names its source, and a hash of the prose of each of its sections. A
section is out of date if its hash differs. Code blocks and generated tables are no prose: --write
copies them by their order, so that they are edited in one place.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kernelwright.workbench.lessons import quiz
from kernelwright.workbench.lessons.lesson import BEHIND, NAMES

ROOT = Path(__file__).resolve().parents[1]
LESSONS = Path("src/kernelwright/workbench/lessons")
DOCS = ("tour", "first_reduction", "install", "patch", "judge", "lessons", "glossary")
#: Translations, and their sources.
PAGES = {
    "README.zh-CN.md": "README.md",
    **{f"docs/zh/{name}.md": f"docs/{name}.md" for name in DOCS},
    **{
        str(p.with_name("lesson.zh.md")): str(p)
        for p in sorted(q.relative_to(ROOT) for q in (ROOT / LESSONS).glob("*/lesson.md"))
    },
}
HEADER = re.compile(r"<!-- translation of (\S+):((?: [0-9a-f]{8})*) -->\n+")
NOTICE = "> **本页落后于英文版**，与英文版不一致之处以英文版为准："
_NOTICE = re.compile(rf"^(?:{re.escape(NOTICE)}.*|{BEHIND})\n+", re.M)
#: Blocks that are copied: fenced code, generated tables with their marks, tables of models and
#: families, and indented code.
BLOCK = re.compile(
    r"^```[^\n]*\n.*?^```$|^<!-- table:(?P<name>[^\n]*?) -->\n.*?^<!-- /table -->$"
    r"|^\| (?:family|模型系列|model|模型) \|[^\n]*(?:\n\|[^\n]*)*"
    r"|(?<=\n\n)(?: {4}[^\n]*\n?(?:\n(?= {4}))?)+|^\{\{block\}\}$",
    re.S | re.M,
)
_LISTS = re.compile(r"<!-- (lessons|chapters) -->.*?<!-- /\1 -->", re.S)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`\n]*`")
HEAD = re.compile(r"^(#+) ", re.M)
CHINESE = re.compile(r"[\u4e00-\u9fff]")
#: Words of the headings of copied tables.
WORDS = {
    "operator": "算子",
    "of roof": "达到上限",
    "over PyTorch": "相对 PyTorch",
    "over the best peer": "相对最快的对标实现",
    "family": "模型系列",
    "model": "模型",
    "sum and norm": "求和与 norm",
    "experts": "专家",
    "left": "保持不变",
    "over unpatched": "相对未打补丁",
    "peak memory": "峰值内存",
    "beyond weights and AdamW": "权重与 AdamW 以外",
    "of unpatched": "占未打补丁的",
    "loss of the first steps": "前几步的损失",
}
#: Sentences of generated tables; a group is a figure or a name.
SENTENCES = (
    (
        r"Of (\d+) Triton rungs, (\d+) compiles? to the same machine code "
        r"for an H200 \(`sm_90a`\) with Triton\s(\S+) and\s(\S+): (.*)\.",
        r"\1 个 Triton rung 中，有 \2 个用 Triton \3 和 \4 编译出的"
        r" H200（`sm_90a`）机器码相同：\5。",
    ),
    (
        r"(\d+) layers of (\d+) \((\d+) in the MLP\), (\d+) heads, (\d+) of keys, "
        r"vocabulary (\d+); (\w+), (\d+ x \d+) tokens a step, PyTorch's fused AdamW; on ([\w-]+):",
        r"\1 层，宽 \2（MLP \3），\4 个 head，其中 \5 个 key head，词表 \6；\7，每步 \8 个 token，"
        r"PyTorch 的 fused AdamW；机器 \9：",
    ),
)


def blocks(text: str) -> list[str]:
    """The code blocks and generated tables of a page."""
    return [m[0] for m in BLOCK.finditer(text)]


def prose(text: str) -> str:
    """A page without its header, notice, copied blocks, and what tools.lessons writes."""
    return _LISTS.sub("", BLOCK.sub("", _NOTICE.sub("", HEADER.sub("", text))))


def sections(text: str) -> dict[str, str]:
    """A hash of the prose of each section, by its heading."""
    parts = re.split(r"^(?=## )", prose(text), flags=re.M)
    return {
        p.partition("\n")[0].lstrip("# "): hashlib.sha256(" ".join(p.split()).encode()).hexdigest()[
            :8
        ]
        for p in parts
    }


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def changed(page: str) -> list[str]:
    """The sections of a page's source that are not those that were translated."""
    header = HEADER.match(read(page))
    translated = header[2].split() if header else []
    return [head for head, of in sections(read(PAGES[page])).items() if of not in translated]


def is_outdated(page: str) -> bool:
    """Whether a page has the notice that its source has changed since."""
    return NOTICE in read(page) or BEHIND in read(page)


def copied(text: str, source: str) -> str:
    """A translation with the blocks of its source.

    Raises:
        ValueError: they have different numbers of blocks.
    """
    theirs = blocks(source)
    if len(theirs) != len(blocks(text)):
        raise ValueError(f"{len(blocks(text))} code blocks and tables, its source {len(theirs)}")
    rest = iter(theirs)
    return BLOCK.sub(lambda m: _block(next(rest), m[0]), text)


def _block(source: str, old: str) -> str:
    """A block of a source, for the place of a block of its translation."""
    if source[0] in "<|":
        for english, chinese in SENTENCES:
            source = re.sub(english, chinese, source)
        source = re.sub(r"^\|.*\|(?=\n\| ?-)", lambda m: _headings(m[0]), source, flags=re.M)
    return source.rstrip("\n") + "\n" * (len(old) - len(old.rstrip("\n")))


def _headings(row: str) -> str:
    cells = [c.strip() for c in row.strip("|").split("|")]
    return "| " + " | ".join(WORDS.get(c, c) for c in cells) + " |"


def linked(text: str, page: str) -> str:
    """A copied block's links lead to the same files from the page's folder."""
    here, there = Path(page).parent, Path(PAGES[page]).parent

    def link(m: re.Match[str]) -> str:
        if ":" in m[1] or m[1][0] == "#":
            return m[0]
        to = os.path.relpath(os.path.normpath(there / m[1]), here)
        return m[0].replace(f"({m[1]})", f"({to})")

    return LINK.sub(link, text)


def targets(page: str, text: str) -> Counter[str]:
    """The files and addresses that a page's prose links to; a translation counts as its source."""
    out: Counter[str] = Counter()
    for link in LINK.findall(CODE.sub("", prose(text))):
        path = link.partition("#")[0]
        if ":" not in link:
            path = os.path.normpath(Path(page).parent / path) if path else page
            path = PAGES.get(path, path)
            path = re.sub(r"^docs/zh/lessons/", "docs/lessons/", path)
        out[path] += 1
    return out


def differences(page: str) -> list[str]:
    """How a translation's structure differs from its source's."""
    text, source = read(page), read(PAGES[page])
    out: list[str] = []
    heads = [[len(h) for h in HEAD.findall(prose(t))] for t in (text, source)]
    if heads[0] != heads[1]:
        out.append(f"headings of levels {heads[0]}, its source {heads[1]}")
    # the language switch is the one link that only one of them has
    here, there = targets(page, text), targets(PAGES[page], source)
    for of in (here, there):
        of.pop(PAGES[page], None)
    for path in (here - there) + (there - here):
        out.append(f"links to {path}: {here[path]}, its source {there[path]}")
    try:
        if linked_copy(text, page) != text:
            out.append("a code block or table differs; python -m tools.translations --write")
    except ValueError as e:
        out.append(str(e))
    return out + [f"not translated: {p[:60]}" for p in untranslated(text)]


def linked_copy(text: str, page: str) -> str:
    """A translation with the blocks of its source, whose links are adapted."""
    source = BLOCK.sub(lambda m: linked(m[0], page) if m[0][0] in "<|" else m[0], read(PAGES[page]))
    return copied(text, source)


def untranslated(text: str) -> list[str]:
    """Paragraphs, items and rows of several English words without a Chinese one."""
    parts = re.split(r"\n\s*\n|\n(?=[-|*] |\d+\. |[?!] )", prose(text))
    words = re.compile(r"[A-Za-z]{2,}(?:\s+[A-Za-z]{2,}){3,}")
    plain = [
        re.sub(r"\{\{[^}]*\}\}|<!--.*?-->|^= .*$|\]\([^)]*\)", "", CODE.sub("", p), flags=re.M)
        for p in parts
    ]
    return [p for p in plain if words.search(p) and not CHINESE.search(p)]


def recorded(page: str) -> str:
    """A translation whose header states that it agrees with its source."""
    hashes = " ".join(sections(read(PAGES[page])).values())
    text = _NOTICE.sub("", HEADER.sub("", read(page)))
    return f"<!-- translation of {PAGES[page]}: {hashes} -->\n\n{text}"


def noticed(page: str) -> str:
    """A translation that tells its readers that it is behind its source."""
    text = _NOTICE.sub("", read(page))
    if page.endswith("lesson.zh.md"):
        return text.replace("\n# ", f"\n{BEHIND}\n\n# ", 1)
    source = os.path.relpath(PAGES[page], Path(page).parent)
    head, _, rest = text.partition("\n# ")
    title, _, body = rest.partition("\n")
    return f"{head}\n# {title}\n\n{NOTICE}[English]({source})。\n{body}"


def switches() -> dict[str, str]:
    """By page of the site, the link to the same page in the other language."""
    pairs = {p: s for p, s in PAGES.items() if not p.startswith("src/")}
    pairs |= {f"docs/zh/lessons/{n}.md": f"docs/lessons/{n}.md" for n in NAMES}
    out = {s: _switch("简体中文", s, p) for p, s in pairs.items()}
    return out | {p: _switch("English", p, s) for p, s in pairs.items()}


def _switch(language: str, page: str, other: str) -> str:
    return f"[{language}]({os.path.relpath(other, Path(page).parent)})"


def switched(page: str, text: str) -> str:
    """A page of the site with the link to the other language under its title."""
    link = switches().get(page)
    if link is None or link in text:
        return text
    return re.sub(r"^# .*\n", lambda m: f"{m[0]}\n{link}\n", text, count=1, flags=re.M)


def contents() -> str:
    """The table of contents of the Chinese pages, for the site's menu."""
    names = [os.path.relpath(p, "docs/zh").removesuffix(".md") for p in switches() if "zh" in p]
    lines = "\n".join(names)
    return f"\n```{{toctree}}\n:hidden:\n\n{lines}\n```\n"


def existing() -> list[str]:
    return [p for p in PAGES if (ROOT / p).exists()]


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 1 if a source has changed."""
    option, *pages = arguments or ("--check",)
    for page in pages or existing():
        if option == "--write":
            (ROOT / page).write_text(linked_copy(read(page), page), encoding="utf-8")
        elif option == "--current":
            (ROOT / page).write_text(recorded(page), encoding="utf-8")
        elif option == "--outdated" and changed(page):
            (ROOT / page).write_text(noticed(page), encoding="utf-8")
    changes = {page: changed(page) for page in existing()}
    if asked := quiz.untranslated("zh"):
        changes["quiz.zh.toml"] = asked
    for page, heads in changes.items():
        if heads:
            print(f"{page}: its source has changed in: {'; '.join(heads)}")
    return int(option == "--check" and any(changes.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
