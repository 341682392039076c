"""Exercises: unfinished as written, right with the rung's bodies, wrong with likely mistakes.

This file tests the exercises on the library's rungs; test_practice.py tests the others."""

import io
import json
import re

import pytest
import torch
from rich.console import Console

from kernelwright import cli
from kernelwright.cli.render import exercises
from kernelwright.support.errors import NoSpace, UsageError
from kernelwright.toolchain import availability
from kernelwright.workbench.exercise import check as checking
from kernelwright.workbench.exercise import exercise, files
from kernelwright.workbench.exercise.practice import exercises as practice
from support.publics import strict

GPU = torch.cuda.is_available()
EVERY = [e for e in exercise.exercises() if e not in practice.EXERCISES]
NAMES = [e.id for e in EVERY]
#: One operator in every language, and the others.
SOME = [n if n.startswith("softmax") else pytest.param(n, marks=pytest.mark.long) for n in NAMES]

#: One mistake per rung: (code of the rung, what a learner might write, the check's finding).
MISTAKES = {
    "gelu.numba_thread": ("if i < n:", "if i <= n:", "out of bounds"),
    "gelu.cuda_thread": ("if (i < n)", "if (i <= n)", "y: 4 bytes written after its end"),
    "gelu.triton_block": (
        "y.to(y_ptr.dtype.element_ty), mask=inside)",
        "y.to(y_ptr.dtype.element_ty))",
        "written after its end" if GPU else "outside of its 1 element",
    ),
    "sum.numba_block": (
        "            cuda.syncthreads()\n            half",
        "            half",
        "y: ",
    ),
    "sum.cuda_interleaved": (
        "s[tid] += s[tid + step];\n    __syncthreads();",
        "s[tid] += s[tid + step];",
        "y: ",
    ),
    "sum.cuda_sequential": (
        "s[tid] += s[tid + half];\n    __syncthreads();",
        "s[tid] += s[tid + half];",
        "y: ",
    ),
    "softmax.cuda_naive": ("expf(kw::to_float(x[i]) - max)", "expf(kw::to_float(x[i]))", "NaN"),
    "sum.triton_block": (
        "start + col < n_cols)",
        "start + col <= n_cols)",
        "NaN" if GPU else "reads x_ptr[7], outside of its 7 elements",
    ),
    "sum.cuda_shuffle": ("i += stride", "i += BLOCK", "should be"),
    "softmax.triton_row": ('other=float("-inf")', "other=0.0", "should be"),
    "softmax.numba_block": (
        "        cuda.syncthreads()\n        if tid < half:\n            other",
        "        if tid < half:\n            other",
        "y: ",
    ),
    "softmax.backward.triton_row": ("(col < n_cols)", "(col < n_cols - 1)", "never written"),
    "softmax.triton_online": ("total = total * exp(top - base) +", "total = total +", "should be"),
    "softmax.cuda_warp": (
        "first + r < n_rows && col < n_cols,\n",
        "col < n_cols,\n",
        "written after its end",
    ),
    "sum.cuda_last_block": ("i < gridDim.x; i += BLOCK", "i + 1 < gridDim.x; i += BLOCK", "be "),
}
#: Those that may give right results on a GPU.
FORGIVEN = (
    "gelu.numba_thread", "sum.numba_block", "sum.cuda_interleaved", "sum.cuda_sequential",
    "softmax.numba_block",
)  # fmt: skip
#: The clues for each of these mistakes.
CLUES = {
    "gelu.triton_block": "tl.store without mask=",
    "sum.numba_block": "cuda.syncthreads() where the rung has",
}
#: The findings of the emulator's checks for each of these mistakes.
FINDINGS = {
    "gelu.cuda_thread": "bounds: gelu_cuda_thread.cu:",
    "sum.cuda_sequential": "races: sum_cuda_sequential.cu:",
}


def written(name, folder, solved=True):
    of = files.source(exercise.named(name))
    path = folder / of.file_name
    path.write_text(files.text(of, solved=solved))
    return of, path


def run_here(of):
    missing = availability.missing(of.rung.backend, checking.here())
    if missing:
        pytest.skip(missing)


def few(case):
    """Enough to run every part of a kernel: an odd row, several rows, rows of several blocks."""
    plain = case.values == "normal" and case.layout == "contiguous" and case.dtype == torch.float32
    return plain and case.shape in ((7,), (5, 33), (4, 1000))


