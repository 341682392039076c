"""Lists of tensors: which properties distinguish two lists, and arrays of their addresses."""

import ctypes

import pytest
import torch

from kernelwright.contract import (
    H200,
    NULL,
    CudaKernel,
    Launch,
    Plan,
    Pointers,
    TensorSpec,
    TritonKernel,
    f32,
)
from kernelwright.support.errors import ToolchainError
from kernelwright.toolchain import (
    build,
    cpu_executor,
    driver,
    gpu_executor,
    nvrtc,
    pointer_arrays,
)
from support.fake_driver import fake_driver, fake_gpu, fake_library, words_of  # noqa: F401
from support.planning import cuda_plan, own_cache, scale_cu, scaling  # noqa: F401

POINTERS = Pointers(("xs", "ys"))
SCHEMA = "(Tensor[] xs, Tensor(a!)[] ys, float a) -> ()"


def several():
    """Pairs of lists that differ in one property."""
    x = torch.zeros(32)
    plain = [x[:6].view(2, 3), x[8:16]]
    yield plain, [x[:6].view(3, 2), x[8:16]]
    yield plain, [x[:6].view(3, 2).t(), x[8:16]]
    yield plain, [x[:6].view(2, 3), x[9:17]]
    yield plain, [x[:6].view(2, 3), x[8:16].to(torch.float16)]
    yield plain, [x[:6].view(2, 3), x[8:16].to(torch.int32)]
    yield plain, [x[:6].view(2, 3)]
    yield plain, [x[8:16], x[:6].view(2, 3)]
    yield plain, [x[:6].view(2, 3, 1), x[8:16]]
    yield [x[:1].view(())], [x[:1]]
    yield [], [x[:1]]


@pytest.mark.parametrize("describe", [pointer_arrays.describe, pointer_arrays.module().describe])
def test_lists_that_a_plan_must_tell_apart(describe):
    for one, other in several():
        assert describe(one) != describe(other)
        again = [t.clone(memory_format=torch.preserve_format) for t in one]
        assert describe(one) == describe(again) == describe(tuple(one))
        assert hash(describe(one)) == hash(describe(again))
    parameter = torch.nn.Parameter(torch.zeros(3))
    assert describe([parameter]) == describe([parameter.detach()])


def test_description_of_many_dimensions():
    describe = pointer_arrays.module().describe
    deep = [torch.zeros((1,) * 60 + (k,)) for k in (1, 2)] * 40
    assert len(describe(deep)) == 80 * (24 + 2 * 61 * 8)
    assert describe(deep) != describe(deep[::-1])


@pytest.mark.parametrize("name", ["describe", "addresses"])
def test_an_argument_that_is_not_a_tensor_is_an_error(name):
    function = getattr(pointer_arrays.module(), name)
    for wrong in ([torch.zeros(1), 3], 7, [torch.zeros(3).to_sparse()]):
        with pytest.raises((TypeError, RuntimeError, BufferError)):
            function(wrong if name == "describe" else (wrong,))


def test_addresses_stand_in_rows():
    xs, ys = ([torch.zeros(3)[k:] for k in range(3)] for _ in range(2))
    words = memoryview(pointer_arrays.module().addresses((xs, ys))).cast("Q").tolist()
    rows = zip(xs, ys, strict=True)
    assert words == [t.data_ptr() for row in rows for t in row]
    with pytest.raises(ValueError, match="several lengths"):
        pointer_arrays.module().addresses((xs, ys[1:]))
    with pytest.raises(TypeError, match="tuple of lists"):
        pointer_arrays.module().addresses(xs)


def list_plan(kernel):
    args = (POINTERS, "places", NULL, f32("a"))
    places = torch.arange(4, dtype=torch.int32)
    return Plan((Launch(kernel, (1, 1, 1), args),), constants={"places": places})


def list_specs(n=3, m=None):
    spec = TensorSpec.contiguous((8,), torch.float32)
    return {"xs": [spec] * n, "ys": [spec] * (n if m is None else m), "a": 2.0}


def list_operator():
    return scaling("axpy_list", outputs=lambda **k: (), schema=SCHEMA)


def test_a_plan_that_points_to_no_lists_is_refused(cuda_source):
    plan = list_plan(CudaKernel(cuda_source, "scale<float>"))
    tensors = build.Tensors(plan, list_operator(), list_specs())
    assert tensors[POINTERS] == TensorSpec.contiguous((3, 2), torch.int64)
    assert tensors["places"].dtype == torch.int32
    for wrong, specs, message in (
        (Pointers(("xs", "zs")), list_specs(), "'zs', which is not a list"),
        (Pointers(("a",)), list_specs(), "'a', which is not a list"),
        (POINTERS, list_specs(0), "'xs', which is not a list"),
        (POINTERS, list_specs(3, 2), "different lengths"),
    ):
        with pytest.raises(ToolchainError, match=message):
            build.Tensors(plan, list_operator(), specs)[wrong]


