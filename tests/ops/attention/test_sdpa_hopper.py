"""Attention's rungs for Hopper's tensor cores, as far as they go without a GPU."""

import random
import struct

import pytest
import torch

from kernelwright.contract import H200, Gpu, TensorMap, TensorSpec
from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops.attention.sdpa import cuda_dynamic, cuda_hopper, dynamic_tiling, hopper_tiling
from support.hopper import holds

BF16 = torch.bfloat16


def specs(b, h, length, d, s=None, hk=None, dv=None, dtype=BF16, causal=False):
    s, hk, dv = s or length, hk or h, dv or d
    shapes = {"q": (b, h, length, d), "k": (b, hk, s, d), "v": (b, hk, s, dv)}
    made = {n: TensorSpec.contiguous(x, dtype) for n, x in shapes.items()}
    rest = {"seed": None, "mask_grad": False, "scale": 0.1, "p": 0.0}
    return {**made, "mask": None, "causal": causal, **rest}


def backward(args):
    q, v = args["q"], args["v"]
    y = TensorSpec.contiguous((*q.shape[:3], v.shape[3]), q.dtype)
    lse = TensorSpec.contiguous(q.shape[:3], torch.float32)
    return {"gy": y, "y": y, "lse": lse, **args}


CONFIGS = {
    "dynamic": dynamic_tiling.DYNAMIC_CONFIGS,
    "wgmma": hopper_tiling.WGMMA_CONFIGS,
    "persistent": hopper_tiling.PERSISTENT_CONFIGS,
    "backward": hopper_tiling.BACKWARD_CONFIGS,
}


def launches(rung, d, i):
    """The launches of a rung's config, with and without `causal` in turn, for heads of size d."""
    config, dtype = CONFIGS[rung][i], (BF16, torch.float16)[i % 2]
    args = specs(2, 4, 1000, d, causal=i % 2 == (rung != "wgmma"), dtype=dtype)
    if rung == "wgmma":
        return cuda_hopper.wgmma(H200, config, **args).launches
    if rung == "dynamic":
        return cuda_dynamic.dynamic(H200, config, **args).launches
    if rung == "persistent":
        return cuda_hopper.persistent(H200, config, **args).launches
    args = backward(specs(2, 4, 1000, d, causal=i % 2 == 1))
    return cuda_hopper.wgmma_backward(H200, config, **args).launches[1:]


@pytest.mark.cover
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize(("rung", "i"), [(r, i) for r in CONFIGS for i in range(len(CONFIGS[r]))])
def test_sums_stay_in_registers_and_products_do_not_wait(compiler, rung, i, d):
    for step in launches(rung, d, i):
        holds(step)


@pytest.mark.cover
@pytest.mark.parametrize("causal", [False, True])
def test_heads_of_256_fit_registers_and_shared_memory(compiler, causal):
    (step,) = cuda_dynamic.wgmma_wide(H200, {}, **specs(2, 4, 1000, 256, causal=causal)).launches
    holds(step)


def tile(n, blocks, heads, section):
    """attention::Tiles::tile of hopper/tiles.cuh."""
    first = n // (section * blocks) * section
    within, width = n - first * blocks, min(section, heads - first)
    return blocks - 1 - within // width, first + within % width