def test_each_language_has_enough_exercises():
    everything = exercise.exercises()
    backends = [files.source(e).rung.backend for e in everything]
    assert all(backends.count(b) >= 6 for b in ("numba", "triton", "cuda"))
    assert [e.place for e in everything] == sorted({e.place for e in everything})
    assert len({e.id for e in everything}) == len(everything)
    assert set(MISTAKES) == set(NAMES)
    for e in everything:
        assert 2 <= len(e.hints) <= 5, e.id
        assert not e.targets or files.source(e).is_cuda, e.id


@pytest.mark.parametrize("name", NAMES)
def test_as_written_it_is_not_done(name, tmp_path):
    of, path = written(name, tmp_path, solved=False)
    text = path.read_text()
    found = checking.check(of, path)
    assert (found.outcome, found.case) == ("unfinished", "")
    assert (
        found.why
        == f"not done yet: {of.exercise.tasks[0].function} still has the body it came with"
    )
    assert "Idea:" not in text and "TODO" in text
    assert not any(hint in " ".join(text.split()) for hint in of.exercise.hints)
    assert f"kernelwright exercise {name} --check" in text
    assert max(map(len, text.splitlines())) <= 100
    for task in of.exercise.tasks:  # the body itself must not remain
        real = files.body(of, of.path.read_text(), task.function)
        assert real.strip() not in text


@pytest.mark.parametrize("name", SOME)
def test_the_rungs_own_body_is_right(name, tmp_path):
    of, path = written(name, tmp_path)
    run_here(of)
    taken = sorted(filter(few, of.ladder.operator.cases), key=checking.simplest_first)
    found = checking.verified(*checking.substituted(of, path), taken)
    assert found.outcome == "right", found
    assert found.passed >= 2


@pytest.mark.long
@pytest.mark.parametrize("name", [e.id for e in EVERY if e.targets])
def test_the_rungs_own_body_meets_the_targets(name, tmp_path):
    of, path = written(name, tmp_path)
    run_here(of)
    found = checking.check(of, path, cases=few)
    assert (found.outcome, found.unchecked) == ("right", ""), found
    assert [c.met for c in found.counts] == [True] * len(of.exercise.targets), found.counts


@strict
@pytest.mark.parametrize("name", NAMES)
def test_a_mistake_is_named_with_its_input(name, tmp_path):
    of, path = written(name, tmp_path)
    run_here(of)
    if GPU and name in FORGIVEN:
        pytest.skip("a GPU gives the right result all the same, or says it otherwise")
    right, wrong, said = MISTAKES[name]
    text = path.read_text()
    assert right in text
    path.write_text(text.replace(right, wrong))
    found = checking.check(of, path, cases=lambda c: c.dtype == torch.float32)
    assert found.outcome in ("wrong", "error"), found
    assert found.case in {c.id for c in of.ladder.operator.cases}
    assert said in f"{found.why}\n{found.where}", found
    if name in CLUES:
        assert any(CLUES[name] in clue for clue in found.clues), found
    if name in FINDINGS:
        assert any(FINDINGS[name] in finding for finding in found.findings), found


BARRIER = re.compile(r"^ *(__syncthreads|cuda\.syncthreads)\(\);?\n", re.M)
WITH_BARRIERS = [
    pytest.param(e.id, i, marks=() if i == 0 else pytest.mark.long)
    for e in EVERY
    for i in range(len(BARRIER.findall(files.text(files.source(e), solved=True))))
]


@pytest.mark.parametrize(("name", "which"), WITH_BARRIERS)
def test_every_barrier_is_missed(name, which, tmp_path):
    of, path = written(name, tmp_path)
    run_here(of)
    if GPU:
        pytest.skip("a GPU may give the right result all the same")
    text = path.read_text()
    barrier = list(BARRIER.finditer(text))[which]
    path.write_text(text[: barrier.start()] + text[barrier.end() :])
    found = checking.check(of, path, cases=few)
    assert found.outcome == "wrong", found
    if of.is_cuda:
        assert any(f.startswith(f"races: {path.name}:") for f in found.findings), found
    else:
        assert any("syncthreads() where the rung has" in clue for clue in found.clues), found


