"""Which rungs `list` marks as teaching rungs, and which it says are dispatched."""

import json
from dataclasses import replace

import pytest

from kernelwright.contract import H200
from kernelwright.dispatch import fitted, ladder, ladders
from kernelwright.workbench import listing
from kernelwright.workbench.inspection import specs_of
from tools import teaching as tool


@pytest.mark.parametrize("name", ["tanh", "spmv", "mul"])
def test_teaching_rungs_are_those_that_dispatch_never_tries_first(name):
    assert listing.teaching(ladder(name)) == listing.shown_as_teaching(ladder(name))


@pytest.mark.long
def test_the_file_of_teaching_rungs_is_current():
    assert listing.TEACHING.read_text() == tool.text()


def test_a_rung_that_is_never_dispatched_is_a_teaching_rung():
    known = [x for x in ladders() if x.package.startswith(listing.OPERATORS)]
    listed = {x.name: listing.shown_as_teaching(x) for x in known}
    assert listed.keys() >= json.loads(listing.TEACHING.read_text()).keys()
    for lad in known:
        assert set(listed[lad.name]) <= {r.name for r in lad.rungs if r.is_gpu}
        never = {r.name for r in lad.rungs if r.is_gpu and not r.dispatchable}
        assert never <= set(listed[lad.name]), lad.name


def test_what_the_listing_says():
    (op, _) = listing.listing(["softmax"]).operators
    by_name = {r.name: r for r in op.rungs}
    assert by_name["cuda_naive"].teaching and not by_name["cuda_naive"].serves
    assert not by_name["cuda_block"].teaching and not by_name["native"].teaching
    assert not any(r.teaching and r.serves for r in op.rungs)


def test_the_listing_knows_fitted_choices(monkeypatch):
    """As `select` does: after the tuned table, before the ladder's order."""
    lad = ladder("softmax")
    call = specs_of(lad, next(c for c in lad.operator.cases if c.numel == 32768 * 1024))
    monkeypatch.setattr(listing, "tuned_table", lambda *_: {})
    other = lad.rung("cuda_online" if lad.order(H200, **call)[0] != "cuda_online" else "cuda_warp")
    assert not other.dispatchable or other.supports(H200, **call) is None
    leaf = replace(other, dispatchable=True), {"threads": 256}
    monkeypatch.setattr(fitted, "choice", lambda *_: leaf)
    assert listing.served(lad, H200, call) == leaf
