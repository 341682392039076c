"""The contract: specs, layouts, schemas, ladders and plans."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.contract import (
    H200,
    Cost,
    Ladder,
    Operator,
    Rung,
    TensorSpec,
    UnknownRung,
    arithmetic,
    case,
    eligibility,
    i32,
    i64,
    is_dense,
    rows_view,
    rungs,
)
from kernelwright.contract.case import LAYOUTS, VALUES
from kernelwright.contract.inputs import adversarial, tensor
from kernelwright.contract.layout import normalise
from kernelwright.contract.rounding import U, mean_noise
from kernelwright.dispatch import UnknownOperator, ladder, ladders

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


# cases and inputs

#: Without a case of more than 2**31 elements: none of attention has run on a GPU yet; the gradient
#: of cumsum is a cumsum, whose case is exact in integers.
SMALL = {
    "scaled_dot_product_attention", "scaled_dot_product_attention.backward", "attention_varlen",
    "attention_varlen.backward", "attention_varlen_paged", "paged_attention", "reshape_and_cache",
    "cumsum.backward",
    "linear_attention", "linear_attention.backward", "attention_with_kv_cache",
}  # fmt: skip
#: Their results depend on a generator's state: they have no tensors with layouts or values.
FROM_NOTHING = {"rand", "randn", "bernoulli_p"}
#: Without infinities: in gradients of scans a tree gives NaN where a chain gives infinity, and in
#: linear attention a chunk; packed attention is compared with the formula that
#: scaled_dot_product_attention is.
FINITE = {
    "cumsum.backward", "cumprod.backward", "attention_varlen", "attention_varlen.backward",
    "attention_varlen_paged", "linear_attention", "linear_attention.backward",
}  # fmt: skip


@pytest.mark.parametrize("operator", [x.operator for x in ladders()], ids=lambda op: op.name)
class TestOperator:
    def test_case_ids_are_unique(self, operator):
        ids = [c.id for c in operator.cases]
        assert len(ids) == len(set(ids))
        assert all(operator.case(i).id == i for i in ids)

    def test_inputs_follow_the_schema_and_the_seed(self, operator):
        c = next(c for c in operator.cases if c.use == "verify" and c.numel > 32)
        names = [a.name for a in operator.args]
        one, same, other = (operator.inputs(x, "cpu") for x in (c, c, replace(c, seed=1)))
        assert set(one) <= set(names)
        assert {n for n in names if n not in one} <= {
            a.name for a in operator.args if a.default is not None or a.kind.endswith("?")
        }
        first = next(n for n in one if operator.args[names.index(n)].is_tensor)
        assert same_values(one[first], same[first])
        assert not same_values(one[first], other[first])

    def test_has_cases_to_verify_to_time_and_beyond_31_bits(self, operator):
        if operator.name not in FROM_NOTHING:
            layouts = {"contiguous", "sliced", "permuted", "offset"}
            assert {c.layout for c in operator.cases} >= layouts
            finite = {"inf"} if operator.name in FINITE else set()
            assert {c.values for c in operator.cases} >= {"normal", "nan", "inf"} - finite
        big = operator.name not in SMALL
        assert {c.use for c in operator.cases} == {"verify", "bench", *(["big"] if big else [])}
        assert not big or max(c.numel for c in operator.cases if c.use == "big") > 2**31

    def test_cost_counts_every_tensor_once(self, operator):
        c = next(c for c in operator.cases if c.use == "verify" and c.numel > 32)
        args = operator.inputs(c, "cpu")
        cost = operator.cost(**operator.with_defaults(args))
        assert cost.bytes > 0
        assert cost.mix.startswith("r")


def same_values(a, b):
    if isinstance(a, list):
        return all(map(torch.equal, a, b))
    return torch.equal(a, b)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_layouts_and_values_match_their_names(layout, values, dtype):
    t = tensor(case((4, 6), dtype, layout=layout, values=values), "x")
    assert t.shape == (4, 6)
    assert t.dtype == dtype
    strides = {"contiguous": (6, 1), "sliced": (9, 1), "permuted": (1, 4)}
    strides |= {"offset": (6, 1), "expanded": (0, 1)}
    assert t.stride() == strides[layout]
    assert (t.data_ptr() % 16 != 0) == (layout == "offset")
    special = {"nan": torch.isnan, "inf": torch.isposinf, "neginf_row": torch.isneginf}
    if values in special:
        assert special[values](t).any()
        assert not special[values](t).all() or layout == "expanded"
    if values == "neginf_row":
        assert torch.isneginf(t[0]).all()
    if values == "constant":
        assert (t == t[0, 0]).all()
    if values == "normal":
        assert t[0].unique().numel() > 3


def test_adversarial_cases_cover_the_required_inputs():
    cases = adversarial(dim=-1, sweep=({"dim": 0},))
    assert {len(c.shape) for c in cases} >= {1, 2, 3, 5}
    assert {c.numel for c in cases} >= {0, 1, 7}
    assert {c.layout for c in cases} == set(LAYOUTS)
    assert {c.param("dim") for c in cases} == {-1, 0}


# specs and layouts

SHAPES = st.lists(st.integers(1, 5), min_size=0, max_size=4).map(tuple)


@st.composite
def strided(draw):
    """A tensor made by permuting, slicing and expanding an allocation."""
    shape = draw(SHAPES)
    grown = [n + draw(st.integers(0, 2)) for n in shape]
    t = torch.arange(math.prod(grown), dtype=torch.float32).reshape(grown)
    t = t[tuple(slice(0, n) for n in shape)]
    t = t.permute(draw(st.permutations(range(len(shape)))))
    if t.ndim and draw(st.booleans()):
        d = draw(st.integers(0, t.ndim - 1))
        t = t.narrow(d, 0, 1).expand(*t.shape[:d], draw(st.integers(1, 3)), *t.shape[d + 1 :])
    return t


@given(strided())
def test_spec_has_the_properties_of_the_tensor(t):
    spec = TensorSpec.of(t)
    assert (spec.shape, spec.stride(), spec.numel()) == (tuple(t.shape), t.stride(), t.numel())
    assert spec.is_contiguous() == t.is_contiguous()
    assert (spec.ndim, spec.itemsize, spec.nbytes) == (t.ndim, 4, t.numel() * 4)


@given(strided())
def test_rows_view_reads_the_same_elements(t):
    view = rows_view(tuple(t.shape), t.stride())
    if view is None:
        return
    rows, cols, stride = view
    assert rows * cols == t.numel()
    assert torch.equal(t.as_strided((rows, cols), (stride, 1)).reshape(-1), t.reshape(-1))


@given(strided())
def test_rows_view_takes_every_contiguous_tensor_and_a_sliced_one(t):
    assert rows_view(tuple(t.shape), t.contiguous().stride()) is not None
    wide = torch.empty(6, 10)[:, :7]
    assert rows_view(wide.shape, wide.stride()) == (6, 7, 10)


@given(strided())
def test_dense_means_that_elements_fill_their_memory(t):
    extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    touched = torch.zeros(extent, dtype=torch.bool).index_put_(
        (addresses(t),), torch.tensor(True), accumulate=False
    )
    once = addresses(t).unique().numel() == t.numel()
    assert is_dense(tuple(t.shape), t.stride()) == (once and bool(touched.all()))


def addresses(t):
    index = torch.zeros(t.shape, dtype=torch.long)
    for d, (n, s) in enumerate(zip(t.shape, t.stride(), strict=True)):
        index += (torch.arange(n) * s).reshape([n if i == d else 1 for i in range(t.ndim)])
    return index.reshape(-1)


@settings(max_examples=200)
@given(a=strided(), layout=st.sampled_from(["dense", "rows", "any"]))
def test_normalised_arguments_fit_their_layout(a, layout):
    specs = {"x": TensorSpec.of(a), "y": TensorSpec.of(torch.empty(a.shape)), "dim": 1}
    fitting, copies = normalise(layout, specs)
    assert set(copies) <= {"x", "y"}
    assert fitting["dim"] == 1
    for name in ("x", "y"):
        same = fitting[name] == specs[name]
        assert fitting[name].is_contiguous() if name in copies else same
    if layout == "rows":
        assert all(rows_view(fitting[n].shape, fitting[n].strides) for n in "xy")
    if layout == "dense":
        x, y = fitting["x"], fitting["y"]
        assert is_dense(x.shape, x.strides)
        assert x.strides == y.strides or (x.is_contiguous() and y.is_contiguous())
    assert normalise(layout, fitting) == (fitting, ())


@given(st.integers(0, 100))
def test_alignment_is_the_largest_power_of_two_up_to_sixteen(offset):
    t = torch.empty(200, dtype=torch.uint8)[offset:]
    align = TensorSpec.of(t).align
    assert t.data_ptr() % align == 0
    assert align == 16 or t.data_ptr() % (2 * align)


# operators, ladders, plans


def toy(schema, **more):
    return Operator("toy", schema, None, None, (), None, None, **more)


def test_schema_is_parsed():
    op = toy(
        "(Tensor x, Tensor? w, Tensor(a!)[] ps, int dim, int[] dims, float eps=1e-5,"
        ' str mode="none", bool flag=False) -> (Tensor y, Tensor rstd)'
    )
    kinds = [(a.name, a.kind, a.mutated, a.default) for a in op.args]
    assert kinds == [
        ("x", "Tensor", False, None),
        ("w", "Tensor?", False, None),
        ("ps", "Tensor[]", True, None),
        ("dim", "int", False, None),
        ("dims", "int[]", False, None),
        ("eps", "float", False, 1e-5),
        ("mode", "str", False, "none"),
        ("flag", "bool", False, False),
    ]
    assert op.results == ("y", "rstd")
    assert op.mutated == ("ps",)
    assert toy("(Tensor x) -> ()").results == ()


def test_cost_names_its_roof():
    assert Cost((64,), (64,)).mix == "r1w1"
    assert Cost((1 << 20, 4), (1 << 20,)).mix == "r1w1"  # a small stream is ignored
    assert Cost((1 << 20, 1 << 20), (1 << 20,)).mix == "r2w1"
    assert Cost((1 << 20,), (4,)).mix == "r1w0"
    assert Cost((0,), (0,)).mix == "r0w0"


@given(st.integers())
def test_int32_arguments_are_checked_when_they_are_planned(value):
    if -(2**31) <= value < 2**31:
        assert i32(value).value == value
    else:
        with pytest.raises(OverflowError, match="does not fit"):
            i32(value)


def test_int64_arguments_hold_what_int32_do_not():
    assert i64(2**40).value == 2**40


def test_what_kernels_refuse_is_named():
    x = TensorSpec.contiguous((4, 8), torch.float32)
    half, off = replace(x, dtype=torch.float16), replace(x, align=8)
    assert eligibility.other_dtype({"x": x, "y": x, "bias": None, "alpha": 0.5}, of="x") is None
    assert (
        eligibility.other_dtype({"y": half, "x": x}, of="x")
        == "y: torch.float16 is not x's torch.float32"
    )
    wide = {"x": replace(x, dtype=torch.float64)}
    assert "x: torch.float64 is not float32" in (eligibility.other_dtype(wide, of="x") or "")
    refused = eligibility.unsupported_dtype(torch.int32)
    assert refused == "torch.int32 is not float32, float16 or bfloat16"
    assert eligibility.unsupported_dtype(torch.bfloat16, "x") is None
    assert eligibility.off_boundary({"x": x}) is None
    assert "y: its memory" in (eligibility.off_boundary({"x": x, "y": off}) or "")
    assert eligibility.no_clusters(H200) is None
    assert "8.0 has no clusters" in (
        eligibility.no_clusters(replace(H200, capability=(8, 0))) or ""
    )


def test_tuned_tables_name_dtypes_and_sizes():
    assert eligibility.kind(torch.bfloat16) == "bfloat16"
    assert [eligibility.log2(n) for n in (0, 1, 2, 3, 4, 1023)] == [0, 0, 1, 1, 2, 9]


def test_noise_of_a_mean_is_as_large_as_float32_errors():
    x = torch.randn(256, 4096, generator=torch.Generator().manual_seed(0))
    error = (x.mean(-1, keepdim=True) - x.double().mean(-1, keepdim=True)).abs()
    ratio = error / (U * mean_noise(x.double()))
    assert 0.3 < ratio.max() < 3


def test_a_rungs_name_entry_and_files_follow_from_its_trick():
    more = lambda **specs: None, ({"block": 32},)
    tree = rungs.cuda("tree", "_backward", "a tree", *more, sources=("cuda_parts.cu",))
    assert (tree.name, tree.backend, tree.entry) == ("cuda_tree", "cuda", "cuda:tree_backward")
    assert tree.sources == ("cuda_tree.cu", "cuda_parts.cu")
    assert (tree.supports, tree.configs) == more
    row = rungs.triton("row", "", "a row", *more, deterministic=False)
    assert (row.name, row.entry, row.deterministic) == ("triton_row", "triton_row:plan", False)
    lesson = rungs.numba("block", "", "a block", *more)
    assert (lesson.backend, lesson.entry, lesson.dispatchable) == (
        "numba",
        "numba_block:plan",
        False,
    )


def test_pytorchs_rungs_share_the_formula():
    manual, native, compiled = rungs.pytorch("_backward", supports=print)
    assert (manual.name, native.name, compiled.name) == ("manual", "native", "compiled")
    assert manual.entry == compiled.entry == "torch_rungs:manual_backward"
    assert native.entry == "torch_rungs:native_backward"
    assert manual.supports is compiled.supports is print
    assert native.supports is None  # it supports every call
    assert not manual.dispatchable
    assert native.dispatchable
    assert compiled.backend == "inductor"
    assert len(rungs.pytorch(compiled=None)) == 2


def test_a_ladder_needs_native_and_distinct_names():
    native = Rung("native", "torch", "m:f", "")
    with pytest.raises(AssertionError, match="native"):
        Ladder(toy("(Tensor x) -> ()"), (), "p", None, None)
    with pytest.raises(AssertionError):
        Ladder(toy("(Tensor x) -> ()"), (native, native), "p", None, None)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(UnknownRung, match=r"rung 'nope': softmax has no such rung; it has manual"):
        ladder("softmax").rung("nope")
    with pytest.raises(UnknownOperator, match=r"operator 'nope': .*did you mean rope\?"):
        ladder("nope")
    with pytest.raises(UnknownOperator, match=r"operator 'zzzzzz': .*softmax"):
        ladder("zzzzzz")


def test_shares_of_the_rows_cover_them_once():
    for rows, strips, blocks in ((1, 1, 100), (7, 3, 4), (32768, 12, 2112), (100, 500, 64)):
        parts, share = arithmetic.shares(rows, strips, blocks)
        assert (parts - 1) * share < rows <= parts * share
        assert parts * strips <= max(blocks, strips)


@pytest.mark.parametrize(
    ("rows", "down", "strips", "blocks", "abreast"),
    [
        (8192, 16, 16, 132, 8),  # as many as there are blocks for
        (30, 16, 1, 132, 2),  # each has rows
        (100, 16, 500, 132, 1),
        (8192, 16, 128, 132, 2),  # a thread adds at most 256 rows
        (2**30, 8, 1, 132, 65_535),  # the limit of a grid's column
    ],
)
def test_blocks_that_go_down_a_strip(rows, down, strips, blocks, abreast):
    assert arithmetic.abreast(rows, down, strips, blocks) == abreast
