"""The commands train, generate and profile."""

import contextlib
import io
import json
import os
from pathlib import Path

import pytest

from kernelwright import cli
from support import training_runs as runs


def call(capfd, *arguments):
    capfd.readouterr()
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(arguments))
    out, err = capfd.readouterr()
    return stopped.value.code, out, err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run's folder, and the output of the command."""
    folder, out = tmp_path_factory.mktemp("trained"), io.StringIO()
    asked = ["train", "--data", str(runs.text(folder)), "--context", "16", "--steps", "6",
             "--batch", "4", "--save-every", "3", "--device", "cpu"]  # fmt: skip
    before = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as stopped:
            cli.main(asked)
    finally:
        os.chdir(before)
    assert stopped.value.code == 0
    return folder / "runs" / "1", out.getvalue()


def test_a_run_shows_what_it_does_and_leaves(trained):
    folder, out = trained
    for part in ("gpt2-tiny: ", "predicted", "measured", "step 1/6", "left", "sample 2",
                 "picture: runs/1/loss.svg", "kernelwright generate runs/1"):  # fmt: skip
        assert part in out, part
    assert (folder / "loss.svg").exists()


def test_it_continues_and_generates(trained, capfd, few_threads):
    folder, _ = trained
    code, out, err = call(capfd, "train", "--resume", str(folder), "--steps", "8", "--json",
                          "--device", "cpu")  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["steps"] == 8
    assert len(runs.losses(folder)) == 8
    greedy = ("generate", str(folder), "abc", "--temperature", "0", "--tokens", "9", "--device",
              "cpu")  # fmt: skip
    code, out, _ = call(capfd, *greedy)
    assert code == 0 and out.startswith("abc")
    code, alone, _ = call(capfd, *greedy, "--json")
    code, both, _ = call(capfd, *greedy[:3], "b", *greedy[3:], "--json")
    assert json.loads(alone) == json.loads(both)[:1]
    assert out.rstrip("\n") == json.loads(alone)[0].rstrip("\n")


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("train", "--data", "nowhere"), "data: nowhere does not exist"),
        (("train", "--model", "gpt9"), "model: 'gpt9' is not one of"),
        (("train", "--device", "tpu"), "device: 'tpu' is neither"),
        (("train", "--threads", "0"), "threads: must be at least 1"),
        (("train", "--resume", "nowhere"), "nowhere holds no checkpoint"),
        (("train", "--resume", "a", "--out", "b"), "out: a resumed run continues"),
        (("generate", "nowhere"), "nowhere contains neither a model nor a checkpoint"),
        (("generate", "nowhere", "--top-p", "0"), "top_p: must be above 0"),
        (("profile", "sofmax"), "there is no operator sofmax; did you mean softmax"),
        (("profile", "train", "--swap", "softmax"), "is not OP=RUNG"),
    ],
)
def test_a_mistake_is_one_line(arguments, says, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capfd, *arguments)
    assert code == 2 and not out
    assert says in err and len(err.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_profile_prints_kernels_and_names_its_files(capfd, tmp_path, few_threads):
    code, out, _ = call(capfd, "profile", "layer_norm", "--out", str(tmp_path), "--device", "cpu")
    assert code == 0
    assert "aten::native_layer_norm" in out and f"flame graph: {tmp_path}/flame.html" in out
