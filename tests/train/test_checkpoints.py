"""Runs that are killed, run out of space, or find damaged files."""

import json
import random

import pytest

from kernelwright.support.errors import UserError
from kernelwright.train import checkpoint
from support import training_runs as runs


def files(folder):
    """Contents of the last checkpoint and of the finished model."""
    last = checkpoint.committed(folder)[-1]
    names = (checkpoint.MODEL, checkpoint.OPTIMIZER)
    found = {n: (last / n).read_bytes() for n in names}
    state = json.loads((last / checkpoint.STATE).read_text())
    samples = (folder / "samples.txt").read_text()
    return found, state["random"], state["step"], runs.losses(folder), samples


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never killed, its settings and its seconds."""
    folder = tmp_path_factory.mktemp("whole")
    settings = runs.tiny(folder)
    runs.alone(runs.text, folder)  # starts the process from which others are forked
    return folder / "run", settings, runs.finished(settings, folder / "run")


def kill_and_continue(whole, folder, points):
    reference, settings, seconds = whole
    number = 0
    while points > 0:
        fresh = folder / f"run{number}"
        fresh.mkdir()
        number += 1
        for _ in range(min(points, 3)):  # continued runs are killed too
            ended = not runs.killed(settings, fresh, random.uniform(0.0, seconds))
            if ended:
                break
            points -= 1
        if not ended:
            runs.finished(settings, fresh)
        assert files(fresh) == files(reference)


def test_a_run_that_is_killed_continues_bit_for_bit(whole, tmp_path):
    kill_and_continue(whole, tmp_path, 5)


@pytest.mark.long
def test_a_run_killed_at_a_hundred_instants_continues_bit_for_bit(whole, tmp_path):
    kill_and_continue(whole, tmp_path, 100)


def test_kept_checkpoints_are_the_newest(whole):
    folder, _, _ = whole
    names = [p.name for p in checkpoint.committed(folder)]
    assert names == ["step-00000008", "step-00000010"]
    assert not [p for p in (folder / "checkpoints").iterdir() if p.name.startswith(".")]


def test_a_full_disk_is_an_error_and_leaves_the_last_checkpoint(whole, tmp_path):
    _, settings, _ = whole
    folder = tmp_path / "run"
    runs.finished(settings, folder)
    before = checkpoint.committed(folder)[-1]
    message = runs.limited(settings, folder, 5 << 20)
    assert "the checkpoint could not be saved" in message
    assert "optimizer.safetensors cannot be written: File too large" in message
    assert f"the last whole checkpoint is {before}" in message
    assert checkpoint.check(before)["step"] == settings.steps
    assert checkpoint.committed(folder)[-1] == before


@pytest.mark.parametrize("name", [checkpoint.MODEL, checkpoint.OPTIMIZER, checkpoint.STATE])
def test_a_damaged_file_is_named_and_so_is_an_older_checkpoint(name, whole, tmp_path):
    from shutil import copytree

    folder = tmp_path / "run"
    copytree(whole[0], folder)
    older, newest = checkpoint.committed(folder)
    contents = bytearray((newest / name).read_bytes())
    contents[random.randrange(len(contents))] ^= 1
    (newest / name).write_bytes(contents)
    with pytest.raises(UserError, match=f"damaged: {name} .*continue from {older}"):
        runs.resume(folder, {})
    assert checkpoint.check(older)["step"] == 8
    (newest / checkpoint.MARKER).unlink()
    assert checkpoint.find(folder) == older


def test_a_run_that_continues_keeps_its_settings(whole, tmp_path):
    with pytest.raises(UserError, match="lr: cannot change when a run continues"):
        runs.resume(whole[0], {"lr": 1.0})
    with pytest.raises(UserError, match="holds no checkpoint"):
        runs.resume(tmp_path, {})
    with pytest.raises(UserError, match="is not empty; continue that run with --resume"):
        runs.begin(whole[1], whole[0])
