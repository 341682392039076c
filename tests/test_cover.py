"""The rule of cover.py: everything that `make test` omits is similar to something it runs."""

import subprocess
import sys
from argparse import ArgumentTypeError
from types import SimpleNamespace

import pytest
import torch
from wrong.kernels import WRONG

from kernelwright.dispatch import ladders
from kernelwright.toolchain import availability
from kernelwright.workbench.verify.checks import CHECKS
from kernelwright.workbench.verify.coverage import thorough_cases
from kernelwright.workbench.verify.verify import here
from support import cover
from support.paths import TESTS
from tools.test_training import FAULTS
from workbench.exercise.test_exercise import MISTAKES
from workbench.judge.test_wrong_kernels import EVERY
from workbench.verify.test_checks import PLANTED

LADDERS = pytest.mark.parametrize("ladder", ladders(), ids=lambda x: x.name)


def of(runs, rung):
    return [run for run in runs if run.rung is rung]


@LADDERS
def test_every_rung_runs(ladder):
    for rung in ladder.rungs:
        if availability.missing(rung.backend, here()) is None:
            assert of(cover.covering(ladder), rung), rung.name


@LADDERS
def test_every_rung_runs_its_first_second_and_last_config(ladder):
    for rung in ladder.rungs:
        every, chosen = (of(runs(ladder), rung) for runs in (cover.every, cover.covering))
        assert {(r.case, str(c)) for r in chosen for c in r.configs} <= {
            (r.case, str(c)) for r in every for c in r.configs
        }
        if rung.backend != "inductor":
            asked = {str(c) for c in (rung.configs[0], *cover.further(rung))}
            assert configs(chosen) == configs(every) & asked, rung.name


@LADDERS
def test_each_kind_of_case_runs_on_a_rung_of_each_backend(ladder):
    every, chosen = (
        {
            (r.rung.backend, kind)
            for r in runs(ladder)
            if r.rung.backend != "inductor" and cover.runs_here(ladder, r.rung)
            if r.case.use != "big"
            for kind in cover.kinds(r.case)
        }
        for runs in (cover.every, cover.covering)
    )
    assert chosen == every


def configs(runs):
    return {str(config) for run in runs for config in run.configs}


@LADDERS
def test_every_shape_and_argument_that_a_kernel_of_ours_takes_runs_on_one(ladder):
    every, chosen = (
        {
            size
            for r in runs(ladder)
            if r.rung.is_gpu and cover.runs_here(ladder, r.rung)
            for size in cover.sizes(r.case)
        }
        for runs in (cover.every, cover.covering)
    )
    assert chosen == every


@LADDERS
def test_every_rung_goes_through_every_check_once(ladder):
    """On the first of the thorough cases."""
    for rung in ladder.rungs:
        chosen = of(cover.covering(ladder), rung)
        through = [r for r in chosen if r.checks == CHECKS]
        assert len(through) <= 1
        if rung.backend in ("torch", "triton") and chosen:
            assert through and through[0].case in thorough_cases(ladder)


def test_no_wrong_kernel_is_left_out():
    """Among the tests that pytest collects without options."""
    files = ("workbench/verify/test_wrong.py", "workbench/judge/test_wrong_kernels.py",
             "workbench/verify/test_checks.py", "workbench/exercise/test_exercise.py",
             "tools/test_training.py")  # fmt: skip
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(str(TESTS / f) for f in files)], capture_output=True, text=True, check=True
    )
    found = {line.partition("::")[2] for line in done.stdout.splitlines()}
    wanted = {f"test_its_check_rejects_it[{w.name}]" for w in WRONG}
    wanted |= {f"test_its_check_catches_it[{w.name}]" for w in EVERY}
    wanted |= {f"test_each_check_finds_what_no_other_does[{c.name}]" for c in CHECKS}
    several = ("value", "other addresses")  # their faults are also found by other checks
    several += ("fresh data", "current stream") if torch.cuda.is_available() else ()
    wanted -= {n for n in wanted if n.endswith(tuple(f"[{name}]" for name in several))}
    planted = "test_a_planted_fault_is_named_with_its_lines_and_threads"
    wanted |= {f"{planted}[{seed}-{p.kernel}]" for seed in (1, 2, 77) for p in PLANTED}
    wanted |= {f"test_a_mistake_is_named_with_its_input[{name}]" for name in MISTAKES}
    wanted |= {f"test_a_fault_is_found[{fault}]" for fault in FAULTS}
    assert wanted <= found, wanted - found


# the parts


class Item(SimpleNamespace):
    """The attributes of a pytest item that `selected` reads."""

    __hash__ = object.__hash__

    def get_closest_marker(self, name):
        return self.mark == name


def items(function, mark=None, **params):
    """A test for each combination of two parameters' values."""
    (a, some), (b, others) = params.items()
    return [
        Item(
            nodeid=f"{function}[{x}-{y}]", mark=mark, callspec=SimpleNamespace(params={a: x, b: y})
        )
        for x in some
        for y in others
    ]


def config(all=False, share=(1, 1), args=("tests",)):
    return SimpleNamespace(option=SimpleNamespace(all=all, share=share), args=args)


def test_a_marked_test_runs_with_each_value_of_each_parameter():
    dtypes, layouts = ("half", "single", "double"), ("rows", "columns")
    marked = items("test_a", "cover", dtype=dtypes, layout=layouts)
    plain = items("test_b", None, dtype=dtypes, layout=layouts)
    found = cover.selected(marked + plain, config())
    assert [i.nodeid for i in found[:3]] == ["test_a[half-rows]", "test_a[single-columns]",
                                             "test_a[double-rows]"]  # fmt: skip
    assert found[3:] == plain
    assert cover.selected(marked, config(all=True)) == marked
    assert cover.selected(marked[:1], config(args=("tests/x.py::test_a[half-rows]",))) == marked[:1]


def test_a_long_test_runs_with_every_test_or_by_its_name():
    long, plain = (items(f"test_{mark}", mark, a="xy", b="z") for mark in ("long", None))
    assert cover.selected(long + plain, config()) == plain
    assert cover.selected(long + plain, config(all=True)) == long + plain
    assert cover.selected(long[:1], config(args=("tests/x.py::test_long[x-z]",))) == long[:1]


def test_parts_hold_every_test_once():
    every = [i for n in range(40) for i in items(f"test_{n}", dtype="ab", layout="cd")]
    parts = [cover.selected(every, config(all=True, share=(i, 3))) for i in (1, 2, 3)]
    assert sorted(i.nodeid for part in parts for i in part) == sorted(i.nodeid for i in every)
    assert all(len(part) > 20 for part in parts)
    for part in parts:  # tests of a function are in the same part
        assert len({i.nodeid.split("[")[0] for i in part}) * 4 == len(part)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0"])
def test_a_part_that_is_none_is_refused(text):
    with pytest.raises(ArgumentTypeError, match="must be I/N"):
        cover.share(text)