@pytest.mark.long
def test_errors_that_a_gpu_hides_are_found_without_one(tmp_path, monkeypatch):
    """A check that finds nothing on a GPU is repeated in the emulator or simulator."""
    name = "sum.cuda_sequential"
    of, path = written(name, tmp_path)
    barrier = list(BARRIER.finditer(path.read_text()))[-1]
    text = path.read_text()
    path.write_text(text[: barrier.start()] + text[barrier.end() :])
    here = exercise._judged

    def on_a_gpu(exercise_, path, on_case, seconds, environment=None):
        if environment:
            assert environment == {"CUDA_VISIBLE_DEVICES": ""}
            return here(exercise_, path, on_case, seconds, environment)
        return {"outcome": "right", "why": "", "passed": 9, "timed": [], "forgiving": True}

    run_here(of)
    monkeypatch.setattr(exercise, "_judged", on_a_gpu)
    found = exercise.check(exercise.named(name), tmp_path)
    assert found["outcome"] == "wrong" and found["why"].startswith(
        "correct on this GPU only by chance; "
    )
    path.write_text(text)
    assert exercise.check(exercise.named(name), tmp_path)["outcome"] == "right"


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "words"),
    [("int missing = 3\n  y[0] = columns;", "expected"), ("y[0] = unknown;", "unknown")],
)
def test_a_compilers_error_is_shown_with_its_line(line, words, tmp_path):
    name = "row_sum.cuda_block"
    of, path = written(name, tmp_path)
    run_here(of)
    path.write_text(files.text(files.source(exercise.named(name))).replace("// TODO", line))
    why = exercise.check(exercise.named(name), tmp_path)["why"]
    assert re.match(rf"{path.name}:\d+: .*{words}", why) and "\n" not in why


@pytest.mark.parametrize("name", [n for n in NAMES if "cuda" in n])
def test_cuda_compiles_where_it_cannot_run(name, tmp_path, monkeypatch):
    monkeypatch.setattr(availability, "missing", lambda backend, device: "no compiler here")
    of, path = written(name, tmp_path)
    found = checking.check(of, path)
    assert found.outcome == "compiled" and "no compiler here" in found.why
    path.write_text(path.read_text().replace("long long", "long lung"))
    found = checking.check(of, path)
    assert found.outcome == "error" and f"{path.name}(" in found.why


def test_a_file_that_does_not_parse_says_where(tmp_path):
    of, path = written("softmax.triton_row", tmp_path)
    path.write_text(path.read_text().replace("e = exp(x", "e = exp((x"))
    found = checking.check(of, path)
    line = 1 + path.read_text()[: path.read_text().index("e = exp((x")].count("\n")
    assert found.outcome == "error" and found.why.startswith(f"line {line}: ")


def test_a_function_that_is_gone(tmp_path):
    of, path = written("softmax.triton_row", tmp_path)
    path.write_text(path.read_text().replace("softmax_fwd_row", "mine"))
    assert checking.check(of, path).why == "softmax_fwd_row is no longer in the file"


def test_comments_alone_are_not_a_body(tmp_path):
    for name in ("gelu.triton_block", "sum.cuda_sequential"):
        of, path = written(name, tmp_path, solved=False)
        text = re.sub(r"TODO[^\n]*", "I have thought about it", path.read_text())
        path.write_text(text)
        assert checking.check(of, path).outcome == "unfinished"


def test_where_results_differ():
    reference = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    got = reference.float()
    assert checking.located(got, reference, got) == ""
    got[:, 3] = 0
    said = "3 of 12 elements are wrong; the first is [0, 3]: 0, should be 3; "
    said += "all of them at index 1 3"
    assert checking.located(got, reference, reference.float()) == said
    got[1, 3], got[2, 3], got[0, 3] = 7, 11, float("nan")
    said = checking.located(got, reference, reference.float())
    assert said == "1 of 12 elements is wrong; the first is [0, 3]: nan, should be 3"


