"""Tests of embedding: any indices, padding, indices out of range, the same bits in every call."""

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200, Unsupported, case
from kernelwright.dispatch import launcher, plan_of, specs_of, unsupported
from kernelwright.ops.embedding.lookup import LADDER, LADDER_BACKWARD, spec
from support.publics import DEVICE, agree, gpu, randn

FORWARD = ("manual", "native", "triton_rows", "cuda_vec16", "cuda_sliced", "cuda_scatter")
BACKWARD = ("manual", "native", "triton_rows", "cuda_atomics", "cuda_sorted", "cuda_slots")
DETERMINISTIC = ("cuda_sorted", "cuda_slots")


def by(ladder, rung, *args):
    """The result of an operator by a rung; skips if the rung cannot run here."""
    named = dict(zip((a.name for a in ladder.operator.args), args, strict=True))
    why = unsupported(ladder.rung(rung), specs_of(named), named["indices"].device)
    if why:
        pytest.skip(why)
    return launcher(ladder, named, rung)(*args)


def drawn(kind, n, rows, dtype=torch.int64):
    c = case((rows, 1), torch.float32, n=(n,), indices=kind, index=dtype)
    return spec.indices_of(c, DEVICE)


@pytest.mark.parametrize("rung", BACKWARD)
@pytest.mark.parametrize("kind", spec.INDICES)
@pytest.mark.parametrize("rows", [50, 3000])
def test_every_distribution_of_indices(rung, kind, rows):
    """Runs longer than a piece, of one position and of none; keys of one and of two digits."""
    indices, gy = drawn(kind, 2500, rows, torch.int32), randn(2500, 4)
    got = by(LADDER_BACKWARD, rung, gy, indices, rows, 3)
    want = spec.backward_reference(gy.double(), indices, rows, 3)
    scale = spec.backward_reference(gy.double().abs(), indices, rows, 3)
    assert ((got.double() - want).abs() <= 2e-6 * scale).all()


def test_a_run_of_all_positions_is_cut_into_pieces():
    """One row for all positions: its sum is added in pieces no longer than the config says."""
    config = LADDER_BACKWARD.rung("cuda_sorted").configs[0]
    args = {"gy": randn(5000, 8), "indices": drawn("equal", 5000, 40), "num_weights": 40,
            "padding_idx": -1}  # fmt: skip
    plan = plan_of(LADDER_BACKWARD, LADDER_BACKWARD.rung("cuda_sorted"), specs_of(args))
    pieces = plan.scratch["partials"].spec.shape[0]
    assert pieces * config["piece"] >= 5000 > (pieces - 1) * config["piece"]
    assert [step.kernel.name.split("<")[0] for step in plan.launches][-2:] == [
        "embedding_bwd_pieces", "embedding_bwd_rows",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "passes"), [(1, 1), (512, 1), (513, 2), (65_536, 2), (128_256, 2), (2**18 + 1, 3)]
)
def test_a_sort_takes_as_few_passes_as_nine_bits_allow(rows, passes):
    args = {"gy": randn(4, 8), "indices": drawn("random", 4, 1), "num_weights": rows,
            "padding_idx": -1}  # fmt: skip
    plan = plan_of(LADDER_BACKWARD, LADDER_BACKWARD.rung("cuda_sorted"), specs_of(args))
    names = [step.kernel.name.split("<")[0] for step in plan.launches]
    assert names.count("embedding_place") == passes
    assert len(names) == 3 * passes + 3


