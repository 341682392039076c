"""The lessons: their pages equal the output of a run, the answers come from the run, and wrong
answers are distinguished from right ones."""

import json
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from kernelwright import cli, emulator
from kernelwright.cli.render import lessons as show
from kernelwright.cli.render.terminal import Output
from kernelwright.workbench.lessons import chapters, language, lesson, run
from kernelwright.workbench.lessons.lesson import Code, Question, Shown, Text
from kernelwright.workbench.lessons.tables import EMULATOR, Measured, Picture, Table
from kernelwright.workbench.report.strips import Strip
from support.paths import ROOT
from support.publics import gpu
from tools import lessons as pages

emulated = pytest.mark.skipif(bool(emulator.missing("dissected")), reason="no C++ compiler here")
SHORT = "global_memory"  # the lesson that `make test` runs
RUN = [n if n == SHORT else pytest.param(n, marks=pytest.mark.long) for n in lesson.NAMES]
TABLE = Table("t", "T", ("row", "n"), (("a", 4.0), ("b", "warp")), EMULATOR)
MEASURED = Measured((TABLE,), Picture("P", (), (Strip("s", (0.5, 0), "half"),)))


def call(capfd, *arguments):
    capfd.readouterr()
    with pytest.raises(SystemExit) as stopped:
        cli.main(["learn", *arguments])
    out, err = capfd.readouterr()
    return stopped.value.code, out, err


@pytest.mark.parametrize("lang", lesson.LANGUAGES)
def test_pages_are_of_the_current_lessons(lang):
    assert pages.stale(lang) == []
    contents = pages.folder(lang).parent / "lessons.md"
    assert pages.contents(lang) == contents.read_text(encoding="utf-8")


@emulated
@pytest.mark.parametrize("name", RUN)
def test_a_page_has_the_output_of_a_run(name):
    done = run.run(lesson.read(name), timed=False)
    for lang in lesson.LANGUAGES:
        of = replace(done, lesson=lesson.read(name, lang))
        found = (pages.folder(lang) / f"{name}.md").read_text(encoding="utf-8")
        if done.measured.versions not in found and lang == lesson.ENGLISH:
            pytest.skip(f"the page is of other compilers than {done.measured.versions}")
        assert found == pages.page(of)
        drawn = (pages.folder(lang) / f"{name}.svg").read_text(encoding="utf-8")
        assert drawn == run.drawn(of.lesson, done.measured.picture)
        if lang == "zh":
            assert untranslated(done.measured) == []


def untranslated(measured):
    """Titles, headings and notes of a run without Chinese words, but for names and units."""
    tables = [t for t in measured.tables if t.name != "asked"]
    words = [w for t in tables for w in (t.title, t.source, *t.columns)]
    words += [measured.picture.title, *measured.picture.notes]
    words += [w for s in measured.picture.strips for w in (s.label, s.words)]
    plain = [w for w in words if re.search(r"[A-Za-z]{2,} [a-z]{2,}", w)]
    return [w for w in plain if not re.search(r"[\u4e00-\u9fff]", language.translate(w, "zh"))]


@pytest.mark.parametrize("name", lesson.NAMES)
def test_a_lesson_shows_a_picture_and_asks_what_its_tables_do_not_show(name):
    of = lesson.read(name)
    shown = [p.table for s in of.steps for p in s.parts if isinstance(p, Shown)]
    assert shown.count(None) == 1 and len(shown) > 1
    assert len(of.questions) == 2
    assert not {q.cell[0] for q in of.questions} & set(shown)


@pytest.mark.parametrize("name", lesson.NAMES)
def test_code_fits_a_terminal_of_80_columns(name):
    parts = [p for s in lesson.read(name).steps for p in s.parts]
    lines = [x for p in parts if isinstance(p, Code) for x in p.code.splitlines()]
    texts = [x for p in parts if isinstance(p, Text) for x in p.text.splitlines()]
    assert [x for x in lines if len(x) > 78] == []
    assert [x for x in texts if x.startswith("    ") and len(x) > 78] == []


def test_a_table_with_long_texts_wraps_them():
    long = "a text that is longer than any line of a narrow terminal, and is not cut"
    table = Table("t", "T", ("row", "n", "what"), (("a", 4.0, long),), EMULATOR)
    out = Output(None)
    out.width, out._force_terminal = 60, True
    with out.capture() as found:
        out.print(show._table(table))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", found.get()).splitlines()
    assert max(map(len, lines)) <= 60 and " ".join(lines[3:-1]).split()[2:] == long.split()


