"""One plan for every batch size: open sizes, and the calls that they are bound to."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from struct import pack

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import kernelwright as kw
import kernelwright.ops.every
from kernelwright import toolchain
from kernelwright.contract import H200, Plan, Scalar, TensorMap, arithmetic
from kernelwright.contract.symbolic_int import (
    GuardedCache,
    SymbolicInt,
    SymbolicStruct,
    Trace,
    fixed,
)
from kernelwright.dispatch import binding, dynamic_shapes, ladders, selection
from kernelwright.ops.matmul.gemm.hopper import choice
from kernelwright.toolchain import availability, c_extensions, gpu_executor, modes
from support.hosted import hosted
from support.publics import randn

ROWS = (
    2,
    3,
    17,
    20,
    24,
    64,
    100,
    101,
    120,
    129,
    640,
    700,
    1000,
    1001,
    4097,
    5000,
    8191,
    8192,
    9999,
)
#: Planned for each shape, because their sizes are in a struct that is packed during planning.
CLOSED = {
    "attention_with_kv_cache", "avg_pool2d.backward", "batch_norm", "batch_norm.backward",
    "batch_norm_backward_elemt", "batch_norm_backward_reduce", "batch_norm_inference",
    "batch_norm_stats", "group_norm", "group_norm.backward", "max_pool2d.backward", "roi_align",
}  # fmt: skip
#: A mask has eight elements per byte, so its length does not determine the rows.
PACKED = {"dropout_with_mask.backward", "bias_dropout_add_with_mask.backward"}
LADDERS = [
    x
    for x in ladders()
    if not any(a.kind == "Tensor[]" for a in x.operator.args)
    and x.name not in PACKED
    and any(c.use == "bench" and len(c.shape) > 1 for c in x.operator.cases)
]


# --- open sizes ----------------------------------------------------------------------------------


def test_decisions_become_conditions():
    n = Trace({"n": 100}).size("n")
    assert -(-n // 8) == 13
    assert max(n, 7) is n
    assert (n - 1).bit_length() == 7
    assert n % 4 == 0
    sizes = [m for m in range(400) if holds(n.trace, m)]
    assert sizes == [100, 104]  # 97 to 104 by the first assertion, a multiple of 4 by the last


@pytest.mark.parametrize("seed", range(8))
def test_a_path_is_taken_again_wherever_its_conditions_hold(seed):
    rng = random.Random(seed)

    def path(n):
        """Arithmetic and decisions like those of planning."""
        found = []
        for step in range(6):
            k = random.Random(f"{seed} {step}").randint(1, 300)
            n = [n + k, n * k, n // k, -(-n // k), max(n - k, 1), min(n, k * 50)][step]
            found.append(n if n % 3 else n + 1)
            if n > 4 * k:
                n = n // 2
            found.append(1 << max(n, 1).bit_length())
        return found

    held = 0
    for _ in range(20):
        start = rng.randint(1, 5000)
        trace = Trace({"n": start})
        made = path(trace.size("n"))
        assert holds(trace, start)
        for m in {rng.randint(1, 5000) for _ in range(60)}:
            if holds(trace, m):
                held += 1
                assert [evaluated(v, {"n": m}) for v in made] == path(m)
    assert held


@pytest.mark.parametrize(
    "need",
    [
        hash, int, float, str, "{}".format, range, partial(pack, "<i"), partial(torch.zeros, 2),
        lambda n: n / 2, lambda n: n * 0.5, lambda n: n < 0.5, lambda n: n == "n",
        lambda n: [0, 1][n],
    ],
)  # fmt: skip
def test_code_that_needs_the_number_itself_says_so(need):
    with pytest.raises(TypeError):
        need(Trace({"n": 1}).size("n"))


def holds(trace, *sizes):
    """Whether what is made under a trace serves other sizes."""
    return trace.guard()(*sizes) is None


def evaluated(value, sizes):
    if isinstance(value, (SymbolicInt, SymbolicStruct)):
        return eval(value.source, {"pack": pack}, sizes)
    if isinstance(value, tuple):
        return tuple(evaluated(v, sizes) for v in value)
    if isinstance(value, Scalar):
        return replace(value, value=evaluated(value.value, sizes))
    if isinstance(value, TensorMap):
        numbers = {n: evaluated(getattr(value, n), sizes) for n in ("shape", "strides", "box")}
        return replace(value, **numbers)
    return value


def test_common_divisors_are_plain():
    n = Trace({"n": 24}).size("n")
    assert arithmetic.gcd(16, n, 64) == 8
    assert arithmetic.gcd(12, 18) == 6
    assert [m for m in range(100) if holds(n.trace, m)] == [8, 24, 40, 56, 72, 88]


def test_what_was_made_is_found_wherever_its_guard_holds():
    found: GuardedCache[int] = GuardedCache(most=4)
    for n in (10, 100, 30, 200, 300):
        if n == 300:
            assert [found.get((m,)) for m in (12, 64, 128, 129)] == [10, 30, 100, None]
        trace = Trace({"n": n})
        size = trace.size("n")
        fixed(-(-size // 64))
        assert size > 20 or not size > 20
        found.add(trace, n)
    assert [found.get((m,)) for m in (12, 300)] == [None, 300]  # four were enough: it started again


@pytest.mark.parametrize("seed", range(4))
def test_of_random_decisions_the_same_are_found_again(seed):
    """A path that fixes sizes, nests decisions and divides by what another one has tested."""

    def path(n, m):
        found = [fixed(n // 50), (n + m).bit_length() if n > m else m % 7 == 0]
        if m // 9 and n // (m // 9) > 3:
            found.append(fixed(n // (m // 9)) if m < 90 else arithmetic.gcd(m, 12))
        return found

    rng, found, made = random.Random(seed), GuardedCache[list](most=10_000), 0
    for _ in range(2000):
        sizes = rng.randint(1, 400), rng.randint(1, 200)
        if (known := found.get(sizes)) is None:
            trace = Trace(dict(zip("nm", sizes, strict=True)))
            known, made = path(trace.size("n"), trace.size("m")), made + 1
            found.add(trace, known)
        assert known == path(*sizes)
    assert made < 1000


def test_threads_find_and_make_together():
    found: GuardedCache[int] = GuardedCache(most=20)

    def work(seed):
        rng = random.Random(seed)
        for _ in range(300):
            n = rng.randint(1, 4000)
            if (made := found.get((n,))) is not None:
                assert made == n // 64
                continue
            trace = Trace({"n": n})
            fixed(trace.size("n") // 64)
            if n % 2:  # expressions that only some sizes have
                trace.size("n").bit_length()
            found.add(trace, n // 64)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert found._count <= 20


# --- plans ---------------------------------------------------------------------------------------


@pytest.fixture
def h200(monkeypatch):
    monkeypatch.setattr(selection, "gpu_of", lambda device: H200)
    monkeypatch.setattr(availability, "missing", lambda *_: None)


def planned(ladder, specs):
    """(rung, config, plan) on an H200."""
    choice = selection.select(ladder, specs, torch.device("cuda", 0), None)
    plan = None
    if choice.rung.is_gpu:
        plan = dynamic_shapes.plan_of(ladder, choice.rung, specs, config=choice.config)
    return choice.rung.name, choice.config, plan


@pytest.mark.parametrize("ladder", LADDERS, ids=lambda x: x.name)
def test_an_open_plan_is_that_of_every_size_it_holds_for(ladder, h200):
    operator = ladder.operator
    calls = dynamic_shapes.OpenCalls(ladder)
    template = next(c for c in operator.cases if c.use == "bench" and len(c.shape) > 1)
    known: dict = {}
    bound = 0
    for rows in ROWS:
        case = replace(template, shape=(rows, *template.shape[1:]))
        if ladder.name.startswith("embedding"):  # a table of one size, and lookups
            case = replace(template, params=(("n", (rows,)),))
        args = operator.with_defaults(operator.inputs(case, "meta"))
        pattern, values = calls._pattern(tuple(args.values()))
        sizes = {f"n{i}": n for i, n in enumerate(values)}
        plain, copies = operator.normalise(selection.specs_of(args))
        name, config, plan = planned(ladder, plain)
        for trace, rung, chosen, opened, outputs in known.get(pattern, ()):
            if holds(trace, *values):
                bound += 1
                assert (rung, chosen) == (name, config)
                assert launches(opened, sizes) == launches(plan, sizes)
                assert outputs(sizes) == [t.shape for t in operator.outputs(**plain)]
                break
        else:
            trace = Trace(sizes)
            specs, _ = operator.normalise(dynamic_shapes._opened(args, pattern, trace))
            if ladder.name in CLOSED:
                with pytest.raises(TypeError):
                    planned(ladder, specs)
                return
            found = planned(ladder, specs)
            made = operator.outputs(**specs)
            if found[2]:
                tensors = gpu_executor.Tensors(found[2], operator, specs)
                gpu_executor.source_of(found[2], operator, tensors, copies, 0, several=False,
                                       guarded=False)  # fmt: skip

            def outputs(sizes, made=made):
                return [evaluated(t.shape, sizes) for t in made]

            known.setdefault(pattern, []).append((trace, *found, outputs))
    assert bound >= 2


def launches(plan: Plan | None, sizes):
    if plan is None:
        return None
    scratch = {n: evaluated(s.spec.shape, sizes) for n, s in plan.scratch.items()}
    steps = [
        (s.kernel, evaluated(s.grid, sizes), s.block, s.shared, evaluated(s.args, sizes))
        for s in plan.launches
    ]
    return steps, scratch


# --- calls ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    if modes.has_gpu() or c_extensions.compiler() is None:
        pytest.skip("a stand-in for a GPU, built with a C compiler")
    with hosted(tmp_path_factory.mktemp("driver")):
        yield


@pytest.fixture
def made(monkeypatch):
    """The plans that are made: (whether the plan is open, the shape of the first argument)."""
    found = []
    bind, exact = toolchain.open_executor, dynamic_shapes.launcher

    def opened(*args):
        found.append(True)
        return bind(*args)

    def planned(ladder, args, rung=None, config=None):
        found.append(False)
        return exact(ladder, args, rung, config)

    monkeypatch.setattr(toolchain, "open_executor", opened)
    monkeypatch.setattr(dynamic_shapes, "launcher", planned)
    return found


N = {"softmax": 88, "rms_norm": 104, "gelu": 72, "swiglu": 56, "cross_entropy": 120, "sum": 136,
     "sum of columns": 152, "rope": 168, "matmul": 520, "linear": 584}  # fmt: skip


@pytest.mark.parametrize("name", N)
def test_a_thousand_batch_sizes_are_planned_a_few_times(name, stand_in, made):
    n = N[name]
    weight, target = randn(n, dtype=torch.bfloat16), torch.zeros(1001, dtype=torch.int64)
    square = randn(n, n, dtype=torch.bfloat16)
    call = {
        "softmax": lambda x: kw.softmax(x, -1),
        "rms_norm": lambda x: kw.rms_norm(x, (n,), weight),
        "gelu": kw.gelu,
        "swiglu": lambda x: kw.swiglu(x, x),
        "cross_entropy": lambda x: kw.cross_entropy(x, target[: len(x)], reduction="none"),
        "sum": lambda x: kw.sum(x, -1),
        "sum of columns": lambda x: kw.sum(x, 0).expand(len(x), n),
        "rope": lambda x: kw.rope(x.view(1, 1, -1, n), x.view(1, 1, -1, n), x, x)[0][0, 0],
        "matmul": lambda x: kw.matmul(x, square),
        "linear": lambda x: kw.linear(x, square, weight),
    }[name]
    base = randn(1001, n, dtype=torch.bfloat16)
    with kw.use(matmul="cuda_wgmma_multicast", linear="cuda_wgmma_persistent"):
        for rows in range(2, 1002):
            assert len(call(base[:rows])) == rows
    assert all(made)
    assert len(made) <= 24


def test_gradients_of_a_linear_layer_are_open(stand_in, made):
    weight = randn(320, 336, dtype=torch.bfloat16).requires_grad_()
    base = randn(800, 336, dtype=torch.bfloat16)
    with kw.use(matmul="cuda_wgmma_persistent", linear="cuda_wgmma_persistent"):
        for rows in range(8, 808, 8):
            x = base[:rows].detach().requires_grad_()
            y = kw.linear(x, weight, activation="relu")
            gx, gweight = torch.autograd.grad(y, (x, weight), torch.ones_like(y))
            assert (gx.shape, gweight.shape) == (x.shape, weight.shape)
    assert all(made)
    assert len(made) <= 24  # for three products with a hundred sizes


def test_a_cost_model_is_asked_once_for_all_sizes_of_as_many_tiles(stand_in, monkeypatch):
    asked = []
    best = choice.best.__wrapped__
    monkeypatch.setattr(choice, "best", lambda *args: asked.append(args) or best(*args))
    w, base = randn(656, 664, dtype=torch.bfloat16), randn(1024, 656, dtype=torch.bfloat16)
    for rows in range(65, 193, 3):
        kw.matmul(base[:rows], w)
    assert len({product for _, _, product, *_ in asked}) == 2
    assert len(asked) <= 2 * 6  # five rungs in turn, and the one that is chosen


def test_batches_and_lengths_are_open_together(stand_in, made):
    rng = random.Random(0)
    for _ in range(60):
        b, t = rng.randint(2, 9), rng.randint(10, 90)
        assert kw.softmax(randn(b, t, 136, dtype=torch.bfloat16), -1).shape == (b, t, 136)
    assert all(made)
    assert len(made) <= 24


def test_rows_with_gaps_between_them_are_open(stand_in, made):
    for rows in (5, 6, 7, 300, 301):
        x = randn(rows, 3 * 144, dtype=torch.bfloat16)[:, 144:288]
        assert kw.softmax(x, -1).shape == (rows, 144)
    assert all(made)
    assert len(made) <= 2


def test_the_oldest_shape_is_forgotten_first(stand_in, monkeypatch):
    monkeypatch.setattr(binding, "_CACHE_LIMIT", 3)
    run = binding.LaunchCache(next(x for x in ladders() if x.name == "tanh"))
    run._in_python = True
    for rows in (2, 3, 4, 5):
        run.now(randn(rows, 152), None)
    shapes = [key[1][0] for key in run._known]
    assert shapes == [3, 4, 5]


def test_sequences_of_one_batch_in_a_longer_buffer_are_open(stand_in, made):
    """Strides of dimensions of one element are no extents of each other."""
    for rows in (5, 6, 7, 300):
        x = randn(1, 1, 512, 3 * 72, dtype=torch.bfloat16)[:, :, :rows, :72]
        assert kw.sum(x, -1).shape == (1, 1, rows)
    assert len(made) <= 4


def test_code_that_changes_its_mind_is_guarded_by_all_its_decisions():
    """Between two calls a table may have been read that orders the questions differently."""
    found: GuardedCache[str] = GuardedCache(most=9)
    for n, text, limits in ((10, "small", (20,)), (30, "large", (40, 20))):
        trace = Trace({"n": n})
        assert [trace.size("n") > m for m in limits] == [n > m for m in limits]
        found.add(trace, text)
    assert [found.get((n,)) for n in (5, 25, 50)] == ["small", "large", None]


def test_torch_compile_compiles_once_for_every_batch_size():
    torch.compiler.reset()
    counter = CompileCounter()
    w, square = randn(48), randn(48, 48)

    def block(x):
        y = kw.softmax(kw.rms_norm(kw.layer_norm(x, (48,), w), (48,), w), -1)
        y = kw.gelu(kw.linear(y, square)) + kw.matmul(y, square)
        heads = y.view(1, 1, -1, 48)
        y, _ = kw.rope(heads, heads, x, x)
        return y[0, 0] * kw.sum(x, -1, keepdim=True)

    compiled = torch.compile(block, backend=counter, fullgraph=True, dynamic=True)
    for rows in (4, 7, 19, 64, 129):
        compiled(randn(rows, 48))
    assert counter.frame_count == 1
    assert compiled(randn(5, 48)).shape == (5, 48)
