"""Tensor maps: the hardware's rules, and how a plan's map reaches a launch."""

import ctypes
from dataclasses import replace

import pytest
import torch

from kernelwright import toolchain
from kernelwright.contract import CudaKernel, Launch, Plan, TensorMap, TensorSpec, f32, i64
from kernelwright.contract.symbolic_int import Trace
from kernelwright.support.errors import ToolchainError
from kernelwright.toolchain import cpu_executor, gpu_executor, nvrtc, tensor_maps
from support.fake_driver import fake_driver, fake_gpu, fake_library, value, words_of  # noqa: F401
from support.planning import CPU, own_cache, scaling  # noqa: F401

GOOD = TensorMap("x", torch.bfloat16, (100, 30, 4), (208, 6400), (64, 8, 1))


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"dtype": torch.complex64}, "none that the copy engine knows"),
        ({"shape": (), "strides": (), "box": ()}, "1 to 5"),
        ({"shape": (8,) * 6, "strides": (16,) * 5, "box": (8,) * 6}, "1 to 5"),
        ({"strides": (208,)}, "need 2 strides and a box of 3, given 1 and 3"),
        ({"box": (64, 8)}, "need 2 strides and a box of 3, given 2 and 2"),
        ({"shape": (0, 30, 4)}, "dimension of 0"),
        ({"shape": (100, 2**32 + 1, 4)}, "dimension of 4294967297"),
        ({"strides": (200, 6400)}, "stride 200 must be a positive multiple of 16"),
        ({"strides": (0, 6400)}, "stride 0 must be"),
        ({"strides": (208, 2**40)}, "below 2"),
        ({"box": (64, 257, 1)}, "dimension of 257"),
        ({"box": (64, 0, 1)}, "dimension of 0"),
        ({"box": (4, 8, 1)}, "begins with 8 bytes"),
        ({"swizzle": 16}, "swizzle 16 must be"),
        ({"box": (72, 8, 1)}, "begins with 144 bytes, more than a swizzle of 128"),
        ({"box": (32, 8, 1), "swizzle": 32}, "begins with 64 bytes, more than a swizzle of 32"),
    ],
    ids=str,
)
def test_a_map_that_tma_does_not_support_is_refused(changed, rule):
    with pytest.raises(ValueError, match=f"^tensor map of x: .*{rule}"):
        replace(GOOD, **changed)


def test_the_largest_maps_are_taken():
    replace(GOOD, shape=(2**32, 1, 1), strides=(2**40 - 16,) * 2, box=(256, 256, 1), swizzle=0)
    replace(GOOD, box=(64, 256, 256), swizzle=128)
    TensorMap("x", torch.uint8, (1,), (), (16,), swizzle=0)


SOURCE = """
struct alignas(64) Map { unsigned char bytes[128]; };
struct Half { unsigned char bytes[64]; };
__global__ void take(const __grid_constant__ Map map, float *y, long long n, float a) {
  if (threadIdx.x < n) y[threadIdx.x] = map.bytes[threadIdx.x] * a;
}
__global__ void small(const __grid_constant__ Half map, float *y, long long n, float a) {
  if (threadIdx.x < n) y[threadIdx.x] = map.bytes[threadIdx.x] * a;
}
"""
#: Of x, 8 float32: two rows of four.
MAP = TensorMap("x", torch.float32, (4, 2), (16,), (4, 2), swizzle=32)


@pytest.fixture(name="source")
def take_cu(tmp_path):
    path = tmp_path / "take.cu"
    path.write_text(SOURCE)
    return path


def plan(source, map=MAP, name="take"):
    kernel = CudaKernel(source, name, emulated=False)
    return Plan((Launch(kernel, (1, 1, 1), (map, "y", i64(8), f32("a")), (32, 1, 1)),))


def bound(made, align=16):
    specs = {"x": TensorSpec((8,), (1,), torch.float32, align), "a": 2.0}
    return gpu_executor.executor(made, scaling(), specs, (), torch.device("cuda", 0))