@emulated
def test_answers_are_checked_and_the_picture_is_written(capfd, tmp_path):
    picture = tmp_path / "p.svg"
    answers = ("--answer", "12", "--answer", "4")
    code, out, _ = call(capfd, SHORT, "--json", *answers, "--picture", str(picture))
    assert picture.read_bytes() == (pages.FOLDER / f"{SHORT}.svg").read_bytes()
    found = json.loads(out)
    assert code == 1 and found["checked"] == [True, False]
    assert {t["name"]: t["rows"] for t in found["tables"]}["strides"][0] == ["1", 32, 4.0, "100%"]


@emulated
def test_a_lesson_in_chinese_shows_chinese_tables_and_checks_answers(capfd):
    code, out, _ = call(capfd, SHORT, "--lang", "zh", "--answer", "12", "--answer", "4")
    assert code == 1 and "第 1 题" in out and "正确：12。" in out and "错误，正确答案是：5。" in out


def test_a_lesson_stops_between_its_steps_on_a_terminal(capfd, monkeypatch):
    """Else the first step has scrolled away when the last is printed."""
    prompts = []

    def answer(out, prompt):
        prompts.append(prompt)
        if "page" not in prompt:
            raise EOFError
        return ""

    monkeypatch.setattr(Output, "is_terminal", True)
    monkeypatch.setattr(Output, "input", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    call(capfd, SHORT)
    steps = len(lesson.read(SHORT).steps)
    assert prompts == ["Enter for the next page: "] * (steps - 1) + ["your answer: "]


@pytest.mark.parametrize(
    ("names", "lang"),
    [({"LANG": "zh_CN.UTF-8"}, "zh"), ({"LANG": "en_US.UTF-8"}, "en"), ({"LANG": "C"}, "en"),
     ({}, "en"), ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
     ({"LC_MESSAGES": "zh"}, "zh"), ({"LANG": "zha_CN"}, "en")],
)  # fmt: skip
def test_the_language_is_that_of_the_locale(monkeypatch, names, lang):
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert language.chosen(None) == lang
    assert language.chosen("zh") == "zh" and language.chosen("en") == "en"


def test_lessons_and_the_quiz_follow_the_locale_but_json_does_not(capfd, monkeypatch):
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert "全局内存" in call(capfd)[1]
    assert "全局内存" not in call(capfd, "--json")[1]
    first = [json.loads(call(capfd, "--quiz", "--json", *o)[1])[0] for o in ((), ("--lang", "zh"))]
    assert [of["topic"] for of in first] == ["hierarchy", "线程层次"]


def test_words_of_the_answer_are_right_in_both_languages(monkeypatch):
    monkeypatch.setattr(language, "_words", lambda lang: {"warp": "线程组"} if lang == "zh" else {})
    word = Question("?", ("t", "b", "n"), ("warp", "lane"), "")
    assert run.right("warp", word, MEASURED) and run.right("线程组", word, MEASURED)


def test_numbers_of_words_are_those_of_the_source(monkeypatch):
    monkeypatch.setattr(language, "_words", lambda lang: {"# of # lanes": "# / # 个 lane"})
    assert language.translate("16 of 32 lanes", "zh") == "16 / 32 个 lane"
    assert (
        language.translate("H200", "zh") == "H200"
        and language.translate("no entry 3", "zh") == "no entry 3"
    )


def test_lines_of_a_drawing_end_between_words_and_after_punctuation():
    text = "每格是一个 lane。只有少数 lane 活跃的指令，用时与全部 lane 都活跃时，一样长。"
    lines = language.lines(text)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "") and len(lines) == 2
    assert all(language._width(x) <= language.WIDTH for x in lines)
    assert not any(x[0] in "，。： " for x in lines)
    assert language.lines("one two") == ["one two"]


def test_a_lesson_that_is_behind_says_so(tmp_path, monkeypatch):
    folder = tmp_path / SHORT
    folder.mkdir()
    for path in lesson.read(SHORT).folder.glob("*.*"):
        (folder / path.name).write_bytes(path.read_bytes())
    text = (folder / "lesson.zh.md").read_text(encoding="utf-8")
    (folder / "lesson.zh.md").write_text(text.replace("\n# ", f"\n{lesson.BEHIND}\n\n# ", 1))
    monkeypatch.setattr(lesson, "FOLDER", tmp_path)
    assert lesson.read(SHORT, "zh").is_behind and not lesson.read(SHORT).is_behind