@pytest.mark.long
def test_the_learners_way(tmp_path, capfd, monkeypatch):
    """From the list to a solved exercise; each command prints the next command."""
    monkeypatch.chdir(tmp_path)
    name = "gelu.numba_thread"

    def command(*words):
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main(["exercise", *words])
        out, err = capfd.readouterr()
        return stopped.value.code, out, err

    code, out, err = command()
    assert code == 0, err
    assert all(n in out for n in NAMES) and "next: kernelwright exercise vector_add.numba" in out
    code, _, err = command(name, "--check")
    assert code == 2 and f"kernelwright exercise {name}" in err
    code, out, _ = command(name)
    assert code == 0 and "next: edit gelu_numba_thread.py, then kernelwright exercise" in out
    code, _, err = command(name)
    assert code == 2 and "already exists" in err and "--check" in err
    code, out, _ = command(name, "--check")
    assert code == 1 and "not done yet" in out and "next: edit" in out
    hints = exercise.named(name).hints
    for i, hint in enumerate([*hints, hints[-1]], 1):
        code, out, _ = command(name, "--hint")
        assert code == 0 and f"{min(i, len(hints))} of {len(hints)}: {hint}" in " ".join(
            out.split()
        )
    code, out, _ = command(name, "--solution")
    assert code == 0 and "+    i = cuda.grid(1)" in out.splitlines()
    written(name, tmp_path)
    code, out, err = command(name, "--check", "--json")
    assert code == 0, (out, err)
    assert json.loads(out)["outcome"] == "right"
    code, out, _ = command(name, "--solution")
    assert code == 0 and "is identical to the solution" in out
    code, out, _ = command("--json")
    states = {row["file"]: row["state"] for row in json.loads(out)}
    assert states.pop("gelu_numba_thread.py") == "right"
    assert set(states.values()) == {"not started"}


def test_where_the_learner_stands(tmp_path):
    name = NAMES[0]
    e = exercise.named(name)
    path = exercise.write(e, tmp_path)

    def state():
        return next(s.state for s in exercise.standings(tmp_path) if s.exercise is e)

    assert state() == "started"
    kept = {name: {"hash": exercise._hash(path), "outcome": "wrong", "why": "y: off"}}
    (tmp_path / exercise.STATE).write_text(json.dumps(kept))
    assert state() == "wrong" and exercise.following(tmp_path) is exercise.exercises()[0]
    kept[name]["outcome"] = "right"
    (tmp_path / exercise.STATE).write_text(json.dumps(kept))
    assert state() == "right"
    path.write_text(path.read_text() + "\n")
    assert state() == "changed since it was right"


@pytest.mark.long
def test_an_endless_loop_is_stopped(tmp_path):
    of, path = written("gelu.triton_block", tmp_path)
    path.write_text(path.read_text() + "\nwhile True:\n    pass\n")
    found = exercise.check(of.exercise, tmp_path, seconds=8)
    assert found["outcome"] == "error" and "still running after 8 s" in found["why"]


def test_a_process_that_ends_is_reported_as_an_outcome(tmp_path):
    of, path = written("gelu.triton_block", tmp_path)
    path.write_text(path.read_text() + "\nimport os\nprint('a word', flush=True)\nos.abort()\n")
    found = exercise.check(of.exercise, tmp_path)
    assert found["outcome"] == "error" and "SIGABRT" in found["why"]


def test_a_full_disk_is_an_error_and_not_an_outcome(tmp_path):
    _, path = written("gelu.triton_block", tmp_path)
    full = "from kernelwright.support.errors import NoSpace\nraise NoSpace('the disk is full')\n"
    path.write_text(path.read_text() + full)
    with pytest.raises(NoSpace, match="the disk is full"):
        exercise.check(exercise.named("gelu.triton_block"), tmp_path)


def test_unknown_exercise_names(tmp_path):
    with pytest.raises(UsageError, match=r"did you mean sum\.cuda_sequential"):
        exercise.named("sum.cuda_sequentially")
    with pytest.raises(UsageError, match="there is no folder"):
        exercise.write(EVERY[0], tmp_path / "nowhere")
    for words in (("--check",), ("--hint",), (NAMES[0], "--check", "--solution")):
        with pytest.raises(SystemExit) as stopped:
            cli.main(["exercise", *words])
        assert stopped.value.code == 2


def test_times_beside_the_rung_are_shown():
    row = {
        "operator": "sum", "case": "c", "a": "cuda_rows", "b": "cuda_rows", "verdict": "slower",
        "why": "", "ratio": 0.5, "low": 0.4, "high": 0.6, "noise": 0.01, "a_us": 1.0, "b_us": 2.0,
    }  # fmt: skip
    (head, line) = exercises._worth(exercise.named("sum.cuda_sequential"), [row])
    out = io.StringIO()
    Console(file=out, width=200).print(line)
    assert "B is your kernel" in head.plain and "slower\t0.500x\t0.400 .. 0.600" in out.getvalue()
    (line,) = exercises._worth(exercise.named("sum.cuda_sequential"), [])
    assert "On nvidia-h200 the rung takes" in line.plain


def test_the_document_lists_them():
    assert exercise.DOC.read_text() == exercise.document()
    for name in NAMES:
        assert f"`{name}`" in exercise.document()
