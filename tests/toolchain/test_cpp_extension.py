"""Calls in C++ (toolchain/cpp_extension) compared with the same calls in Python: the driver gets
the same calls, and results and gradients have the same attributes."""

import ctypes
import random
import sys
import threading
from contextlib import contextmanager
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo import compiled_autograd
from torch.utils.checkpoint import checkpoint

import kernelwright as kw
from kernelwright import toolchain
from kernelwright.dispatch import binding, native_calls, selection
from kernelwright.toolchain import c_extensions, cpp_extension, driver, modes
from support.cpp_calls import in_cpp, labelled, recording, told
from support.hosted import hosted
from support.publics import randn

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        modes.has_gpu() or c_extensions.compiler() is None or cpp_extension.compiler() is None,
        reason="a stand-in for a GPU, built with a C compiler",
    ),
]


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    with hosted(tmp_path_factory.mktemp("driver")), in_cpp() as outside:
        yield outside


@pytest.fixture(scope="module")
def taken(outside):
    with recording() as taken:
        yield taken


def with_dim(function):
    def made(rng, x):
        return partial(function, dim=rng.choice((-1, -1, -1, 0, x.ndim // 2))), ()

    return made


def with_like(function):
    return lambda rng, x: (function, (torch.randn_like(x),))


def normalised(rng, x):
    eps = rng.choice((1e-5, 1e-3))
    parameters = tuple(x.new_ones(x.shape[-1]) for _ in range(rng.choice((0, 1, 2))))
    return lambda x, *wb: kw.layer_norm(x, x.shape[-1:], *wb, eps=eps), parameters


def classified(rng, x):
    columns = x.shape[-1]
    targets = x.new_zeros(x.numel() // columns, dtype=torch.int64)
    return lambda x: kw.cross_entropy(x.reshape(-1, columns), targets), ()


#: By name: a function of a random generator and x that returns a call and its other tensors.
CALLS = {
    "softmax": with_dim(kw.softmax),
    "squared_relu": lambda rng, x: (kw.squared_relu, ()),
    "gelu": lambda rng, x: (partial(kw.gelu, approximate=rng.choice(("none", "tanh"))), ()),
    "silu": lambda rng, x: (kw.silu, ()),
    "tanh": lambda rng, x: (kw.tanh, ()),
    "add": with_like(kw.add),
    "mul": with_like(kw.mul),
    "swiglu": with_like(kw.swiglu),
    "bias_gelu": lambda rng, x: (kw.bias_gelu, (x.new_ones(x.shape[-1]),)),
    "layer_norm": normalised,
    "rms_norm": lambda rng, x: (
        lambda x, *w: kw.rms_norm(x, x.shape[-1:], *w),
        tuple(x.new_ones(x.shape[-1]) for _ in range(rng.choice((0, 1)))),
    ),
    "add_rms_norm": lambda rng, x: (
        lambda x, h, w: kw.add_rms_norm(x, h, x.shape[-1:], w),
        (torch.randn_like(x), x.new_ones(x.shape[-1])),
    ),
    "sum": with_dim(kw.sum),
    "cross_entropy": classified,
}


def random_tensor(rng):
    shape = [rng.choice((1, 2, 3, 5, 8, 17)) for _ in range(rng.choice((1, 2, 2, 3)) - 1)]
    last = rng.choice((1, 7, 32, 64, 96, 130, 256, 1000))
    dtype = rng.choice((torch.float32, torch.bfloat16, torch.float16))
    x = torch.randn(*shape, 2 * last).to(dtype)
    return x[..., rng.choice((0, 1)) :][..., :last] if rng.random() < 0.3 else x[..., :last].clone()


def gradient_of(rng, y):
    g = torch.randn_like(y)
    if y.ndim == 0:
        return g
    return {0: g, 1: y.new_ones(()).expand_as(y), 2: torch.cat((g, g), -1)[..., : y.shape[-1]]}[
        rng.randrange(3)
    ]


def observed(call, tensors, gradient, taken):
    """(launches, attributes of results and gradients) of a call and of its backward."""
    taken()
    results = call(*tensors)
    results = results if isinstance(results, tuple) else (results,)
    everything = {f"argument {i}": t for i, t in enumerate(tensors)}
    everything |= {f"result {i}": t for i, t in enumerate(results)}
    found = [labelled(taken(), everything), [told(y) for y in results]]
    wanted = [t for t in tensors if t.requires_grad]
    if not wanted:
        return found
    incoming = [gradient(y.detach()) for y in results]
    grads = torch.autograd.grad(results, wanted, incoming, allow_unused=True)
    everything |= {f"incoming {i}": t for i, t in enumerate(incoming)}
    everything |= {f"gradient {i}": t for i, t in enumerate(grads)}
    return [*found, labelled(taken(), everything), [told(t) for t in grads]]


@pytest.mark.parametrize("name", CALLS)
def test_random_calls_ask_for_the_same(name, outside, taken):
    rng, launched = random.Random(name), 0
    for turn in range(24):
        x = random_tensor(rng)
        call, others = CALLS[name](rng, x)
        wanted = rng.random() < 0.7
        tensors = [t.detach().requires_grad_(wanted and rng.random() < 0.7) for t in (x, *others)]
        seed = rng.random()

        def gradient(y, seed=seed):
            torch.manual_seed(0)
            return gradient_of(random.Random(seed), y)

        with outside():
            observed(call, tensors, gradient, taken)  # fills caches, such as the zeroed workspace
            expected = observed(call, tensors, gradient, taken)
        for _ in range(2):  # bound first, and then found
            assert observed(call, tensors, gradient, taken) == expected, (turn, x.shape)
        launched += len(expected[0])
    assert launched >= 8


def attention(rng):
    heads, length, width = rng.choice((2, 4)), rng.choice((128, 192, 256)), rng.choice((64, 128))
    shapes = [(2, n, length, width) for n in (heads, rng.choice((heads, 2)), 0)]
    shapes[2] = shapes[1]
    how = {"is_causal": rng.random() < 0.5, "enable_gqa": True}
    return partial(kw.scaled_dot_product_attention, **how), shapes


def product(rng):
    rows, k, columns = (rng.choice((8, 64, 200, 512)) for _ in range(3))
    return (lambda x, w: kw.matmul(x, w.t())), [(rows, k), (columns, k)]


def biased(rng):
    rows, k, columns = (rng.choice((8, 64, 200, 512)) for _ in range(3))
    call = partial(kw.linear, activation=rng.choice((None, "gelu", "relu")))
    return call, [(rows, k), (columns, k), (columns,)]


HOPPER = {
    "matmul": "cuda_wgmma_multicast",
    "linear": "cuda_wgmma_multicast",
    "scaled_dot_product_attention": "cuda_wgmma_persistent",
    "scaled_dot_product_attention.backward": "cuda_wgmma",
}


@contextmanager
def dispatched(rungs):
    """Operators are dispatched to these rungs. With `kw.use`, calls would enter C++ later."""

    def chosen(ladder, specs, device, rung):
        return selection.select(ladder, specs, device, rung or rungs.get(ladder.name))

    caches = [binding._caches[name] for name in rungs]
    with pytest.MonkeyPatch.context() as patch:
        for module in ("launcher", "dynamic_shapes"):
            patch.setattr(sys.modules[f"kernelwright.dispatch.{module}"], "select", chosen)
        for cache in caches:
            cache.forget()
        yield
    for cache in caches:
        cache.forget()


@pytest.fixture
def hopper(outside):
    """Products and attention are dispatched to rungs with tensor maps."""
    with dispatched(HOPPER):
        yield


@pytest.fixture
def pytorch(outside):
    """All of these are dispatched to PyTorch's kernels, which a CPU runs."""
    with dispatched(dict.fromkeys((*HOPPER, "sum", "softmax", "softmax.backward"), "native")):
        yield


PYTORCHS = {
    "matmul": (torch.matmul, kw.matmul, (5, 6), (6, 7)),
    "linear": (F.linear, kw.linear, (5, 6), (7, 6)),
    "linear with bias": (F.linear, kw.linear, (5, 6), (7, 6), (7,)),
    "softmax": (lambda x: x.softmax(-1), lambda x: kw.softmax(x, -1), (5, 6)),
    "attention": (lambda *qkv: torch.ops.aten._scaled_dot_product_attention_math(*qkv)[0],
                  kw.scaled_dot_product_attention,
                  *[(1, 2, 5, 8)] * 3),
}  # fmt: skip


def saved_by(call, leaves):
    """What a call saves for its backward, in order: the arguments' positions; None for others."""
    places = {t.data_ptr(): i for i, t in enumerate(leaves)}
    saved = []

    def pack(t):
        saved.append(places.get(t.data_ptr()))
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        call(*leaves)
    return saved


@pytest.mark.parametrize("name", PYTORCHS)
def test_gradients_of_pytorchs_kernels_are_right(name, pytorch, outside):
    """Layouts, and which tensors require gradients, are random; so is a second derivative."""
    theirs, ours, *shapes = PYTORCHS[name]
    rng = random.Random(name)
    for _ in range(12):
        tensors = [torch.randn(s, dtype=torch.float64) for s in shapes]
        by_columns = [t.ndim == 2 and rng.random() < 0.5 for t in tensors]
        tensors = [t.t().contiguous().t() if c else t
                   for t, c in zip(tensors, by_columns, strict=True)]  # fmt: skip
        some = {rng.randrange(len(tensors)), rng.randrange(len(tensors))}
        leaves = [t.requires_grad_(i in some) for i, t in enumerate(tensors)]
        wanted = [t for t in leaves if t.requires_grad]
        y, expected = ours(*leaves), theirs(*leaves)
        with outside():
            assert type(ours(*leaves).grad_fn) is not type(y.grad_fn), "differentiated in Python"
        gy = torch.randn_like(y).t().contiguous().t() if y.ndim == 2 else torch.randn_like(y)
        gy.requires_grad_()
        given = torch.autograd.grad(y, wanted, gy, create_graph=True)
        right = torch.autograd.grad(expected, wanted, gy, create_graph=True)
        torch.testing.assert_close(given, right)
        kept = saved_by(ours, leaves)
        with outside():
            python = torch.autograd.grad(ours(*leaves), wanted, gy)
            assert saved_by(ours, leaves) == kept, "a checkpoint would mix them up"
        assert [g.stride() for g in given] == [g.stride() for g in python]
        seconds = (torch.autograd.grad(sum(g.square().sum() for g in gs), gy)
                   for gs in (given, right))  # fmt: skip
        torch.testing.assert_close(*seconds)


@pytest.mark.parametrize("name", PYTORCHS)
def test_a_checkpoint_of_python_is_recomputed_in_cpp(name, pytorch, outside):
    """C++ is loaded while a program runs. The operands are square, so that no size tells saved
    tensors apart."""
    theirs, ours, *shapes = PYTORCHS[name]
    square = [s[:-2] + (6,) * min(2, len(s)) for s in shapes]
    leaves = [torch.randn(s, dtype=torch.float64).requires_grad_() for s in square]
    with outside():
        y = checkpoint(ours, *leaves, use_reentrant=False)
    gy = torch.randn_like(y)
    given = torch.autograd.grad(y, leaves, gy)
    torch.testing.assert_close(given, torch.autograd.grad(theirs(*leaves), leaves, gy))


@pytest.mark.parametrize("name", ["matmul", "linear"])
def test_pytorchs_products_are_called_in_cpp(name, pytorch, outside):
    """Under autocast too, which must not cast their operands again."""
    ours, cache = getattr(kw, name), binding._caches[name]
    a, b = torch.randn(2, 6, 6).to(torch.bfloat16)
    extra = (torch.randn(6).to(torch.bfloat16),) if name == "linear" else ()
    with outside():
        expected = ours(a, b, *extra)
    before = cache.in_cpp.plans()
    assert torch.equal(ours(a, b, *extra), expected)
    assert cache.in_cpp.plans() == before + 1
    ours(a.float(), b.float(), *(t.float() for t in extra))  # PyTorch's setting decides on tf32
    assert cache.in_cpp.plans() == before + 1


def test_checks_apply_to_calls_like_earlier_ones(outside):
    """They are left out only for arguments that have passed them."""
    q, kv = torch.randn(2, 4, 8, 16), torch.randn(2, 2, 8, 16)
    a, b, bias = torch.randn(4, 5), torch.randn(6, 5), torch.randn(6)
    attend = kw.scaled_dot_product_attention
    for _ in range(2):  # the second time in C++ from the start
        attend(q, kv, kv, enable_gqa=True)
        assert kw.linear(a, b, bias).shape == kw.linear(a[None], b, bias)[0].shape == (4, 6)
        assert kw.linear(a[None, None], b).shape == (1, 1, 4, 6)
        kw.matmul(a, b.t())
    for wrong, name in (
        (lambda: attend(q, kv, kv), "key: has 2 heads"),
        (lambda: attend(q, kv, kv, None, 2.0, enable_gqa=True), "dropout_p: "),
        (lambda: attend(q, kv, kv, scale="1", enable_gqa=True), "scale: "),
        (lambda: attend([q], kv, kv, enable_gqa=True), "query: "),
        (lambda: kw.matmul([a], b), "input: "),
        (lambda: kw.matmul(a, None), "other: "),
        (lambda: kw.linear(a, b, [bias]), "bias: "),
        (lambda: kw.linear(a, b.half()), "weight: "),
        (lambda: kw.linear(a, b, bias[:5]), "bias: "),
    ):
        with pytest.raises((TypeError, ValueError), match=name):
            wrong()
    with torch.autocast("cpu", torch.bfloat16):
        assert kw.linear(a, b, bias).dtype == kw.matmul(a, b.t()).dtype == torch.bfloat16
        assert attend(q, kv, kv, enable_gqa=True).dtype == torch.bfloat16
    assert torch.func.vmap(kw.matmul, (None, 0))(a, b.t().expand(3, 5, 6)).shape == (3, 4, 6)
    negative = attend(q, kv, kv, scale=-1.0, enable_gqa=True)
    with outside():
        expected = attend(q, kv, kv, scale=-1.0, enable_gqa=True)
    assert negative.shape == expected.shape


def test_calls_of_aten():
    """Strides are as asked for; what PyTorch's build lacks stays in Python."""
    make, (a, b) = cpp_extension.loaded.aten_call, torch.randn(2, 3, 4, 4)
    assert make("no such function", None, ()) is None
    assert torch.equal(make("matmul", None, ())(a, b, False), a @ b)
    c = make("matmul", None, ((1, 12, 3),))(a, b, False)
    assert c.stride() == (1, 12, 3) and torch.equal(c, a @ b)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        make("matmul", None, ())(a[0], b[0, :3], False)


def test_a_result_that_shares_memory_with_an_argument_is_pythons(outside, monkeypatch):
    """C++ would make the argument itself a result of the node."""
    cache, x = binding._caches["softmax"], torch.randn(3, 4, requires_grad=True)
    cache.forget()
    monkeypatch.setitem(vars(sys.modules["kernelwright.dispatch.dynamic_shapes"]), "launcher",
                        lambda *_: lambda x, *_: x)  # fmt: skip
    monkeypatch.setattr(toolchain, "opens", lambda args: False)
    y = kw.softmax(x, -1)
    assert x.is_leaf and x.grad_fn is None and y is not x and y.grad_fn.name() == "softmaxBackward"
    with outside():
        assert type(kw.softmax(x, -1).grad_fn) is type(y.grad_fn)
    cache.forget()


@pytest.mark.parametrize("make", [attention, product, biased])
def test_tensor_maps_are_encoded_as_in_python(make, hopper, outside, taken):
    rng = random.Random(make.__name__)
    encoded = ctypes.c_int.in_dll(driver.library(), "maps_encoded")
    for _ in range(8):
        call, shapes = make(rng)
        tensors = [torch.randn(s, dtype=torch.bfloat16).requires_grad_() for s in shapes]
        with outside():
            observed(call, tensors, torch.ones_like, taken)
            expected = observed(call, tensors, torch.ones_like, taken)
        for _ in range(2):  # bound first, and then found
            encoded.value = 0
            assert observed(call, tensors, torch.ones_like, taken) == expected, shapes
        assert encoded.value  # Python keeps the maps of the addresses that it knows


def test_the_drivers_error_for_a_map_names_the_tensor(hopper):
    a, b = (torch.randn(64, 64, dtype=torch.bfloat16) for _ in range(2))
    kw.matmul(a, b)
    driver.library().fail_next(1)
    with pytest.raises(RuntimeError, match=r"encoding a tensor map of a at 0x[0-9a-f]+: CUDA_"):
        kw.matmul(a, b)
    kw.matmul(a, b)


def nodes_of(x):
    return kw.softmax(x, -1).grad_fn


def test_the_node_is_in_cpp(outside):
    x = randn(4, 64).requires_grad_()
    with outside():
        python = type(nodes_of(x))
    assert type(nodes_of(x)) is not python and nodes_of(x).name() == "softmaxBackward"


def test_a_gradient_that_does_not_exist_is_refused_as_in_python(outside):
    x, mean = torch.randn(4, 16, 8, requires_grad=True), torch.zeros(16)
    call = partial(native_calls.entries["batch_norm_inference"], x, None, None)
    assert call(mean, mean + 1, 1e-5, False).grad_fn.name() == "batch_norm_inferenceBackward"
    y = call(mean.requires_grad_(), torch.ones(16), 1e-5, False)
    with pytest.raises(NotImplementedError, match=r"^mean: batch_norm_inference has no gradient"):
        y.sum().backward()


def test_a_gradient_of_an_absent_result_is_none(outside):
    leaves = [torch.randn(1, 1, 64, 16, requires_grad=True) for _ in range(3)]
    y, final = native_calls.entries["linear_attention"](*leaves, None, None, False, 1.0)
    assert final.shape == (0,) and y.grad_fn.name() == "linear_attentionBackward"
    gradients = torch.autograd.grad((y, final), leaves, (torch.ones_like(y), final.detach()))
    assert [g.shape for g in gradients] == [t.shape for t in leaves]


def test_an_inplace_change_of_what_is_saved_is_refused(outside):
    for change in (lambda x, y: y.mul_(2), lambda x, y: y.detach().zero_()):
        x = randn(4, 64).requires_grad_()
        y = kw.softmax(x, -1)
        change(x, y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_a_second_backward_needs_the_graph(outside):
    x = randn(4, 64).requires_grad_()
    y = kw.softmax(x, -1)
    y.backward(torch.ones_like(y), retain_graph=True)
    y.backward(torch.ones_like(y))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward(torch.ones_like(y))


def test_hooks_of_saved_tensors_see_them(outside):
    def seen(call):
        packed, unpacked = [], []

        def pack(t):
            packed.append(told(t))
            return t

        def unpack(t):
            unpacked.append(told(t))
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            call().sum().backward()
        return packed, unpacked

    x, w, b = (randn(*s).requires_grad_() for s in ((4, 64), (64,), (64,)))
    for call in (lambda: kw.softmax(x, -1), lambda: kw.layer_norm(x, (64,), w, b)):
        with outside():
            expected = seen(call)
        assert seen(call) == expected and expected[0]


def test_double_backward_goes_through_the_formula(outside):
    def second(call, x):
        y = call(x)
        (g,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
        (gg,) = torch.autograd.grad(g.sum(), x)
        return g.grad_fn.name(), told(gg)

    for call in (lambda x: kw.softmax(x, -1), kw.gelu, lambda x: kw.layer_norm(x, (64,))):
        x = randn(4, 64).requires_grad_()
        with outside():
            expected = second(call, x)
        assert second(call, x) == expected


@pytest.mark.parametrize("seen", ["mode", "subclass", "vmap", "grad", "forward", "compile"])
def test_what_intercepts_calls_sees_them(seen, outside):
    """As without the extension: none of these calls runs in C++."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    class Subclass(torch.Tensor):
        pass

    def called():
        x = randn(4, 64)
        if seen == "mode":
            with Mode():
                return kw.softmax(x, -1)
        if seen == "subclass":
            return kw.softmax(x.as_subclass(Subclass), -1)
        if seen == "vmap":
            return torch.func.vmap(lambda t: kw.softmax(t, -1))(x)
        if seen == "grad":
            return torch.func.grad(lambda t: kw.softmax(t, -1).sum())(x)
        if seen == "forward":
            return torch.func.jvp(lambda t: kw.softmax(t, -1), (x,), (x,))[1]
        torch.compiler.reset()
        return torch.compile(lambda t: kw.softmax(t, -1), fullgraph=True, backend="eager")(x)

    names = []
    with outside():
        expected = told(called()), list(names)
    names.clear()
    assert (told(called()), names) == expected


def test_compiled_autograd_traces_a_backward(outside):
    def compiled(call):
        x, seen = randn(8, 64).requires_grad_(), []
        y = call(x)
        torch.compiler.reset()

        def backend(graph, _):
            seen.extend(str(n.target) for n in graph.graph.nodes if "kernelwright" in str(n.target))
            return graph

        with compiled_autograd._enable(torch.compile(backend=backend)):
            y.backward(torch.ones_like(y))
        return told(x.grad), seen

    for call in (lambda x: kw.softmax(x, -1), lambda x: kw.layer_norm(x, (64,), eps=1e-3)):
        with outside():
            expected, _ = compiled(call)
        found, operators = compiled(call)
        assert found == expected and len(operators) == 1


def test_an_override_is_taken_and_errors_are_the_same(outside, taken):
    x = randn(4, 64, dtype=torch.bfloat16).requires_grad_()

    def chosen():
        taken()
        with kw.use(softmax="triton_row"):
            y = kw.softmax(x, -1)
        y.backward(torch.ones_like(y))
        return [(number, head) for number, head, _ in taken()]

    with outside():
        expected = chosen()
    assert chosen() == expected
    other = torch.empty(4, 64, device="meta")
    for call in (lambda: kw.add(x, other), lambda: kw.gelu(x, "exact"), lambda: kw.softmax(3, -1)):
        with outside(), pytest.raises(Exception) as wrong:
            call()
        with pytest.raises(type(wrong.value)) as found:
            call()
        assert str(found.value) == str(wrong.value)


def test_the_drivers_error_is_reported_in_its_words(outside):
    x = randn(4, 64, dtype=torch.bfloat16)
    kw.softmax(x, -1)
    fail = driver.library().fail_next

    def refused():
        fail(1)
        with pytest.raises(RuntimeError) as e:
            kw.softmax(x, -1)
        return str(e.value)

    flag = ctypes.c_int.in_dll(driver.library(), "recording")
    before, flag.value = flag.value, 0
    with outside():
        expected = refused()
    assert refused() == expected and "CUDA_ERROR_INVALID_VALUE (invalid argument)" in expected
    flag.value = before


def test_several_threads_at_once(outside):
    x = randn(64, 64).requires_grad_()
    wrong = []

    def work(seed):
        rng = random.Random(seed)
        for _ in range(100):
            part = x[: rng.randrange(1, 64)]
            y = kw.softmax(part, -1)
            (g,) = torch.autograd.grad(y, x, torch.ones_like(y))
            if g.shape != x.shape:
                wrong.append(g.shape)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_the_oldest_call_is_forgotten_first_and_all_when_tables_change(outside):
    found = []
    caller = cpp_extension.loaded.Caller(
        "t", lambda x, rung: found.append(len(x)) or (lambda x: x), None
    )
    base = torch.zeros(4100)
    for n in range(1, 4100):
        caller(base[:n], None)
    caller(base[:4099], None)
    assert found == list(range(1, 4100))
    caller(base[:1], None)
    assert found[-1] == 1
    caller.clear()
    caller(base[:4099], None)
    assert found[-1] == 4099


def test_calls_that_a_plan_must_tell_apart(outside):
    asked, x = [], torch.randn(4, 8)

    def bound(*call):
        asked.append(call)
        return lambda *given: (len(asked), given)

    caller = cpp_extension.loaded.Caller("t?v-", bound, lambda *call: "in Python")
    calls = [
        (x, None, 1, 0.5, None),
        (x.to(torch.bfloat16), None, 1, 0.5, None),
        (x.to(torch.int32), None, 1, 0.5, None),
        (x[:2], None, 1, 0.5, None),
        (x.mT, None, 1, 0.5, None),
        (x.view(32), None, 1, 0.5, None),
        (torch.empty(33)[1:].view(4, 8), None, 1, 0.5, None),  # another alignment
        (x, x, 1, 0.5, None),
        (x, x[:0], 1, 0.5, None),
        (x, None, 2, 0.5, None),
        (x, None, "1", 0.5, None),
        (x, None, (1, 2), 0.5, None),
        (x, None, 1, 0.5, "cuda_warp"),
        (torch.tensor(1.0), None, 1, 0.5, None),
    ]
    for place, call in enumerate(calls, 1):
        assert caller(*call) == (place, call[:-1])
    alike = (x.clone(), None, 1, 0.25, None), (x, None, 1, 2.0, None)
    for call in (*calls, *alike):
        caller(*call)
    assert asked == calls
    assert caller(x.to("meta"), None, 1, 0.5, None) == "in Python"
    with pytest.raises(TypeError, match="4 arguments and a rung are needed, 2 given"):
        caller(x, None)


def test_nothing_is_kept_of_a_call_that_cannot_be_bound(outside):
    def bound(*call):
        raise ValueError("x: no rung")

    caller, x = cpp_extension.loaded.Caller("t", bound, None), torch.randn(3)
    before = sys.getrefcount(x)
    for _ in range(100):
        with pytest.raises(ValueError, match="x: no rung"):
            caller(x, None)
    assert sys.getrefcount(x) == before


def test_equal_values_of_other_types_have_other_keys(outside):
    caller = cpp_extension.loaded.Caller("vvv", lambda *given: lambda *_: given[:3], None)
    for given in ((1, None, "a"), (True, None, "a"), ("1", "", None), ([1, 2], 1, "a"),
                  ([1], 2, "a"), ((1, 2), 1, "b"), (1.0, None, "a")):  # fmt: skip
        assert caller(*given, None) == given
        assert list(map(type, caller(*given, None))) == list(map(type, given))


def test_selection_is_made_anew(outside, taken):
    x = randn(6, 64, dtype=torch.bfloat16)
    kw.tanh(x)
    assert binding._caches["tanh"].in_cpp is binding._caches["tanh"].now
    binding._caches["tanh"].forget()
    taken()
    kw.tanh(x)
    assert len(taken()) == 1