def test_a_number_is_right_within_a_hundredth_and_words_whole():
    number = Question("?", ("t", "a", "n"), (), "")
    word = Question("?", ("t", "b", "n"), ("warp", "lane"), "")
    given = {"4": True, " 4.0 ": True, "4.03": True, "4.1": False, "-4": False, "four": False}
    assert {g: run.right(g, number, MEASURED) for g in given} == given
    assert run.right("Warp", word, MEASURED) and not run.right("wa", word, MEASURED)


def test_a_cell_that_is_not_there_is_an_error():
    with pytest.raises(KeyError, match="no cell 'c', 'n'"):
        TABLE.cell("c", "n")
    with pytest.raises(KeyError, match="no table u"):
        run.filled(Text("{{u | a | n}}"), MEASURED)
    assert run.filled(Text("in {{t | a | n}} steps"), MEASURED) == "in 4 steps"


def test_a_block_that_is_not_known_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"not a block or a cell: \{\{figure strides\}\}"):
        lesson._step(tmp_path, "Title\n\n{{figure strides}}\n")
    (tmp_path / "a.cu").write_text("// Head.\n\nint f() {\n  return 1;\n}\n\nint g() {\n}\n")
    step = lesson._step(tmp_path, "Title\nbefore\n\n{{code a.cu f}}\nafter\n")
    assert [getattr(p, "code", None) for p in step.parts] == [
        None, "int f() {\n  return 1;\n}", None,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no function h"):
        lesson._step(tmp_path, "Title\n{{code a.cu h}}\n")


def test_strips_under_chinese_labels_begin_in_one_column():
    strips = (Strip("行，第 1 次", (1.0,), "半"), Strip("row", (1.0,), "half"))
    out = Output(None)
    with out.capture() as found:
        out.print(show.picture(Picture("P", (), strips), out))
    rows = [line.partition("█")[0] for line in found.get().splitlines() if "█" in line]
    assert len({cell_len(row) for row in rows}) == 1 and len(rows) == 2


def test_cells_are_drawn_as_high_as_they_are():
    assert show._cells(Strip("s", (0, 0.001, 0.5, 1), ""), 4) == "·▁▄█"
    assert show._cells(Strip("s", (1, 0, 0, 0), ""), 2) == "▄·"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("nothing",), "there is no such lesson"), (("--answer", "1"), "name the lesson"),
     ((SHORT, *["--answer", "1"] * 3), "has 2 questions"),
     (("--quiz", SHORT), "takes no lesson"),
     ((SHORT, "--lang", "fr"), "--lang: fr is none of en, zh")],
)  # fmt: skip
def test_a_mistake_is_one_line(capfd, arguments, said):
    code, out, err = call(capfd, *arguments)
    assert (code, out) == (2, "") and re.fullmatch(r"kernelwright: [^\n]+\n", err) and said in err


def test_the_code_of_torch_compile_is_counted():
    from kernelwright.workbench.lessons.ptx import measure

    code = "@triton.jit\ndef k(x):\n  a = tl.load(x)\n  b = tl.load(x + 1)\n  tl.store(x, a + b)\n"
    assert measure.inductors([code, "call()"]).rows == (
        ("kernels", 1), ("loads", 2), ("stores", 1),
    )  # fmt: skip


@emulated
@pytest.mark.long
def test_the_dependent_kernels_are_right_in_the_emulator():
    from kernelwright.workbench.lessons import launching
    from kernelwright.workbench.lessons.launches import measure

    for made in measure.dependent_calls():  # `results` compares with what is expected
        assert list(launching.results(made)) == ["y", "z"]


@gpu
@pytest.mark.parametrize("name", lesson.NAMES)
def test_a_lesson_measures_on_this_gpu(name):
    found = run.run(lesson.read(name)).here
    assert found and all(isinstance(c, str) or c > 0 for t in found for r in t.rows for c in r)


def test_lessons_are_listed_by_number(capfd):
    code, out, _ = call(capfd)
    rows = [line.split("\t")[:2] for line in out.splitlines() if line[:1].isdecimal()]
    assert code == 0 and rows == [[str(n), name] for name, n in lesson.NUMBERS.items()]


def test_the_table_of_books_names_lessons_exercises_and_pages_that_exist():
    from kernelwright.workbench.exercise.exercise import exercises

    known = {e.id for e in exercises()}
    for s in chapters.subjects():
        assert set(s.lessons) <= set(lesson.NAMES) and set(s.exercises) <= known
        assert all((ROOT / "src/kernelwright/ops" / p / "README.md").exists() for p in s.pages)
        assert all(1 <= c <= 23 for c in s.pmpp) and (s.lessons or s.exercises or s.pages)
    assert {e for s in chapters.subjects() for e in s.exercises} == known
    assert {n for s in chapters.subjects() for n in s.lessons} == set(lesson.NAMES)