@pytest.mark.parametrize(("n", "order", "pieces"), [(15, 0, 0), (16, 1, 0), (256, 16, 3)])
def test_what_no_run_can_be_long_enough_for_is_not_launched(n, order, pieces):
    args = {"gy": randn(n, 8), "indices": drawn("equal", n, 40), "num_weights": 40,
            "padding_idx": -1}  # fmt: skip
    plan = plan_of(LADDER_BACKWARD, LADDER_BACKWARD.rung("cuda_slots"), specs_of(args))
    launches = {step.kernel.name.split("<")[0]: step for step in plan.launches}
    assert plan.scratch["listed"].spec.shape == (order, 4)
    assert ("embedding_place" in launches) == bool(order)
    assert ("embedding_order" in launches) == bool(order)
    assert plan.scratch["pieces"].spec.shape == (pieces, 2)
    assert ("embedding_bwd_slots_pieces" in launches) == bool(pieces)


@pytest.mark.parametrize("kind", spec.INDICES)
def test_rows_are_scattered_to_every_position(kind):
    """Runs of every length: cut into pieces, in one piece, and empty."""
    indices, weight = drawn(kind, 2500, 300), randn(300, 12)
    got = by(LADDER, "cuda_scatter", weight, indices, 300, 3)
    assert torch.equal(got, weight[indices])


@pytest.mark.parametrize(("rows", "d", "n"), [(5, 0, 3), (40, 24, 0), (0, 8, 0)])
def test_pytorchs_kernel_gets_no_empty_gradient(rows, d, n):
    """It would treat a table without columns as one with a column, and read out of bounds."""
    called = []

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            called.append(function)
            return function(*args, **kwargs or {})

    gy, indices = randn(n, d), drawn("random", n, max(rows, 1))
    with Recorder():
        got = by(LADDER_BACKWARD, "native", gy, indices, rows, -1)
    assert got.shape == (rows, d) and not got.any()
    assert torch.ops.aten.embedding_dense_backward.default not in called


@pytest.mark.parametrize("rung", [r for r in BACKWARD if r != "native"])
def test_sums_are_float32_in_every_dtype(rung):
    """300 ones and a thousand of 2^-9: bfloat16 would stop at 256. PyTorch adds in bfloat16 on a
    CPU, and rounds parts of a sum to it on a GPU."""
    gy = torch.cat((torch.ones(300, 2), torch.full((1000, 2), 2.0**-9))).bfloat16().to(DEVICE)
    got = by(LADDER_BACKWARD, rung, gy, drawn("equal", 1300, 7), 7, -1)
    want = torch.zeros(7, 2, dtype=torch.bfloat16, device=DEVICE)
    want[3] = 300 + 1000 * 2.0**-9
    assert torch.equal(got, want)


@pytest.mark.parametrize("rung", ["triton_rows", "cuda_atomics"])
def test_atomics_add_what_a_tile_of_positions_holds(rung):
    """Thousands of 2^-25 after a one: each alone would not change the one, 64 together do."""
    tiles, tile = 30, 64
    gy = torch.full((tiles * tile, 4), 2.0**-25, device=DEVICE)
    gy[0] = 1
    got = by(LADDER_BACKWARD, rung, gy, drawn("equal", len(gy), 7), 7, -1)
    assert (got[3] >= 1 + (tiles - 1) * tile * 2.0**-25 - 2.0**-23).all()


def test_deterministic_rungs_are_those_that_serve():
    serving = {r.name for r in LADDER_BACKWARD.rungs if r.dispatchable}
    assert serving == {r.name for r in LADDER_BACKWARD.rungs if r.deterministic}
    assert serving == {"native", *DETERMINISTIC}


@pytest.mark.parametrize("rung", DETERMINISTIC)
def test_the_sum_does_not_depend_on_which_block_comes_first(rung):
    """Bit for bit, whatever order the emulator or the GPU runs blocks in."""
    indices, gy = drawn("zipf", 3000, 60), randn(3000, 4)
    first = by(LADDER_BACKWARD, rung, gy, indices, 60, -1)
    for _ in range(20 if DEVICE == "cuda" else 2):
        assert torch.equal(by(LADDER_BACKWARD, rung, gy, indices, 60, -1), first)


