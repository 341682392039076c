"""Tokenizers, and their files."""

import json
import random

import pytest

from kernelwright.models import tokenizer
from kernelwright.support.errors import UsageError

TEXT = "def f(x):\n    return 'caffè ☕ 中文' + x * 2\n" * 40


def of(kind):
    if kind == "bytes":
        return tokenizer.Bytes()
    if kind == "characters":
        return tokenizer.Characters.of([TEXT])
    return tokenizer.BytePairs.trained([TEXT], 290)


@pytest.mark.parametrize("kind", ["bytes", "characters", "bpe"])
def test_text_and_tokenizer_survive_a_round_trip(kind, tmp_path):
    made = of(kind)
    tokenizer.save(made, tmp_path)
    again = tokenizer.load(tmp_path)
    draw = random.Random(0)
    text = "".join(draw.choices(TEXT, k=200))
    tokens = made.encode(text)
    assert tokens.max() < made.size == again.size
    assert made.decode(tokens.tolist()) == again.decode(tokens.tolist()) == text
    assert again.end == made.end == (0 if kind == "bpe" else None)


def test_pairs_are_merged():
    made = of("bpe")
    assert len(made.encode(TEXT)) < len(TEXT.encode()) / 1.5


def test_a_character_that_was_not_in_the_text_is_named():
    with pytest.raises(UsageError, match="'é' is not in the vocabulary of"):
        of("characters").encode("café")


def test_files_of_gpt2_are_read(tmp_path):
    library = json.loads(of("bpe").files()[tokenizer.THEIRS])["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(library["vocab"]))
    merges = "\n".join(" ".join(pair) for pair in library["merges"])
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    found = tokenizer.load(tmp_path)
    assert found.encode(TEXT).tolist() == of("bpe").encode(TEXT).tolist()
    assert found.end == 0
    assert tokenizer.load(tmp_path / "nothing") is None


@pytest.mark.parametrize("name", [tokenizer.OURS, tokenizer.THEIRS])
def test_a_damaged_file_is_named(name, tmp_path):
    (tmp_path / name).write_text("{")
    with pytest.raises(UsageError, match=f"{name} is damaged"):
        tokenizer.load(tmp_path)
