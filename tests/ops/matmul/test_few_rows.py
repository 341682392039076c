"""Products of few rows: how clustered.cuh's launches are cut, and which rung is dispatched."""

import random

import pytest
import torch

from kernelwright.contract import H200, TensorSpec
from kernelwright.ops.matmul.gemm.few_rows import choice, cluster_choice, cluster_tiling
from kernelwright.ops.matmul.gemm.hopper import choice as hopper_choice

BF16 = torch.bfloat16


def product(m, n, k, dtype=BF16):
    return {"a": TensorSpec((m, k), (k, 1), dtype), "b": TensorSpec((k, n), (1, k), dtype)}


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_a_cluster_covers_k_and_every_region_of_shared_memory_fits(bits):
    generator = random.Random(bits)
    for _ in range(200):
        m, n = generator.randint(1, 64), generator.randint(1, 40_000)
        k = 128 * generator.randint(1, 64)
        if cluster_choice.held(H200, m, n, k, bits):
            continue
        for config in cluster_choice.CONFIGS:
            s = cluster_tiling.split_of(H200, config, m, n, k, bits)
            c = s.config
            steps = -(-k // s.depth)
            each = -(-steps // c["cluster"])
            assert s.rings >= each * s.depth * 2 * m  # x, of which a block holds `each` steps
            warps = c["along_n"] * c["along_k"]
            of_row = s.depth * bits // 8 + (s.depth // 128 * 4 if bits < 16 else 0)
            stage = warps * 16 * c["groups"] * of_row
            assert s.boxed == s.rings + s.stages * stage
            assert (s.shared + cluster_tiling.STATIC) * c[
                "resident"
            ] <= H200.shared_per_block + 1024
            assert c in (config, cluster_tiling.WIDEST)
            assert s.grid % c["cluster"] == 0 and s.threads == 32 * warps
            clusters, tiles = s.grid // c["cluster"], -(-n // cluster_tiling.rows_of(c))
            assert 0 < clusters <= tiles
            sums = c["along_k"] * cluster_tiling.rows_of(c) * (8 * s.blocks + 2) * 4
            assert s.shared - s.boxed >= sums * min(2, -(-tiles // clusters))


def test_what_a_cluster_does_not_hold_is_refused():
    assert cluster_choice.fits(H200, **product(64, 4096, 4096)) is None
    assert "an eighth" in cluster_choice.fits(H200, **product(64, 4096, 16384))
    assert cluster_choice.fits(H200, **product(8, 4096, 16384)) is None


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype", "name"),
    [
        (1, 4096, 4096, BF16, "cuda_gemv_split"),
        (4096, 1, 4096, torch.float32, "cuda_gemv_split"),
        (8, 4096, 4096, torch.float32, "cuda_gemv_split"),
        (2, 4096, 4096, BF16, "cuda_few_rows_stream"),
        (32, 768, 3072, BF16, "cuda_few_rows_stream"),
        (16, 2304, 768, BF16, "cuda_few_rows_cluster"),
    ],
)
def test_which_rung_takes_few_rows(m, n, k, dtype, name):
    args = product(m, n, k, dtype)
    assert choice.order(H200, **args)[0] == name
    x, weight = TensorSpec((m, k), (k, 1), dtype), TensorSpec((n, k), (k, 1), dtype)
    if m <= 8:
        given = {"bias": None, "gate": None, "residual": None, "activation": "silu", "keep": True}
        assert choice.order_linear(H200, x, weight, **given)[0] == name


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype"),
    [
        (9, 4096, 4096, torch.float32),
        (9, 8192, 2048, BF16),  # lines of the weight that are not long
        (33, 4096, 4096, BF16),
        (8, 4096, 8192, BF16),  # a weight of 67 MB
        (4, 28672, 4096, BF16),  # a weight of 235 MB
        (1, 4096, 100, BF16),
        (0, 8, 4096, BF16),
    ],
)
def test_others_are_left_to_the_cost_model(m, n, k, dtype):
    args = product(m, n, k, dtype)
    assert choice.order(H200, **args) == hopper_choice.order(H200, **args)


@pytest.mark.parametrize("bits", [4, 16])
@pytest.mark.parametrize(("n", "k"), [(8192, 8192), (28672, 4096), (130, 128), (6144, 4096)])
def test_the_chosen_config_is_one_of_the_rung_and_fits(n, k, bits):
    for m in (1, 4, 8, 16, 32):
        assert cluster_choice.choose_split(H200, m, n, k, bits) in cluster_choice.CONFIGS
        chosen = cluster_choice.choose_wgmma_split(H200, m, n, k, bits)
        assert chosen in cluster_choice.WGMMA_CONFIGS
        if not cluster_choice.wgmma_held(H200, m, n, k, bits):
            split = cluster_tiling.wgmma_split_of(H200, chosen, m, n, k, bits)
            threads = split.threads * split.config["resident"]
            assert threads * cluster_tiling.OF_WGMMA[split.blocks] <= cluster_tiling.REGISTERS
