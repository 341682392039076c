"""Corpora, shards of tokens, and the order in which they are used."""

import random
import struct
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from kernelwright.support import durable
from kernelwright.support.errors import UsageError
from kernelwright.train import corpus, dataset, shards
from kernelwright.train.dataset import Order


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("kernelwright.support.cache.root", lambda: tmp_path / "cache")
    monkeypatch.setattr("kernelwright.support.cache._roots", lambda: (tmp_path / "cache",))
    (tmp_path / "cache").mkdir(mode=0o700)


@pytest.mark.parametrize("vocabulary, width", [(256, 1), (257, 2), (65536, 2), (65537, 4)])
def test_a_shard_survives_a_round_trip(vocabulary, width, tmp_path):
    tokens = np.random.default_rng(0).integers(vocabulary, size=1000, dtype=np.uint32)
    shards.write(tmp_path / "a.kwtokens", [tokens[:300], tokens[300:]], vocabulary)
    found = shards.read(tmp_path / "a.kwtokens")
    assert np.array_equal(found.tokens, tokens)
    assert (found.vocabulary, found.tokens.dtype.itemsize) == (vocabulary, width)
    assert (tmp_path / "a.kwtokens").stat().st_size == 128 + width * 1000
    found.check()


def test_a_damaged_shard_is_refused(tmp_path):
    path = tmp_path / "a.kwtokens"
    shards.write(path, [np.arange(1000) % 7], 7)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(UsageError, match="states 1000 tokens"):
        shards.read(path)
    at = random.randrange(128, len(whole))
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(UsageError, match="is damaged"):
        shards.read(path).check()


@pytest.mark.parametrize("kind", ["llm.c gpt-2", "llm.c llama 3", "nanogpt"])
def test_shards_of_others_are_read(kind, tmp_path):
    tokens = np.random.default_rng(1).integers(50257, size=900)
    header = np.zeros(256, "<i4")
    if kind == "nanogpt":
        contents = tokens.astype("<u2").tobytes()
    elif kind == "llm.c gpt-2":
        header[:3] = 20240520, 1, 900
        contents = header.tobytes() + tokens.astype("<u2").tobytes()
    else:
        header[:3] = 20240801, 7, 900
        contents = header.tobytes() + tokens.astype("<u4").tobytes()
    (tmp_path / "train.bin").write_bytes(contents)
    (tmp_path / "val.bin").write_bytes(contents)
    found = dataset.open_(str(tmp_path))
    assert np.array_equal(found.train[0].tokens, tokens)
    assert len(found.train) == len(found.validation) == 1
    assert found.vocabulary == tokens.max() + 1
    if kind != "nanogpt":
        (tmp_path / "train.bin").write_bytes(contents[:-2])
        with pytest.raises(UsageError, match="states 900 tokens"):
            dataset.open_(str(tmp_path))


@pytest.mark.parametrize(
    ("names", "validation"),
    [
        (("train.bin", "val.bin"), {"val.bin"}),
        (("fineweb_train_000001.bin", "fineweb_val_000000.bin"), {"fineweb_val_000000.bin"}),
        (("a.bin", "Validation-0.bin", "valid0.bin"), {"Validation-0.bin", "valid0.bin"}),
        (("intervals_000.bin", "evaluation.bin"), set()),
        (("val.bin",), set()),  # of which some would be trained on
    ],
)
def test_parts_of_names_say_which_files_are_held_out(names, validation, tmp_path):
    for name in names:
        (tmp_path / name).write_bytes(np.arange(900, dtype="<u2").tobytes())
    said = []
    found = dataset.open_(str(tmp_path), say=said.append)
    assert {s.path.name for s in found.validation} == validation
    assert {s.path.name for s in found.train} == set(names) - validation
    assert "validating on nothing" in said[0] if not validation else min(validation) in said[0]


def test_what_is_no_file_of_tokens_is_refused(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"123")
    with pytest.raises(UsageError, match="is not a file of tokens"):
        dataset.open_(str(tmp_path / "a.bin"))


def test_a_text_is_tokenized_once_and_its_end_is_held_out(tmp_path):
    text = "".join(random.choices("abc\n", k=4000))
    (tmp_path / "a.txt").write_text(text)
    said = []
    for _ in range(2):
        found = dataset.open_(str(tmp_path / "a.txt"), "chars", say=said.append)
    assert len(said) == 1
    tokens = [*found.train[0].tokens, *found.validation[0].tokens]
    assert found.tokenizer.decode(tokens) == text
    assert len(found.validation[0].tokens) == 400
    before = found.fingerprint()
    (tmp_path / "a.txt").write_text(text[:-1])
    assert dataset.open_(str(tmp_path / "a.txt"), "chars").fingerprint() != before


