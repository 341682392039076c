"""Processes that share a run, with Gloo."""

import pytest

from kernelwright.support.errors import UsageError
from kernelwright.train import checkpoint, parallel
from kernelwright.train.settings import Settings
from support import training_runs as runs


def near(a, b):
    return a == pytest.approx(b, abs=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run of 20 steps in one process, with two forwards per step."""
    folder = tmp_path_factory.mktemp("alone")
    settings = runs.tiny(folder, steps=20, save_every=10, dropout=0.0, micro=2, keep=2)
    runs.alone(runs.begin, settings, folder / "run")
    return folder / "run", settings


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_train_as_one(kind, alone, tmp_path):
    reference, settings = alone
    shared = Settings(**{**settings.as_json(), "parallel": kind, "micro": 1})
    runs.together(2, runs.begin, shared, tmp_path / "run")
    found = runs.losses(tmp_path / "run")
    assert len(found) == 20
    assert near(found, runs.losses(reference))
    if kind == "fsdp":  # continues in one process
        half = checkpoint.committed(tmp_path / "run")[0]
        runs.alone(runs.resume, half, {"micro": 2})
        assert near(runs.losses(tmp_path / "run"), runs.losses(reference))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_one_process_continues_as_two(kind, alone, tmp_path):
    from shutil import copytree

    reference, _ = alone
    copytree(reference, tmp_path / "run")
    half = checkpoint.committed(tmp_path / "run")[0]
    runs.together(2, runs.resume, half, {"parallel": kind})
    assert near(runs.losses(tmp_path / "run"), runs.losses(reference))


def test_fsdp_without_torchrun_says_how_to_start_it():
    with (
        pytest.raises(UsageError, match=r"torchrun --nproc-per-node 2 -m kernelwright train"),
        parallel.joined("fsdp", runs.CPU),
    ):
        pass


@pytest.mark.parametrize(
    "changes, processes, says",
    [
        ({"batch": 3}, 2, "3 sequences cannot be shared evenly by 2"),
        ({"batch": 8, "micro": 3}, 1, "3 sequences do not divide the 8"),
        ({"batch": 8, "micro": 8}, 2, "8 sequences do not divide the 4"),
    ],
)
def test_a_step_that_cannot_be_shared_evenly_is_refused(changes, processes, says):
    with pytest.raises(UsageError, match=says):
        Settings(**changes).micro_batch(processes)
