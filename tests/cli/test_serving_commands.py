"""The commands serve and bench-serve."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import kernelwright
from kernelwright import cli
from support import served_models

SOURCE = Path(kernelwright.__file__).parents[1]


def call(capfd, *arguments):
    capfd.readouterr()
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(arguments))
    out, err = capfd.readouterr()
    return stopped.value.code, out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return served_models.saved(tmp_path_factory.mktemp("served"))


@pytest.mark.long
@pytest.mark.parametrize("as_json", [True, False])
def test_a_server_begins_answers_and_ends(folder, as_json):
    command = [sys.executable, "-m", "kernelwright", "serve", str(folder), "--port", "0"]
    command += ["--device", "cpu", "--threads", "1", "--api-key", "key", *["--json"] * as_json]
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert running.stdout is not None
    try:
        if as_json:
            lines = iter(running.stdout.readline, "}\n")
            about = json.loads("".join([*lines, "}"]))
            assert about["model"] == str(folder) and about["context"] == 64
            url = about["url"] + "/v1"
        else:
            first = running.stdout.readline()
            assert first.startswith(f"serving {folder} on cpu at http://127.0.0.1:")
            url = first.split()[-1]
        body = json.dumps({"prompt": "the", "max_tokens": 3}).encode()
        headers = {"Authorization": "Bearer key"}
        request = urllib.request.Request(f"{url}/completions", body, headers)
        answer = json.load(urllib.request.urlopen(request, timeout=60))
        assert answer["usage"]["completion_tokens"] == 3 and answer["model"] == str(folder)
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
        assert as_json or f"curl {url}/chat/completions" in rest
        assert running.wait(60) == 130
    finally:
        running.kill()
        running.wait()


def test_wrong_usage_is_said(capfd, folder, tmp_path):
    for arguments, message in [
        (("serve", str(tmp_path)), "contains neither a model nor a checkpoint"),
        (("serve", str(folder), "--max-queue", "0"), "max_queue: must be at least 1, is 0"),
        (("serve", str(folder), "--cache-dtype", "x"), "cache_dtype: 'x' is neither"),
        (("serve", str(folder), "--memory", "-1"), "--memory: must be a number of GiB"),
        (("serve", str(folder), "--step-tokens", "1"), "step_tokens: must be at least"),
        (("serve", str(folder), "--host", "203.0.113.7"), "port: cannot listen on 203.0.113.7"),
        (("bench-serve",), "give a folder, or a preset by --model"),
        (("bench-serve", "--model", "gpt5"), "model: 'gpt5' is not one of"),
        (("bench-serve", str(folder), "--lengths", "9"), "--lengths: '9' is not of the form"),
        (("bench-serve", str(folder), "--lengths", "9:40"), "exceed the model's context of 64"),
        (("bench-serve", str(folder), "--lengths", "9:8"), "lengths: 9:8 is not a range"),
        (("bench-serve", str(folder), "--rate", "0"), "rate: must be above 0"),
        (("bench-serve", str(folder), "--requests", "0"), "requests: must be at least 1"),
    ]:
        port = ["--port", "0"] if arguments[0] == "serve" else []
        code, _, err = call(capfd, *arguments, *port, "--device", "cpu")
        assert code == 2 and message in err, (arguments, err)


def test_a_missing_package_is_named(capfd, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, err = call(capfd, "serve", str(folder), "--port", "0")
    assert code == 2
    assert "a server needs the package uvicorn: pip install 'kernelwright[serve]'" in err


def test_a_benchmark_counts_every_request(capfd, folder, tmp_path, few_threads):
    code, out, err = call(
        capfd, "bench-serve", str(folder), "--requests", "6", "--rate", "50", "--lengths", "3:9",
        "--device", "cpu", "--out", str(tmp_path / "results"), "--json", "--first-limit", "1e9",
        "--token-limit", "1e9",
    )  # fmt: skip
    assert code == 0, err
    result = json.loads(out)
    assert json.loads((tmp_path / "results" / "serving.json").read_text()) == result
    assert (tmp_path / "results" / "serving.svg").read_text().startswith("<svg")
    assert [row["rate"] for row in result["rows"]] == [None, 50.0]
    for row in result["rows"]:
        assert row["requests"] == 6 and row["steps"] >= 6
        assert row["served"] == pytest.approx(6 / row["seconds"]) == row["good"]
        assert 0 < row["of_roof"] < 1 and row["preemptions"] == 0
        assert row["first"]["p50"] <= row["first"]["p99"] < row["whole"]["p99"]
        assert 36 / row["seconds"] <= row["total"] <= 108 / row["seconds"]