@pytest.fixture
def arrays(gpu, monkeypatch):
    """The arrays of addresses that are allocated."""
    made, empty = [], torch.empty

    def on_cpu(*size, device=None, **options):
        made.append(empty(*size, **options))
        return made[-1]

    monkeypatch.setattr(torch, "empty", on_cpu)
    monkeypatch.setattr(torch.Tensor, "to", lambda t, device: t)
    monkeypatch.setattr(pointer_arrays, "gpu_of", lambda device: H200)
    writer = pointer_arrays._writer
    writer.cache_clear()
    yield made
    writer.cache_clear()


def launches(lib):
    return ctypes.c_int.in_dll(lib, "launches").value


def test_runner_writes_addresses_when_they_change(arrays, gpu, fake, cuda_source):
    plan = list_plan(CudaKernel(cuda_source, "scale<float>"))
    run = gpu_executor.executor(plan, list_operator(), list_specs(), (), torch.device("cuda", 0))
    xs, ys, others = ([torch.zeros(8) for _ in range(3)] for _ in range(3))
    counts = []
    for call in ((xs, ys), (xs, ys), (xs, others), (list(xs), others)):
        before = launches(fake)
        run(*call, 2.0)
        counts.append(launches(fake) - before)
        array, places, nothing = words_of(fake)[:3]
        assert array == arrays[0].data_ptr()
        assert places == plan.constants["places"].data_ptr()
        assert nothing == 0
    assert counts == [2, 1, 2, 1]
    assert [a.numel() for a in arrays] == [8 * 6]


def test_each_stream_and_each_captured_call_has_its_addresses(arrays, gpu, fake, cuda_source):
    plan = list_plan(CudaKernel(cuda_source, "scale<float>"))
    run = gpu_executor.executor(plan, list_operator(), list_specs(), (), torch.device("cuda", 0))
    xs, ys = ([torch.zeros(8) for _ in range(3)] for _ in range(2))
    capture = ctypes.c_uint64.in_dll(fake, "capture")
    seen = []
    for stream, captured in ((5, 0), (6, 0), (5, 9), (5, 9), (5, 0), (6, 0)):
        gpu["stream"], capture.value = stream, captured
        before = launches(fake)
        run(xs, ys, 2.0)
        seen.append((words_of(fake)[0], launches(fake) - before))
    capture.value = 0
    places, counts = zip(*seen, strict=True)
    assert len(set(places[:4])) == 4
    assert places[4:] == places[:2]
    assert counts == (2, 2, 2, 2, 1, 1)


def test_long_lists_are_written_in_parts(arrays, gpu, fake, cuda_source, monkeypatch):
    """The words in the launches' arguments, joined, are the addresses."""
    written = {}

    class Spy:
        def __call__(self, stream, array, words, first, count):
            assert len(words) == 8 * pointer_arrays.WORDS
            written[first] = words[: 8 * count]

    monkeypatch.setattr(pointer_arrays, "_writer", lambda index: Spy())
    xs = [torch.zeros(1) for _ in range(2 * pointer_arrays.WORDS + 5)]
    pointer_arrays.Addresses(len(xs), torch.device("cuda", 0))(0, (xs,))
    assert b"".join(written[k] for k in sorted(written)) == pointer_arrays.module().addresses((xs,))
    assert len(written) == 3


def test_the_launcher_takes_structs_of_their_size(fake):
    kinds = (("p", None), ("b", 16), ("l", None), ("i", None))
    launch = driver.launchers().Launcher("scale", 1, 0xC0, (1, 1, 1), (1, 1, 1), 0, 1, False, kinds)
    launch(0, 7, (1234).to_bytes(8, "little") + bytes(8), 8, 9)
    assert words_of(fake) == [7, 1234, 8, 9]
    for wrong in (bytes(15), bytearray(16), 16):
        with pytest.raises(TypeError, match="bytes of size 16"):
            launch(0, 7, wrong, 8, 9)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_the_writer_compiles(arch):
    made = nvrtc.compile(CudaKernel(pointer_arrays.SOURCE, "write_addresses"), arch)
    assert "write_addresses" in made.ptx


def test_pointers_and_constants_reach_the_interpreter(monkeypatch):
    """On a CPU they are passed as tensors."""
    seen = []
    monkeypatch.setattr(
        cpu_executor, "_launcher", lambda kernel: lambda kernel, step, values: seen.append(values)
    )
    plan = list_plan(TritonKernel(print))
    run = cpu_executor.executor(plan, list_operator(), list_specs(), ())
    xs, ys = ([torch.zeros(8) for _ in range(3)] for _ in range(2))
    run(xs, ys, 2.0)
    pointers, places = seen[0][:2]
    assert pointers.tolist() == [[x.data_ptr(), y.data_ptr()] for x, y in zip(xs, ys, strict=True)]
    assert places.data_ptr() == plan.constants["places"].data_ptr()
