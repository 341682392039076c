"""Chinese pages: the structure of their sources, nothing left in English, current or marked, and
the words of the glossary."""

import re

import pytest

from kernelwright.workbench.lessons import lesson, quiz
from support.paths import ROOT
from tools import translations

PAGES = list(translations.PAGES)
SOURCE = """# Title

A first paragraph of several words, and a [link](docs/families.md).

    a command

## Part

<!-- table:t -->
| operator | of roof |
| --- | ---: |
| [softmax](src/kernelwright) | 92% |
<!-- /table -->
"""
PAGE = """# 标题

第一段，以及[链接](../families.md)。

{{block}}

## 部分

<!-- table:t -->
<!-- /table -->
"""


def written(tmp_path, monkeypatch, source=SOURCE, page=PAGE):
    """A translation in an empty folder; returns its name."""
    monkeypatch.setattr(translations, "ROOT", tmp_path)
    monkeypatch.setattr(translations, "PAGES", {"docs/zh/page.md": "page.md"})
    (tmp_path / "docs" / "zh").mkdir(parents=True)
    (tmp_path / "page.md").write_text(source)
    (tmp_path / "docs" / "zh" / "page.md").write_text(page)
    translations.main(["--write"])
    translations.main(["--current"])
    return "docs/zh/page.md"


@pytest.mark.parametrize("page", PAGES)
def test_a_translation_is_current_or_says_that_it_is_not(page):
    """Who changes an English page and does not translate it: tools.translations --outdated."""
    assert translations.changed(page) == [] or translations.is_outdated(page)


@pytest.mark.parametrize("page", PAGES)
def test_a_translation_has_the_structure_of_its_source(page):
    if not translations.is_outdated(page):
        assert translations.differences(page) == []


@pytest.mark.parametrize("name", lesson.NAMES)
def test_a_translated_lesson_includes_the_same_code_tables_and_questions(name):
    english, chinese = lesson.read(name), lesson.read(name, "zh")
    if not chinese.is_behind:
        shown = [
            [[p for p in step.parts if not isinstance(p, lesson.Text)] for step in of.steps]
            for of in (english, chinese)
        ]
        assert shown[0] == shown[1]
        assert [q.cell for q in english.questions] == [q.cell for q in chinese.questions]


def test_a_source_that_changes_is_found_by_its_sections(tmp_path, monkeypatch, capsys):
    page = written(tmp_path, monkeypatch)
    assert translations.main([]) == 0 and translations.differences(page) == []
    (tmp_path / "page.md").write_text(SOURCE.replace("92%", "93%").replace("a command", "another"))
    assert translations.changed(page) == []  # code and figures are no prose
    assert "--write" in translations.differences(page)[0]
    translations.main(["--write"])
    assert translations.differences(page) == []
    (tmp_path / "page.md").write_text(SOURCE.replace("several", "many"))
    assert translations.main([]) == 1 and "changed in: Title\n" in capsys.readouterr().out


def test_readers_are_told_until_the_translation_is_current_again(tmp_path, monkeypatch):
    page = written(tmp_path, monkeypatch)
    (tmp_path / "page.md").write_text(SOURCE.replace("several", "many"))
    assert not translations.is_outdated(page)
    translations.main(["--outdated"])
    assert translations.is_outdated(page) and "](../../page.md)" in translations.read(page)
    translations.main(["--current"])
    assert not translations.is_outdated(page) and translations.changed(page) == []


@pytest.mark.parametrize(
    ("page", "said"),
    [(PAGE.replace("## 部分\n", ""), "headings"), (PAGE.replace("families.md", "tour.md"), "links"),
     (PAGE.replace("{{block}}\n", ""), "code blocks"),
     (PAGE + "\nThis paragraph is still in English.\n", "not translated: This paragraph")],
    ids=["a heading", "a link", "a block", "a paragraph"],
)  # fmt: skip
def test_a_translation_of_another_structure_is_found(tmp_path, monkeypatch, page, said):
    try:
        name = written(tmp_path, monkeypatch, page=page)
    except ValueError as e:  # --write refuses it
        assert said in str(e)
        return
    assert any(said in d for d in translations.differences(name))


def test_copied_tables_have_chinese_headings_and_links_from_their_folder(tmp_path, monkeypatch):
    text = translations.read(written(tmp_path, monkeypatch))
    assert "| 算子 | 达到上限 |" in text and "[softmax](../../src/kernelwright)" in text


def test_the_site_links_a_page_and_its_translation_once():
    links = translations.switches()
    assert links["docs/tour.md"] == "[简体中文](zh/tour.md)"
    assert links["docs/zh/lessons/ptx.md"] == "[English](../../lessons/ptx.md)"
    text = translations.switched("docs/tour.md", "# A tour\n\nText.\n")
    assert text == "# A tour\n\n[简体中文](zh/tour.md)\n\nText.\n"
    assert translations.switched("docs/tour.md", text) == text
    assert translations.switched("docs/compare.md", text) == text
    assert all((ROOT / page).exists() for page in links)


def test_the_menu_of_the_site_has_every_chinese_page():
    pages = {str(p.relative_to(ROOT / "docs/zh")) for p in (ROOT / "docs/zh").rglob("*.md")}
    listed = translations.contents().split("\n\n", 1)[1].splitlines()
    assert pages - {"README.md"} <= {f"{name}.md" for name in listed}


def test_the_glossary_has_every_term():
    english = re.findall(r"^\*\*(.+?)\.\*\*", translations.read("docs/glossary.md"), re.M)
    chinese = translations.read("docs/zh/glossary.md")
    assert english == re.findall(r"^\*\*.+?（(.+)）。\*\*", chinese, re.M)


#: Other translations of terms of docs/zh/glossary.md.
AVOIDED = (
    "内核",
    "核函数",
    "线程束",
    "共享存储器",
    "全局存储器",
    "束内",
    "仿真器",
    "张量核心",
)


@pytest.mark.parametrize(
    "page",
    [*PAGES, "docs/zh/README.md", *(f"{translations.LESSONS}/{n}.toml" for n in ("zh", "quiz.zh"))],
)
def test_terms_are_those_of_the_glossary(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [word for word in AVOIDED if word in text] == []


def test_every_question_of_the_quiz_is_asked_in_chinese_or_is_listed():
    english, chinese = quiz.items(), quiz.items("zh")
    for of, translated in zip(english, chinese, strict=True):
        assert translated.letter == of.letter and translated.see == of.see
        is_chinese = re.search(r"[\u4e00-\u9fff]", translated.question + translated.why)
        assert is_chinese or of.question in quiz.untranslated("zh")