@pytest.mark.parametrize("causal", [False, True])
def test_every_block_of_queries_is_a_tile_and_heads_of_a_section_share_l2(causal):
    draw = random.Random(causal)
    for _ in range(20):
        hk, group, d = draw.randrange(1, 9), draw.randrange(1, 5), draw.choice((64, 128))
        length, s = draw.randrange(1, 5000), draw.randrange(1, 20_000)
        args = specs(draw.randrange(1, 9), hk * group, length, d, s=s, hk=hk, causal=causal)
        (step,) = cuda_dynamic.dynamic(H200, draw.choice(CONFIGS["dynamic"]), **args).launches
        (order,) = (a.value for a in step.args if getattr(a, "ctype", None) == "struct")
        count, blocks, heads, section, of_batch, shared = struct.unpack("<I5i", order)
        rows = (step.block[0] // 128 - 1) * 64
        assert (heads, blocks, of_batch) == (
            args["q"].shape[0] * hk * group, cdiv(length, rows), hk * group
        )  # fmt: skip
        assert (shared, count) == (group, heads * blocks)
        assert step.grid[0] == min(count, H200.sms)
        found = [tile(n, blocks, heads, section) for n in range(count)]
        assert sorted(found) == [(b, h) for b in range(blocks) for h in range(heads)]
        if causal:  # keys and values of a section's heads, which consecutive heads share
            kept = cdiv(section, group) * s * 2 * d * 2
            assert kept <= H200.l2_bytes // 2 or section == min(group, heads)
        else:
            assert section == 1


def test_a_map_describes_any_order_of_dimensions():
    t = torch.randn(2, 5, 3, 72).transpose(1, 2)  # (B, H, L, D) with tokens outside heads in memory
    spec = TensorSpec(tuple(t.shape), tuple(t.stride()), BF16)
    m = hopper_tiling.rows_map("q", spec, 64)
    strides = (1, *(s // 2 for s in m.strides))
    assert torch.equal(t.as_strided(m.shape, strides), t.permute(3, 2, 1, 0))
    assert m.box == (64, 64, 1, 1)


@pytest.mark.parametrize(
    ("d", "dv", "wide"), [(8, 8, 64), (64, 40, 64), (72, 8, 128), (40, 128, 128)]
)
def test_a_kernel_is_as_wide_as_the_wider_head(d, dv, wide):
    assert hopper_tiling.wide(d, dv) == wide
    (step,) = cuda_hopper.wgmma(
        H200, hopper_tiling.WGMMA_CONFIGS[0], **specs(1, 1, 9, d, dv=dv)
    ).launches
    assert f", {wide}, " in step.kernel.name


def test_every_query_and_key_has_a_block():
    args = backward(specs(2, 6, 300, 64, s=130, hk=2))
    dot, keys, queries = cuda_hopper.wgmma_backward(
        H200, hopper_tiling.BACKWARD_CONFIGS[0], **args
    ).launches
    assert dot.grid == (2 * 6 * 384 // 16, 1, 1)
    assert keys.grid == (2 * 2 * 2, 1, 1)
    assert queries.grid == (2 * 6 * 3, 1, 1)
    assert [m.tensor for m in keys.args if isinstance(m, TensorMap)] == [
        "q", "k", "v", "gy", "gk", "gv"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"d": 60}, "multiple of 16 bytes"),
        ({"d": 136}, "wider than 128"),
        ({"dtype": torch.float32}, "bfloat16 or float16"),
    ],
)
def test_what_the_copy_engine_cannot_read_is_refused(changed, reason):
    args = specs(**({"b": 1, "h": 2, "length": 9, "d": 64} | changed))
    assert reason in hopper_tiling.fits(H200, **args)


def test_the_wide_kernel_is_for_heads_that_others_do_not_take():
    assert dynamic_tiling.fits_wide(H200, **specs(1, 2, 9, 136)) is None
    assert "no tile" in dynamic_tiling.fits_wide(H200, **specs(1, 2, 9, 128))
    assert "264" in dynamic_tiling.fits_wide(H200, **specs(1, 2, 9, 264))
    assert "wgmma" in dynamic_tiling.fits_wide(Gpu((8, 0), 108, 166_912, 0), **specs(1, 2, 9, 256))


def test_strides_and_starts_are_checked():
    args = specs(1, 2, 9, 64)
    odd = TensorSpec((1, 2, 9, 64), (1, 1, 130, 1), BF16)
    assert "k:" in hopper_tiling.fits(H200, **(args | {"k": odd}))
    repeated = TensorSpec((1, 2, 9, 64), (0, 0, 64, 1), BF16)
    assert "v:" in hopper_tiling.fits(H200, **(args | {"v": repeated}))
    off = TensorSpec((1, 2, 9, 64), (1152, 576, 64, 1), BF16, align=2)
    assert "q:" in hopper_tiling.fits(H200, **(args | {"q": off}))
    assert "wgmma" in hopper_tiling.fits(Gpu((8, 0), 108, 166_912, 0), **args)
