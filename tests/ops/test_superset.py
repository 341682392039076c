"""Rows of any length, through the rungs that copy their aligned supersets."""

import random

import pytest
import torch

from kernelwright.contract import H200, TensorSpec, case
from kernelwright.contract.inputs import FLOATS
from kernelwright.dispatch import entry_of, ladder, launcher
from kernelwright.ops import _superset
from kernelwright.toolchain import availability
from kernelwright.workbench import listing
from kernelwright.workbench.verify.candidate import all_results, copy_of, expected, map_tensors
from kernelwright.workbench.verify.large_tensors import right
from support.publics import DEVICE

NORM = {"eps": 1e-5, "weight": "same"}
OPERATORS = {
    "softmax.backward": {"dim": -1},
    "layer_norm": NORM,
    "add_rms_norm.backward": NORM,
    "cross_entropy.backward": {},
    "cross_entropy_with_grad": {},
}
SOME = {"softmax": {"dim": -1}, "rms_norm.backward": NORM, "cross_entropy": {}}


@pytest.mark.skipif(availability.missing("cuda", DEVICE) is not None, reason="no compiler")
@pytest.mark.parametrize("name", OPERATORS)
def test_random_rows(name):
    """Shapes that no case has: each thread's share and both ends of a row differ from row to
    row."""
    rng = random.Random(name)
    chosen = ladder(name)
    operator, rung = chosen.operator, chosen.rung("cuda_superset")
    for dtype, low, high in ((torch.bfloat16, 2, 60), (torch.float32, 600, 1100)):
        at = case((rng.randint(3, 9), rng.randint(low, high) | 1), dtype, **OPERATORS[name])
        assert rung.supports(H200, **listing.specs_of(chosen, at)) is None, at.id
        native = entry_of(chosen, chosen.rung("native"))
        want = expected(operator, native, at, DEVICE)
        call = launcher(chosen, want.args, rung.name)
        args = map_tensors(want.args, copy_of)
        found = right(operator, want, all_results(operator, args, call(*args.values())))
        assert found.ok, f"{at.id}: {found.why}"


@pytest.mark.parametrize("name", SOME)
def test_odd_rows_go_there_first_and_have_a_bucket_of_their_own(name):
    chosen = ladder(name)
    for dtype in FLOATS:
        at = (case((64, n), dtype, **SOME[name]) for n in (3001, 3000))
        odd, even = (listing.specs_of(chosen, c) for c in at)
        assert chosen.order(H200, **odd)[0] == "cuda_superset"
        assert chosen.order(H200, **even)[0] != "cuda_superset"
        assert chosen.bucket(**odd) != chosen.bucket(**even)


def test_a_team_holds_every_vector_of_a_row_with_few_threads_idle():
    for n in (1, 7, 32, 33, 100, 352, 626, 640, 1000, 5000, 8192):
        for aim in (1, 2, 4, 8):
            team = _superset.team(n, aim, _superset.WORDS)
            assert team is not None
            assert team.vectors * team.threads >= n > (team.vectors - 1) * team.threads
            assert team.threads <= 16 or team.threads % 32 == 0
            assert team.block % team.threads == 0
            assert team.block <= 1024
            assert team.vectors * _superset.WORDS <= (64 if team.threads <= 512 else 32)
    assert _superset.team(1 << 14, 4, _superset.WORDS) is None


def test_rows_of_different_alignment_are_refused():
    def rows(stride, align=16):
        return {"x": TensorSpec((4, 33), (stride, 1), torch.float32, align)}

    assert _superset.out_of_step(rows(33)) is None
    assert _superset.out_of_step(rows(37)) is None
    assert "aligned differently" in str(_superset.out_of_step(rows(34)))
    assert "not aligned to 16 bytes" in str(_superset.out_of_step(rows(33, 4)))


def test_a_row_touches_one_vector_more_where_it_may_start_anywhere():
    spec = TensorSpec.contiguous((4, 33), torch.bfloat16)
    assert _superset.touched(spec) == 5
    assert max((past + 33 + 7) // 8 for past in range(8)) == 5
    assert _superset.touched(TensorSpec.contiguous((4, 40), torch.bfloat16)) == 5
    assert _superset.touched(TensorSpec((4, 34), (40, 1), torch.bfloat16)) == 5
    assert _superset.touched(TensorSpec.contiguous((4, 34), torch.bfloat16)) == 6
