"""Text in pieces: incomplete characters and stop strings, compared with the whole text."""

import itertools
import json
import random

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from kernelwright.infer.serve.detokenizer import Detokenizer
from kernelwright.infer.serve.stop_strings import StopStrings
from kernelwright.models.tokenizer import BytePairs

MIXED = st.text(st.sampled_from("ab é你👩‍👩‍👧\N{REPLACEMENT CHARACTER}\N{COMBINING ACUTE ACCENT}"))
PIECES = st.lists(st.binary(max_size=5) | MIXED.map(str.encode), max_size=90)


def pieces_of(decode, tokens, before=()):
    """What a detokenizer adds with each token, and at the end."""
    detokenizer = Detokenizer(decode, before)
    return [*map(detokenizer.add, tokens), detokenizer.rest()]


@given(text=st.text() | MIXED, cuts=st.sets(st.integers(1, 200)))
def test_text_cut_anywhere_is_the_text(text, cuts):
    """Tokens are arbitrary parts of the UTF-8, as those of byte pairs are."""
    whole = text.encode()
    at = [0, *sorted(c for c in cuts if c < len(whole)), len(whole)]
    tokens = [whole[a:b] for a, b in itertools.pairwise(at)]
    assert "".join(pieces_of(joined, tokens)) == text


@given(tokens=PIECES)
def test_bytes_that_are_no_text_give_the_same_as_all_at_once(tokens):
    """Also that nothing is held back without need."""
    pieces = pieces_of(joined, tokens)
    assert "".join(pieces) == joined(tokens)
    for i in range(len(tokens)):
        text = joined(tokens[: i + 1])
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):
            assert "".join(pieces[: i + 1]) == text


@given(tokens=st.lists(st.binary(min_size=1, max_size=2), min_size=200, max_size=300))
def test_long_runs_of_bytes_that_are_no_text(tokens):
    tokens = [bytes(b | 0x80 for b in token) for token in tokens]
    assert "".join(pieces_of(joined, tokens)) == joined(tokens)


@given(tokens=PIECES, data=st.data())
def test_a_prompt_is_no_part_of_the_text(tokens, data):
    cut = data.draw(st.integers(0, len(tokens)))
    before, after = tokens[:cut], tokens[cut:]
    if not joined(before).endswith("\N{REPLACEMENT CHARACTER}"):
        assert joined(before) + "".join(pieces_of(joined, after, before)) == joined(tokens)


def joined(tokens):
    return b"".join(tokens).decode(errors="replace")


def byte_pairs():
    """As GPT-2's: characters outside of the trained words are bytes."""
    words = ["the cat sat on the mat", "höher und höher", "你好,世界"]
    return BytePairs.trained(words, 300)


def byte_fallback():
    """As Llama 2's: spaces are U+2581, unknown characters are bytes <0x00> to <0xFF>, and the text
    does not begin with the space of its first word."""
    words = ["▁", "t", "h", "e", "c", "a", "é", "▁t", "▁th", "▁the", "▁c", "▁ca"]
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("▁", "c"), ("▁c", "a")]
    names = ["<unk>", *(f"<0x{b:02X}>" for b in range(256)), *words]
    model = tokenizers.models.BPE(
        {name: i for i, name in enumerate(names)},
        merges,
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    library = tokenizers.Tokenizer(model)
    library.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    library.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("▁", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    return BytePairs(library)


@pytest.mark.parametrize("make", [byte_pairs, byte_fallback])
def test_texts_of_real_tokenizers(make):
    tokenizer = make()
    draw = random.Random(random.randrange(10**6))
    for _ in range(200):
        text = "".join(draw.choices("the ca é你👩\n", k=draw.randint(1, 40)))
        tokens = tokenizer.encode(text).tolist()
        assert tokenizer.decode(tokens) == text
        assert "".join(pieces_of(tokenizer.decode, tokens)) == text
        cut = draw.randrange(len(tokens))
        prompt = tokenizer.decode(tokens[:cut])
        if text.startswith(prompt) and "\N{REPLACEMENT CHARACTER}" not in prompt and prompt:
            rest = pieces_of(tokenizer.decode, tokens[cut:], tokens[:cut])
            assert prompt + "".join(rest) == text


@pytest.mark.parametrize("make", [byte_pairs, byte_fallback])
def test_any_tokens_give_a_text(make):
    tokenizer = make()
    draw = random.Random(random.randrange(10**6))
    for _ in range(30):
        # Llama's decoder makes a letter unknown beside bytes that are no text; a stream has sent it
        ascii = {f"<0x{b:02X}>" for b in range(128)}
        names = tokenizer.files()["tokenizer.json"]
        known = json.loads(names)["model"]["vocab"].items()
        tokens = draw.choices([i for name, i in known if name not in ascii], k=100)
        text = "".join(pieces_of(tokenizer.decode, tokens))
        if make is byte_pairs:
            assert text == tokenizer.decode(tokens)
        letters = [c for c in tokenizer.decode(tokens) if c in "thca"]
        assert [c for c in text if c in "thca"] == letters


def until(text, stops):
    """The text up to the first stop string that is complete; of several that end there, up to the
    longest."""
    for end in range(len(text) + 1):
        ends = [s for s in stops if text[:end].endswith(s)]
        if ends:
            return text[: end - max(map(len, ends))], True
    return text, False


@given(
    pieces=st.lists(st.text("ab", max_size=5), max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=6), max_size=4),
)
@example(pieces=["abb"], stops=["abb", "b"])
@example(pieces=["aab"], stops=["b", "aab", "ab"])
def test_stop_strings(pieces, stops):
    stop = StopStrings(stops)
    given_out = [stop.add(p) for p in pieces]
    expected, stopped = until("".join(pieces), stops)
    assert stop.stopped == stopped
    text = "".join(given_out) + ("" if stopped else stop.rest())
    assert text == expected
    so_far = ""
    for i, part in enumerate(given_out):  # nothing is held back without need
        so_far += part
        come = "".join(pieces[: i + 1])
        held = until(come, stops)[0].removeprefix(so_far)
        assert until(come, stops)[1] or not held or any(s.startswith(held) for s in stops)
