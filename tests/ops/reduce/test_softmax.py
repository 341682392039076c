"""softmax: its public function, and the launches that its configs turn into."""

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200, TensorSpec
from kernelwright.dispatch import ladder, plan_of
from kernelwright.ops.reduce.softmax import heuristics
from kernelwright.ops.reduce.softmax.tiling import REGISTERS, rows_of, words

FORWARD, BACKWARD = ladder("softmax"), ladder("softmax.backward")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LENGTHS = (1, 5, 8, 31, 64, 96, 257, 768, 1000, 1024, 2048, 4096, 5000, 16384, 50257, 50304, 65536,
           128256, 131072, 262144)  # fmt: skip


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_means_what_torch_means(dim, dtype):
    x = torch.randn(3, 4, 5, dtype=torch.bfloat16)
    y = kw.softmax(x, dim, dtype=dtype)
    assert y.dtype == (dtype or x.dtype)
    torch.testing.assert_close(y, F.softmax(x, dim, dtype=dtype))


def test_scalars_and_empty_rows():
    assert kw.softmax(torch.tensor(3.0), 0) == 1
    assert kw.softmax(torch.tensor(3.0), -1).shape == ()
    assert kw.softmax(torch.zeros(3, 0), -1).shape == (3, 0)


@pytest.mark.parametrize("shape", [(4,), (4, 5), (2, 3, 4)])
def test_without_a_dim_it_warns_and_chooses_as_torch_does(shape):
    x = torch.randn(shape)
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        y = kw.softmax(x)
    with pytest.warns(UserWarning):
        assert torch.equal(y, F.softmax(x))


def test_bad_input_is_named():
    with pytest.raises(IndexError, match="dim: 2 is out of range for a tensor of 2 dimensions"):
        kw.softmax(torch.zeros(2, 3), 2)
    with pytest.raises(IndexError, match="dim: 1 is out of range for a tensor of 0 dimensions"):
        kw.softmax(torch.tensor(1.0), 1)
    with pytest.raises(TypeError, match=r"input: must be floating point, is torch\.int64"):
        kw.softmax(torch.zeros(2, 3, dtype=torch.int64), 0)
    assert kw.softmax(torch.zeros(2, 3, dtype=torch.int64), 0, dtype=torch.float32)[0, 0] == 0.5


def test_a_contiguous_dim_is_a_row_in_any_position():
    x = torch.randn(4, 6, 5).movedim(-1, 1)
    assert x.stride(1) == 1
    y = kw.softmax(x, 1)
    assert y.stride() == x.stride()
    torch.testing.assert_close(y, torch.softmax(x, 1))


def test_rows_of_nothing_and_infinities():
    inf = float("inf")
    x = torch.tensor([[-inf, -inf], [-inf, 0.0], [inf, 0.0], [float("nan"), 0.0]])
    assert torch.equal(kw.softmax(x, -1).isnan(), torch.softmax(x, -1).isnan())
    assert kw.softmax(x, -1)[1].tolist() == [0.0, 1.0]


def test_gradient_vmap_and_compile():
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: kw.softmax(a, 1), x)
    batched = torch.func.vmap(lambda a: kw.softmax(a, 0))(x.detach())
    torch.testing.assert_close(batched, torch.softmax(x.detach(), 1))
    scalars = torch.func.vmap(lambda a: kw.softmax(a, 0))(torch.randn(7))
    assert torch.equal(scalars, torch.ones(7))
    compiled = torch.compile(lambda a: kw.softmax(a * 2, 0), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x.detach()), torch.softmax(x.detach() * 2, 0))


def _calls(lad, dtype, cols, rows=64):
    """Calls with contiguous rows, rows misaligned by a stride, and a misaligned pointer."""
    for stride, align in ((cols, 16), (cols + 1, 16), (cols, 2)):
        t = TensorSpec((rows, cols), (stride, 1), dtype, max(align, dtype.itemsize))
        yield {"x": t, "dim": -1} if lad is FORWARD else {"gy": t, "y": t, "dim": -1}


@pytest.mark.parametrize("lad", [FORWARD, BACKWARD], ids=lambda lad: lad.name)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rung", ["cuda_warp", "cuda_block", "cuda_cluster"])
def test_every_config_holds_every_row_that_fits(lad, dtype, rung):
    rung = lad.rung(rung)
    held = 0
    for cols in LENGTHS:
        for specs in _calls(lad, dtype, cols):
            if rung.supports(H200, **specs):
                continue
            held = max(held, cols)
            inputs = heuristics.inputs_of(specs)
            width = rows_of(*inputs).width
            for config in rung.configs:
                (step,) = plan_of(lad, rung, specs, config=config).launches
                numbers = step.kernel.name.split("<")[1].rstrip(">").split(", ")[1:]
                vec, vectors, lanes, *more = map(int, numbers)
                blocks = more[0] if rung.name == "cuda_cluster" else 1
                assert vec == width
                assert blocks * lanes * vectors * vec >= cols
                registers = vectors * words(vec, dtype.itemsize)
                assert registers <= (REGISTERS if step.block[0] <= 512 else REGISTERS // 2)
                assert step.shared < H200.shared_per_block
                assert step.kernel.cluster == blocks
    assert held >= {"cuda_warp": 1024, "cuda_block": 16384, "cuda_cluster": 262144}[rung.name]


@pytest.mark.parametrize("lad", [FORWARD, BACKWARD], ids=lambda lad: lad.name)
def test_heuristics_pick_configs_that_are_verified(lad):
    for rung in lad.rungs:
        for dtype in DTYPES:
            for cols in LENGTHS:
                for rows in (1, 4096, 100_000):
                    for specs in _calls(lad, dtype, cols, rows):
                        if rung.heuristic and not rung.supports(H200, **specs):
                            assert rung.heuristic(H200, **specs) in rung.configs


@pytest.mark.parametrize("lad", [FORWARD, BACKWARD], ids=lambda lad: lad.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_some_rung_takes_every_row(lad, dtype):
    for cols in (*LENGTHS, 1_000_003):
        for specs in _calls(lad, dtype, cols):
            names = lad.order(H200, **specs)
            assert any(lad.rung(n).supports(H200, **specs) is None for n in names)
