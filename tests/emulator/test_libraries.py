"""emulator/libraries/README.md says of each library what its headers have."""

import re

import pytest

from kernelwright.emulator.program.headers import LIBRARIES

README = (LIBRARIES.parent / "README.md").read_text()
HEADERS = "\n".join(p.read_text() for p in sorted(LIBRARIES.rglob("*")) if p.is_file())
OF_A_LIBRARY = re.compile(r"(?:cublas|CUBLAS|cufft|CUFFT|curand|cusparse|CUSPARSE|nvml|NVML|nvtx"
                          r"|nvrtc|NVRTC|Warp|Block|Device)\w+")  # fmt: skip


def named(row):
    """Names in code spans of a row of the tables."""
    cells = re.findall(rf"^\| {row} \| (.*) \|$", README, re.M)
    return [name for cell in cells for name in re.findall(r"`(?:\w+::)*(\w+)`", cell)]


def declared(name):
    return re.search(rf"\b{name}\b", HEADERS) is not None


def test_headers_are_named():
    names = {p.name for p in LIBRARIES.glob("*.h")}
    folders = {p.name for p in LIBRARIES.iterdir() if p.is_dir()}
    assert [n for n in names if f"`{n}`" not in README] == []
    assert [n for n in folders if f"{n}/" not in README] == []


def test_what_is_implemented_is_declared():
    assert len(named("not declared")) > 80
    assert [n for n in named("not declared") if declared(n)] == []
    its = [n for n in (*named("implemented"), *named("refused")) if OF_A_LIBRARY.fullmatch(n)]
    made_by_macros = {"cusparseDenseToSparse", "cusparseScsrmv", "cusparseDcsrmv"}
    assert len(its) > 80
    assert [n for n in its if not declared(n) and n not in made_by_macros] == []


@pytest.mark.parametrize(
    ("refused", "file"),
    [
        ("CUBLASLT_EPILOGUE_\\w+", "cublas_lt.cpp"),
        ("nvmlDevice\\w+", "nvml.cpp"),
    ],
)
def test_what_is_refused(refused, file):
    """The README names what a source refuses, and nothing else."""
    text = (LIBRARIES.parent / file).read_text()
    if file == "nvml.cpp":
        actual = re.findall(r"(nvmlDevice\w+)\([^{;]*\{\s*return absent", text)
        actual += re.findall(r"KW_ABSENT\((nvml\w+)\)", text)
    else:
        actual = re.findall(refused, text[text.index("bool supported(") : text.index("void *adv")])
    assert set(actual) == {n for n in named("refused") if re.fullmatch(refused, n)}