def test_what_is_added_does_not_depend_on_how_many_rows_there_are():
    """Slots are claimed and runs placed in the order in which blocks run, but sums are added by
    position: among 60 rows, and among 3,000, most of which the other look-ups use."""
    indices = drawn("zipf", 3000, 60)
    gy = randn(3000, 4)
    alone = by(LADDER_BACKWARD, "cuda_slots", gy, indices, 60, -1)
    others = torch.arange(2000, device=DEVICE) + 60
    both, more = torch.cat((others, indices)), torch.cat((randn(2000, 4), gy))
    beside = by(LADDER_BACKWARD, "cuda_slots", more, both, 2060, -1)
    assert torch.equal(beside[:60], alone)


def test_a_set_of_positions_larger_than_shared_memory_is_put_in_order_by_parts():
    """2^18 bits at a time, with runs that cross the border between parts."""
    indices = drawn("zipf", 2**18 + 5000, 7, torch.int32)
    gy = randn(len(indices), 1)
    got = by(LADDER_BACKWARD, "cuda_slots", gy, indices, 7, -1)
    want = spec.backward_reference(gy.double(), indices, 7, -1)
    assert torch.equal(got, by(LADDER_BACKWARD, "cuda_slots", gy, indices, 7, -1))
    torch.testing.assert_close(got.double(), want, atol=2e-3, rtol=0)


@pytest.mark.parametrize("padding_idx", [0, 3, -1, -4])
def test_padding_has_no_gradient(padding_idx):
    indices = torch.tensor([[0, 3, 3], [1, 0, 2]], device=DEVICE)
    ours, theirs = (randn(4, 6).requires_grad_() for _ in range(2))
    y = kw.embedding(indices, ours, padding_idx)
    want = F.embedding(indices, theirs, padding_idx)
    agree(y, want, y.dtype)
    agree(
        torch.autograd.grad(y.square().sum(), ours),
        torch.autograd.grad(want.square().sum(), theirs),
        y.dtype,
    )
    assert not torch.autograd.grad(kw.embedding(indices, ours, padding_idx).sum(), ours)[0][
        padding_idx
    ].any()


def test_nothing_but_the_indices_is_saved():
    """The table may change between forward and backward, as in PyTorch."""
    weight, indices = randn(9, 4).requires_grad_(), drawn("random", 5, 9)
    saved = []

    def keep(t):
        saved.append(t.shape)
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        y = kw.embedding(indices, weight)
    assert saved == [(5,)]
    with torch.no_grad():
        weight += 1
    y.sum().backward()


def test_indices_and_tables_of_any_strides():
    indices = drawn("random", 24, 7).view(4, 6).t()[::2]
    weight = randn(7, 12)
    for table in (weight[:, :5], weight.t()[:7], weight[::2].repeat(2, 1)[:7]):
        agree(kw.embedding(indices, table), F.embedding(indices, table), table.dtype)


def test_it_compiles_whole():
    weight, indices = randn(9, 4).requires_grad_(), drawn("random", 5, 9)
    torch.compiler.reset()
    fn = torch.compile(lambda i, w: kw.embedding(i, w, 2), fullgraph=True, backend="aot_eager")
    agree(fn(indices, weight), F.embedding(indices, weight, 2), weight.dtype)
    fn(indices, weight).sum().backward()
    assert weight.grad is not None


@pytest.mark.skipif(DEVICE == "cuda", reason="an assertion on a device ends the process")
@pytest.mark.parametrize("rung", FORWARD)
@pytest.mark.parametrize("wrong", [-1, 7, 2**40])
def test_a_number_that_no_row_has_fails(rung, wrong):
    indices = torch.tensor([0, wrong, 2])
    weight = randn(7, 64)
    # PyTorch's IndexError, the emulator's ToolchainError, the interpreter's own
    with pytest.raises(Exception, match="out of range"):
        by(LADDER, rung, weight, indices, 7, -1)


