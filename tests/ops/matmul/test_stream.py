"""The rungs that stream the weight through a ring, as far as they go without a GPU: what their
kernels compile to, how launches divide the weight, and which calls are refused."""

import random

import pytest
import torch

from kernelwright.contract import H200, TensorMap, TensorSpec
from kernelwright.ops.matmul.gemm.stream import cuda, tiling
from kernelwright.ops.matmul.quantized import cuda_stream, stream_choice
from support.hopper import holds

BF16 = torch.bfloat16
SHAPES = [(8192, 8192), (28672, 4096), (128256, 4096), (5120, 13824), (36, 128), (772, 3072)]


def spec(*shape, dtype=BF16):
    return TensorSpec.contiguous(shape, dtype)


def quantized(m, n, k, bits):
    packed = spec(n, k * bits // 8, dtype=torch.uint8)
    given = {"x": spec(m, k), "packed": packed, "scales": spec(k // 128, n, 2)}
    return {**given, "bias": None, "bits": bits}


def launch(bits, config, m, n, k):
    if bits == 16:
        b = TensorSpec((k, n), (1, k), BF16)
        plan = cuda.plan(H200, config, spec(m, k), b)
    else:
        plan = cuda_stream.plan(H200, config, **quantized(m, n, k, bits))
    (step,) = plan.launches
    return step


COMPILED = [
    pytest.param(4, 0, 64, id="4-of-256-rows"),
    *(
        pytest.param(*of, marks=pytest.mark.long)
        for of in ((4, 8, 64), (8, 0, 64), (4, 0, 32), (8, 2, 16), (16, 1, 64), (16, 15, 1))
    ),
]


@pytest.mark.cover
@pytest.mark.parametrize(("bits", "config", "m"), COMPILED)
def test_sums_stay_in_registers_and_products_do_not_wait(compiler, bits, config, m):
    holds(launch(bits, tiling.CONFIGS[config], m, 8192, 4096))


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_a_ring_has_stages_and_fits_with_every_config(bits):
    for config in tiling.CONFIGS:
        for m in (1, 16, 32, 64):
            of = tiling.stream_of(H200, config, m, 8192, 8192, bits)
            whole = of.shared + tiling.STATIC + 1024
            assert of.stages >= 2 and whole * config["resident"] <= H200.shared_per_block + 1024


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_every_byte_that_a_stage_waits_for_is_copied(bits):
    """The number that a launch passes to its barriers is what its boxes hold."""
    chance = random.Random(bits)
    for n, k in SHAPES:
        m, config = chance.randint(1, 64), chance.choice(tiling.CONFIGS)
        step = launch(bits, config, m, n, k)
        expected = next(a.value for a in step.args if getattr(a, "ctype", "") == "i32")
        boxes = {a.tensor: a for a in step.args if isinstance(a, TensorMap)}
        size = {name: map.dtype.itemsize * map.box[0] * map.box[1] for name, map in boxes.items()}
        if bits == 16:
            assert expected == sum(size.values())
        else:
            rows = 64 * config["groups"]
            assert expected == size["packed"] + 2 * size["x"] + rows * 4
            assert rows * 4 % size["scales"] == 0 and size["scales"] % 128 == 0


def test_all_rows_of_the_weight_belong_to_a_block():
    for n, k in SHAPES:
        for config in tiling.CONFIGS:
            of = tiling.stream_of(H200, config, 16, n, k, 16)
            tiles = -(-n // of.rows)
            if config["cluster"] > 1:  # whose blocks have one tile each
                assert of.grid == tiles * config["cluster"]
            assert of.grid <= max(H200.sms * config["resident"], tiles * config["cluster"])


def test_what_the_copy_engine_cannot_load_is_refused():
    assert stream_choice.fits(H200, **quantized(4, 64, 256, 4)) is None
    assert "16 bytes" in stream_choice.fits(H200, **quantized(4, 63, 256, 4))
    assert "x: is empty" in stream_choice.fits(H200, **quantized(0, 64, 256, 4))
    expanded = TensorSpec((256, 64), (1, 0), BF16)
    assert "b: its rows overlap" in tiling.fits(H200, spec(4, 256), expanded)
