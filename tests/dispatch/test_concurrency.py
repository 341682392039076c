"""Threads, streams, CUDA graphs, sizes beyond 31 bits, running out of memory."""

import threading

import pytest
import torch

import kernelwright as kw
from support.publics import agree, gpu, publics, randn


def test_threads_do_not_disturb_each_other():
    xs = [randn(16, 64 + i) for i in range(8)]
    found, errors = {}, []

    def work(i):
        try:
            for rung in ("native", "triton_row") * 3:
                with torch.no_grad():
                    out = torch.ops.kernelwright.softmax(xs[i], -1, rung=rung)
                found.setdefault(i, []).append(out)
        except Exception as e:  # noqa: BLE001 - shown below
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    for i, outs in found.items():
        for out in outs:
            agree(out, torch.softmax(xs[i], -1), torch.float32)


@gpu
@publics
def test_captured_forward_and_backward_replay_on_new_data(public):
    tensors = public.tensors(grad=True)
    rest = public.rest
    grad = torch.ones_like(public.kw(*tensors))

    def step():
        y = public.ours(*tensors, *rest)
        return y, *torch.autograd.grad(y, tensors, grad)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for seed in (5, 6):
        with torch.no_grad():
            for k, t in enumerate(tensors):
                t.copy_(randn(*t.shape, seed=seed + k))
        torch.manual_seed(3)  # as in `public.pytorch`: a graph's replay uses the generator
        graph.replay()
        torch.cuda.synchronize()
        agree(captured[0], public.pytorch(*tensors), torch.float32)


@gpu
def test_nothing_is_compiled_during_capture():
    from kernelwright.support.errors import CompiledDuringCapture

    x = randn(3, 1237)
    with kw.use(softmax="triton_row"):
        with (
            pytest.raises(CompiledDuringCapture, match=r"kw\.warmup"),
            torch.cuda.graph(torch.cuda.CUDAGraph()),
        ):
            kw.softmax(x, -1)
        kw.warmup("softmax", x, -1)
        with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
            y = kw.softmax(x, -1)
        graph.replay()
    agree(y, torch.softmax(x, -1), x.dtype)


@gpu
def test_a_call_runs_on_the_current_stream():
    x = randn(4096, 4096)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        x.mul_(2)
        y = kw.softmax(x, -1)
        stream.synchronize()
    agree(y, torch.softmax(x, -1), x.dtype)


@gpu
def test_rows_beyond_two_to_the_31_elements():
    free, _ = torch.cuda.mem_get_info()
    if free < 20 * 2**30:
        pytest.skip("needs 20 GiB of free GPU memory")
    x = torch.zeros(2**17 + 1, 16384, device="cuda", dtype=torch.bfloat16)
    x[-1].normal_()
    y = kw.softmax(x, -1)
    agree(y[-1], torch.softmax(x[-1], -1), x.dtype)
    assert (y[0] == 1 / 16384).all()


@pytest.fixture
def small_gpu():
    """This process may allocate only 1 GiB more, independent of other processes' memory."""
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**30) / total)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


@gpu
def test_out_of_memory_leaves_nothing_behind(small_gpu):
    x = torch.zeros(2**28, device="cuda", dtype=torch.bfloat16)
    hog = []
    with pytest.raises(torch.OutOfMemoryError):
        while True:
            hog.append(torch.empty(2**26, device="cuda", dtype=torch.uint8))
    with pytest.raises(torch.OutOfMemoryError):
        kw.gelu(x)
    hog.clear()
    assert not kw.gelu(x[:1024]).any()
    assert kw.gelu(x[: 2**27]).shape == (2**27,)