@pytest.mark.skipif(DEVICE == "cuda", reason="an assertion on a device ends the process")
def test_a_table_without_rows_is_refused_on_every_device():
    weight = torch.empty(0, 8, device=DEVICE)
    with pytest.raises(IndexError, match=r"^weight: has no rows$"):
        kw.embedding(torch.zeros(3, dtype=torch.int64, device=DEVICE), weight)
    assert kw.embedding(torch.zeros(0, dtype=torch.int64, device=DEVICE), weight).shape == (0, 8)


def test_by_default_that_is_pytorchs_error():
    with pytest.raises(IndexError, match="out of range"):
        kw.embedding(torch.tensor([7]), randn(7, 4))


@gpu
def test_on_a_gpu_it_is_a_device_side_assertion():
    import subprocess
    import sys

    code = (
        "import torch, kernelwright as kw\n"
        "with kw.use(embedding='cuda_vec16'):\n"
        "    kw.embedding(torch.tensor([7], device='cuda'), torch.ones(7, 4, device='cuda'))\n"
        "torch.cuda.synchronize()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "device-side assert" in done.stderr


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"max_norm": 1.0}, NotImplementedError, "max_norm: "),
        ({"scale_grad_by_freq": True}, NotImplementedError, "scale_grad_by_freq: "),
        ({"sparse": True}, NotImplementedError, "sparse: "),
        ({"padding_idx": 4}, ValueError, "padding_idx: is 4, but weight has 4 rows"),
        ({"padding_idx": -5}, ValueError, "padding_idx: is -5"),
        ({"weight": torch.ones(4)}, ValueError, "weight: must have 2 dimensions"),
        ({"weight": torch.ones(4, 4).int()}, TypeError, "weight: must be floating point"),
        ({"input": torch.ones(4)}, TypeError, "input: must be int32 or int64"),
        ({"input": [1, 2]}, TypeError, "input: must be a tensor"),
    ],
)
def test_what_it_does_not_take_is_named(kwargs, error, message):
    with pytest.raises(error, match=message):
        kw.embedding(**{"input": torch.tensor([1, 2]), "weight": torch.ones(4, 4), **kwargs})


def test_slices_serve_tables_that_l2_does_not_hold():
    def chosen(rows, cols, n):
        args = {"weight": torch.empty(rows, cols, device="meta"), "num_weights": rows,
                "indices": torch.empty(n, dtype=torch.int64, device="meta")}  # fmt: skip
        rung = LADDER.order(H200, **args)[0]
        config = LADDER.rung("triton_rows").heuristic(H200, **args)
        return rung, config["slice"], config["keep"]

    assert chosen(65_536, 768, 262_144) == ("triton_rows", 256, True)
    assert chosen(65_536, 768, 8192)[::2] == ("triton_rows", False)
    assert chosen(4096, 768, 262_144) == ("triton_rows", 4096, True)
    assert chosen(65_536, 4096, 262_144)[0] == "cuda_scatter"


@pytest.mark.parametrize("ladder", [LADDER, LADDER_BACKWARD])
def test_a_grid_counts_the_tiles_of_the_longest_rows(ladder):
    n, rows, cols = 9, 3, 2**25
    name, count = ("weight", rows) if ladder is LADDER else ("gy", n)
    args = {name: torch.empty(count, cols, device="meta"), "num_weights": rows, "padding_idx": -1,
            "indices": torch.empty(n, dtype=torch.int64, device="meta")}  # fmt: skip
    for config in ladder.rung("triton_rows").configs:
        plan = plan_of(ladder, ladder.rung("triton_rows"), specs_of(args), config=config)
        assert all(step.grid[1] <= 65_535 for step in plan.launches)
    if ladder is LADDER:
        why = ladder.rung("cuda_sliced").supports(H200, **specs_of(args))
        assert "more slices than the blocks of a grid" in why


def test_short_rows_are_not_sliced():
    with pytest.raises(Unsupported, match="too short to slice"), kw.use(embedding="cuda_sliced"):
        kw.embedding(torch.tensor([1], device=DEVICE), randn(4, 8))