def test_a_folder_is_its_texts(tmp_path):
    folder = tmp_path / "texts"
    (folder / "sub").mkdir(parents=True)
    (folder / "b.txt").write_text("second" * 50)
    (folder / "a.txt").write_text("first" * 50)
    (folder / "sub" / "picture").write_bytes(b"\xff\0\x01")
    (folder / ".hidden").write_text("hidden")
    assert list(corpus.of(str(folder)).documents()) == ["first" * 50, "second" * 50]
    bpe = dataset.open_(str(folder), "bpe", vocabulary=260)
    assert bpe.tokenizer.end in bpe.train[0].tokens


def test_a_url_is_downloaded_once(tmp_path):
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(404 if "missing" in self.path else 200)
            self.end_headers()
            self.wfile.write(b"text " * 100)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    for _ in range(2):
        assert dataset.open_(f"{url}/a").tokenizer.decode([116]) == "t"
    assert asked == ["/a"]
    with pytest.raises(UsageError, match="cannot be downloaded"):
        dataset.open_(f"{url}/missing")
    server.shutdown()


def test_without_a_source_it_is_the_standard_library():
    files = corpus.of(None).files
    assert any(p.name == "argparse.py" for p in files)
    assert not any("site-packages" in p.parts or "test" in p.parts for p in files)


@pytest.mark.parametrize(
    "source, tokenizer, says",
    [
        ("nowhere.txt", "bytes", "data: nowhere.txt does not exist"),
        ("picture", "bytes", "is not UTF-8 text"),
        ("empty", "bytes", "is empty"),
        ("short.txt", "bytes", "too few"),
        ("a.txt", "words", "'words' is neither"),
        ("a.txt", "empty", "contains neither tokenizer.json"),
        ("a.txt", "bpe", "at least 257"),
    ],
)
def test_what_cannot_be_read_is_named(source, tokenizer, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "picture").write_bytes(b"\xff\xd8")
    (tmp_path / "empty").mkdir()
    (tmp_path / "short.txt").write_text("ab")
    (tmp_path / "a.txt").write_text("text " * 100)
    with pytest.raises(UsageError, match=says):
        dataset.open_(source, tokenizer, vocabulary=20)


def test_an_epoch_sees_every_window_once_and_no_window_leaves_its_shard(tmp_path):
    draw = np.random.default_rng()
    lengths = draw.integers(9, 90, size=3)
    found = tuple(
        shards.write(tmp_path / f"{i}.kwtokens", [1000 * i + np.arange(n)], 4000)
        for i, n in enumerate(lengths)
    )
    context = 8
    order = Order(found, context, seed=int(draw.integers(100)))
    for epoch in range(3):
        windows = [order.sequence(epoch * order.epoch + i) for i in range(order.epoch)]
        starts = [int(w[0]) for w in windows]
        assert len(set(starts)) == order.epoch
        assert all(np.array_equal(w, w[0] + np.arange(context + 1)) for w in windows)
        covered = sum(len(w) - 1 for w in windows)
        assert covered >= sum(n - 2 * context for n in lengths)
    again = Order(found, context, order.seed)
    assert all(np.array_equal(again.sequence(i), order.sequence(i)) for i in range(50))
    inputs, targets = order.batch(3, 4)
    assert np.array_equal(targets[1], order.sequence(4)[1:])
    assert np.array_equal(inputs[:, 1:], targets[:, :-1])
    with pytest.raises(UsageError, match="context: 90 needs more"):
        Order(found, 90, 0)


def test_a_header_is_what_the_docstring_says(tmp_path):
    shards.write(tmp_path / "a.kwtokens", [np.arange(5)], 300)
    head = (tmp_path / "a.kwtokens").read_bytes()[:128]
    assert head[:8] == b"KWTOKENS"
    assert struct.unpack_from("<IIQI", head, 8) == (1, 2, 5, 300)


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "a"
    durable.write(path, [b"old"])

    def chunks():
        yield b"new"
        raise OSError(28, "No space left on device")

    with pytest.raises(durable.WriteError, match=r"No space left on device \(\d+ MiB free"):
        durable.write(path, chunks())
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["a"]
