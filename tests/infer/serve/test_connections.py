"""Limits, failures and disconnects of the server, with an engine that a test steps."""

import json
import random
import socket
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest
import uvicorn
from starlette.testclient import TestClient

from kernelwright.infer.serve import server
from kernelwright.infer.serve.app import Server
from kernelwright.infer.serve.bridge import Bridge
from kernelwright.infer.serve.served_model import ServedModel
from kernelwright.infer.serve.sizing import EngineSettings
from kernelwright.models.tokenizer import Bytes
from kernelwright.support.errors import UsageError
from support import served_models
from support.slow_engine import SlowEngine

PATH = "/v1/completions"


def app(engine, most_waiting=8, **options):
    model = ServedModel("slow", Bytes(), 1000, 256, frozenset(), None)
    return Server(model, Bridge(engine, most_waiting), **options).app()


def body(**fields):
    return json.dumps({"prompt": "a", "max_tokens": 3, **fields})


def until(condition):
    """Wait for what another thread does."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.005)


def queued(client):
    name = "kernelwright_requests_queued "
    lines = client.get("/metrics").text.splitlines()
    return int(next(x for x in lines if x.startswith(name)).removeprefix(name))


def test_a_full_queue():
    engine = SlowEngine()
    with ThreadPoolExecutor() as threads, TestClient(app(engine, most_waiting=3)) as client:
        waiting = [threads.submit(client.post, PATH, content=body(prompt=p))
                   for p in ("a", ["b", "c"])]  # fmt: skip
        until(lambda: len(engine.requests) == 3)
        assert queued(client) == 3
        answer = client.post(PATH, content=body())
        assert answer.status_code == 429 and answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert "3 requests wait for their first token" in answer.json()["error"]["message"]
        engine.allowed.release()
        until(lambda: queued(client) == 0)  # they have begun, so others may wait
        waiting.append(threads.submit(client.post, PATH, content=body()))
        until(lambda: len(engine.requests) == 4)
        engine.allowed.release(5)
        assert [w.result().status_code for w in waiting] == [200] * 3
        assert [c["text"] for c in waiting[1].result().json()["choices"]] == ["abc", "abc"]
        assert queued(client) == 0


def test_a_body_that_is_too_large():
    with TestClient(app(SlowEngine(), body=100)) as client:
        answer = client.post(PATH, content=body(user="x" * 200))
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "request_too_large"


def test_an_answer_that_takes_too_long():
    engine = SlowEngine()
    with TestClient(app(engine, timeout=0.3)) as client:
        answer = client.post(PATH, content=body())
        assert answer.status_code == 504
        assert answer.json()["error"]["message"] == "the answer took more than 0.3 seconds"
        engine.allowed.release()
        answer = client.post(PATH, content=body(stream=True))
        first, last, end = answer.text.split("\n\n")
        assert json.loads(first[6:])["choices"][0]["text"] == "a"
        assert json.loads(last[6:])["error"]["code"] == "timeout" and end == ""
        until(lambda: engine.cancelled == [1, 2])
        assert queued(client) == 0


def test_the_engine_fails():
    engine = SlowEngine()
    with ThreadPoolExecutor() as threads, TestClient(app(engine)) as client:
        stream = threads.submit(client.post, PATH, content=body(stream=True))
        until(lambda: len(engine.requests) == 1)
        engine.allowed.release()
        until(lambda: queued(client) == 0)
        whole = threads.submit(client.post, PATH, content=body())
        until(lambda: len(engine.requests) == 2)
        assert client.get("/health").status_code == 200
        engine.failure = ZeroDivisionError("planted")
        engine.allowed.release()
        assert whole.result().status_code == 500
        message = "the engine has failed: ZeroDivisionError: planted"
        assert whole.result().json()["error"]["message"] == message
        _first, last, end = stream.result().text.split("\n\n")
        assert json.loads(last[6:])["error"]["message"] == message and end == ""
        for fields in ({}, {"stream": True}):  # also requests that come later
            answer = client.post(PATH, content=body(**fields))
            assert answer.status_code == 500 and answer.json()["error"]["message"] == message
        health = client.get("/health")
        assert health.status_code == 503
        assert health.json() == {"status": "error", "message": message}
        assert queued(client) == 0


def test_the_engine_fails_before_it_knows_a_request():
    class Blocking(SlowEngine):
        entered, leave = threading.Event(), threading.Event()

        def step(self):
            self.entered.set()
            self.leave.wait()
            raise ZeroDivisionError("planted")

    engine = Blocking()
    with ThreadPoolExecutor() as threads, TestClient(app(engine)) as client:
        first = threads.submit(client.post, PATH, content=body())
        assert engine.entered.wait(20)
        second = threads.submit(client.post, PATH, content=body())
        until(lambda: queued(client) == 2)
        engine.leave.set()
        for answer in (first, second):
            assert answer.result(timeout=20).status_code == 500
        assert list(engine.requests) == [1]


def test_the_engine_refuses_a_request(tmp_path):
    loaded = served_models.loaded(served_models.saved(tmp_path), pages=2)
    with TestClient(loaded.app) as client:
        fits, large = [5] * 20, [5] * 40
        answer = client.post(PATH, content=body(prompt=[fits, large]))
        assert answer.status_code == 400 and "2 pages" in answer.json()["error"]["message"]
        assert client.post(PATH, content=body(prompt=[fits])).is_success


def test_a_stop_string_ends_the_engines_work():
    engine = SlowEngine()
    with ThreadPoolExecutor() as threads, TestClient(app(engine)) as client:
        fields = {"max_tokens": 900, "stop": "d", "prompt": ["x", "y"]}
        answer = threads.submit(client.post, PATH, content=body(**fields))
        until(lambda: len(engine.requests) == 2)
        engine.allowed.release(4)
        assert [c["text"] for c in answer.result().json()["choices"]] == ["abc", "abc"]
        assert answer.result().json()["usage"]["completion_tokens"] == 8
        until(lambda: sorted(engine.cancelled) == [1, 2])


@contextmanager
def listening(application):
    """A real server on a free port."""
    accepting = server.listen("127.0.0.1", 0)
    config = uvicorn.Config(application, log_level="error", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [accepting]})
    port = accepting.getsockname()[1]
    thread.start()
    try:
        yield port
    finally:
        running.should_exit = True
        thread.join()


def sent(port, content):
    connection = socket.create_connection(("127.0.0.1", port))
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    connection.sendall(f"{head}content-length: {len(content)}\r\n\r\n{content}".encode())
    return connection


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("begun", [True, False])
def test_a_client_that_goes_away(stream, begun):
    engine = SlowEngine()
    with listening(app(engine)) as port:
        gone = sent(port, body(stream=stream, max_tokens=900))
        until(lambda: engine.busy)
        if begun:
            engine.allowed.release(5)
        if begun and stream:
            text = b""
            while b'"text":"c"' not in text:
                text += (part := gone.recv(4096))
                assert part, text
            assert b"transfer-encoding: chunked" in text.lower()
        gone.close()
        until(lambda: engine.cancelled == [1])
        engine.allowed.release(5)  # others are served
        other = sent(port, body())
        text = b""
        while b'"text":"abc"' not in text:
            text += (part := other.recv(4096))
            assert part, text
        other.close()


def test_a_port_in_use():
    taken = server.listen("127.0.0.1", 0)
    with pytest.raises(UsageError, match=r"port: cannot listen on 127.0.0.1:\d+: .*in use"):
        server.listen("127.0.0.1", taken.getsockname()[1])
    taken.close()


def test_settings_are_checked():
    served = partial(server.Settings, EngineSettings())
    for settings, fields, message in [
        (EngineSettings, {"pages": -1}, "pages: must not be negative"),
        (EngineSettings, {"pages": 1, "memory": 1}, "pages: not with memory"),
        (EngineSettings, {"cache_dtype": "int4"}, "cache_dtype: 'int4' is neither"),
        (served, {"max_queue": 0}, "max_queue: must be at least 1"),
        (served, {"timeout": float("nan")}, "timeout: must be above 0"),
    ]:
        with pytest.raises(UsageError, match=message):
            settings(**fields)


@pytest.mark.parametrize("count", [24, pytest.param(120, marks=pytest.mark.long)])
def test_nothing_is_left_of_requests_however_they_end(tmp_path, count):
    """Random requests over few pages; half of the clients go away at random times."""
    loaded = served_models.loaded(served_models.saved(tmp_path), pages=12)
    seed = random.randrange(10**6)

    def client(number):
        draw = random.Random(seed + number)
        fields = {
            "prompt": [draw.choices(range(200), k=draw.randint(1, 40)) for _ in range(2)],
            "max_tokens": draw.randint(1, 30), "n": draw.randint(1, 3), "seed": 1,
            "stream": draw.random() < 0.5, "stop": draw.choice([None, "a", "th"]),
            "echo": draw.random() < 0.3, "logprobs": draw.choice([None, 0, 2]),
        }  # fmt: skip
        connection = sent(port, json.dumps(fields))
        if draw.random() < 0.5:
            time.sleep(draw.random() * 0.3)
            connection.close()
            return None
        text = b""
        while part := connection.recv(1 << 16):
            text += part
        connection.close()
        return text

    with listening(loaded.app) as port, ThreadPoolExecutor(12) as threads:
        for answer in threads.map(client, range(count)):
            assert answer is None or answer.startswith(b"HTTP/1.1 200"), seed

        def value(name):
            lines = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            start = f"kernelwright_{name} "
            return next(x for x in lines.splitlines() if x.startswith(start)).split()[-1]

        names = ("sequences_running", "sequences_waiting", "pages_used", "requests_queued")
        until(lambda: [value(n) for n in names] == ["0"] * 4)
        assert value("pages_total") == "12"