def test_a_launch_passes_a_map_of_its_tensors_address(gpu, fake, source):
    run = bound(plan(source))
    x, other = torch.zeros(8), torch.zeros(8)
    before = value(fake, "maps_encoded")
    for t in (x, other, x, other):
        y = run(t, 0.5)
        assert words_of(fake) == [t.data_ptr(), y.data_ptr(), 8, 0x3F000000]
    assert value(fake, "maps_encoded") == before + 2  # once for each address


def test_a_map_is_encoded_as_planned(gpu, fake, source):
    bound(plan(source))(torch.zeros(8), 1.0)
    said = list((ctypes.c_uint64 * 32).in_dll(fake, "map_words")[:13])
    dtype, rank, interleave, swizzle, fill = 7, 2, 0, 1, 0
    assert said[:5] == [dtype, rank, interleave, swizzle, fill]
    assert said[5:] == [4, 0, 4, 1, 2, 16, 2, 1]  # extent, stride, box and step of each dimension


def test_a_map_of_an_open_size_is_encoded_for_each_size(gpu, fake, source):
    trace = Trace({"n0": 10})
    n = trace.size("n0")
    made = plan(source, replace(MAP, shape=(4, n), box=(4, min(n, 2))))
    specs = {"x": TensorSpec.contiguous((4 * n,), torch.float32), "a": 2.0}
    bind = gpu_executor.opened(made, scaling(), specs, (), torch.device("cuda", 0), trace)
    before, x = value(fake, "maps_encoded"), torch.zeros(40)
    for rows in (10, 3, 10):
        run = bind(rows)
        run(x, 1.0), run(x, 1.0)
        if rows == 3:
            said = list((ctypes.c_uint64 * 32).in_dll(fake, "map_words")[5:13])
            assert said == [4, 0, 4, 1, 3, 16, 2, 1]
    assert value(fake, "maps_encoded") == before + 2
    assert trace.guard()(1)  # whose box would be smaller


def test_encodings_that_are_kept_are_bounded(gpu, fake, source, monkeypatch):
    monkeypatch.setattr(tensor_maps, "MOST", 4)
    encoded = tensor_maps.Encoded(
        "x", tensor_maps.packer(MAP)((MAP.shape, MAP.strides, MAP.box)), 0
    )
    for address in range(0, 160, 16):
        assert encoded[address][:8] == address.to_bytes(8, "little") and len(encoded) <= 4


def test_an_error_of_the_driver_is_reported(gpu, fake, source):
    run = bound(plan(source))
    fake.fail_next(1)
    with pytest.raises(ToolchainError, match=r"encoding a tensor map of x at 0x.*INVALID"):
        run(torch.zeros(8), 1.0)


@pytest.mark.parametrize(
    ("map", "align", "error"),
    [
        (replace(MAP, dtype=torch.int32), 16, "32 bytes of torch.int32, but x has 32 of torch.fl"),
        (replace(MAP, shape=(4, 3)), 16, "48 bytes of torch.float32, but x has 32"),
        (MAP, 8, "tensor map of x, which is not aligned to 16 bytes"),
        (replace(MAP, tensor="z"), 16, "'z', which is not a tensor"),
    ],
)
def test_a_map_that_is_not_of_its_tensor_is_refused(gpu, source, map, align, error):
    with pytest.raises(ToolchainError, match=error):
        bound(plan(source, map), align)


def test_a_kernel_that_takes_something_else_is_refused(gpu, source):
    with pytest.raises(
        ToolchainError, match=r"takes structs of \[64\] bytes, but its plan passes \[128\]"
    ):
        bound(plan(source, name="small"))


def test_without_a_gpu_the_kernel_is_compiled_and_not_run(source):
    made = plan(source)
    assert cpu_executor.unable(made) == cpu_executor.NOT_EMULATED
    specs = {"x": TensorSpec.contiguous((8,), torch.float32), "a": 2.0}
    with pytest.raises(ToolchainError, match="take: its instructions are not emulated"):
        toolchain.executor(made, scaling(), specs, (), CPU)
    assert nvrtc.compile(made.launches[0].kernel, "sm_90a").cubin
