"""Every operator page states what moves, what each rung does and what is deterministic."""

import inspect
import re

import pytest

import kernelwright
from kernelwright.dispatch import ladders

PAGES = {ladder.folder: (ladder.folder / "README.md").read_text() for ladder in ladders()}


def by_hand(text):
    """The page without the parts generated from records."""
    return re.sub(r"<!-- table.*?<!-- /table -->", "", text, flags=re.S)


@pytest.mark.parametrize("text", PAGES.values(), ids=[folder.name for folder in PAGES])
def test_a_page_has_the_same_parts_in_the_same_words(text):
    heads = re.findall(r"^## (.*)$", by_hand(text), re.M)
    assert "The ladder" in heads
    assert {"What moves", "What fusion saves"} & set(heads)
    assert "**Determinism.**" in text


@pytest.mark.parametrize("text", PAGES.values(), ids=[folder.name for folder in PAGES])
def test_a_page_begins_with_its_call_its_figures_and_its_picture(text):
    lines = [line for line in text.split("\n## ")[0].splitlines() if line][1:5]
    assert lines[0].startswith("<!-- table:start ")
    assert [line.split("**")[1] for line in lines[1:]] == ["Use", "Figures", "Picture"]


@pytest.mark.parametrize("ladder", ladders(), ids=lambda ladder: ladder.name)
def test_a_page_explains_every_rung(ladder):
    text = by_hand(PAGES[ladder.folder])
    assert not [name for name in ladder.names if f"`{name}`" not in text]


@pytest.mark.parametrize(
    "folder", ["bias_gelu", "glu", "dropout", "layer_norm_residual_dropout_gelu"]
)
def test_operators_that_fuse_others_count_what_that_saves(folder):
    (text,) = (text for path, text in PAGES.items() if path.name == folder)
    assert "<!-- table:fusion " in text


#: Public functions that are not operators.
OF_THE_PACKAGE = ("explain", "is_patched", "patch", "register_attention", "tune", "unpatch", "use",
                  "warmup")  # fmt: skip


@pytest.mark.parametrize("name", kernelwright.__all__)
def test_a_public_docstring_says_where_it_comes_from_and_what_it_takes(name):
    text = inspect.getdoc(getattr(kernelwright, name))
    assert "Raises:" in text or name in ("clip_grads_with_norm_", "warmup")
    if name not in OF_THE_PACKAGE:
        assert "Args:" in text
        assert re.search(r"\b[Aa]s\s+torch\.|Source: ", text)
