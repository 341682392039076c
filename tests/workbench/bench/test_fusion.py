"""What fusion saves, counted."""

import pytest
import torch

from kernelwright.machine import clock, gpu_memory
from kernelwright.ops.elementwise.gelu import torch_rungs
from kernelwright.workbench.bench import fusion


def manual(x):
    return torch_rungs.manual(x, "none")


def test_manual_gelu_launches_a_kernel_an_operator():
    work = fusion.count(manual, torch.randn(100))
    assert (work.kernels, work.reads, work.writes) == (5, 6, 5)
    assert work.bytes == 11 * 400
    assert fusion.count(manual, torch.randn(100, dtype=torch.bfloat16)).kernels == 7


def test_an_operator_of_ours_is_one_kernel():
    work = fusion.count(fusion.operator, torch.randn(100))
    assert (work.kernels, work.accesses, work.bytes) == (1, 2, 800)


def test_gelu_of_a_sum_takes_5_accesses_and_fused_3():
    x, bias = torch.randn(8, 16), torch.randn(16)
    assert fusion.count(fusion.with_bias, x, bias).accesses == 5
    work = fusion.fused(fusion.biased_formula, x, bias)
    assert (work.kernels, work.accesses, work.bytes) == (1, 3, (128 + 16 + 128) * 4)


def test_views_allocations_and_questions_are_free():
    def moves_nothing(x):
        torch.promote_types(torch.empty_like(x).dtype, torch.float32)
        return x.view(4, 25).t().unsqueeze(0)[:, 3:]

    assert fusion.count(moves_nothing, torch.randn(100)).kernels == 0


def test_an_operand_used_twice_is_read_once_and_a_broadcast_by_its_memory():
    x = torch.randn(100)
    assert fusion.count(lambda x: x * x, x).reads == 1
    assert fusion.count(torch.add, x, torch.randn(1).expand(100)).bytes == 400 + 4 + 400


def test_what_is_not_elementwise_is_not_called_one_kernel():
    with pytest.raises(ValueError, match=r"fn: aten\.sum"):
        fusion.fused(lambda x: x.exp().sum(-1), torch.randn(4, 4))


def test_rows_say_what_fusion_saves():
    found = {(r.example, r.way): r.work for r in fusion.rows()}
    assert found["gelu(x)", "an operator a kernel"].kernels == 11
    assert found["gelu(x)", "kw.gelu"].accesses == 2
    assert found["gelu(x + bias)", "two kernels"].accesses == 5
    assert found["gelu(x + bias)", "kw.gelu under torch.compile"].accesses == 3
    chain = found["layer_norm, residual, dropout, gelu", "four kernels"]
    assert (chain.kernels, chain.accesses) == (4, 13)
    fused = found["layer_norm, residual, dropout, gelu", "one kernel"]
    assert (fused.kernels, fused.accesses) == (2, 8)
    add = found["dropout(x + bias) + residual", "three kernels"]
    assert (add.kernels, add.accesses) == (3, 9)
    fused = found["dropout(x + bias) + residual", "kw.bias_dropout_add"]
    assert (fused.kernels, fused.accesses) == (2, 6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the profiler counts kernels of a GPU")
def test_the_profiler_sees_what_was_counted():
    with gpu_memory.exclusive():
        rows = fusion.measure(torch.device("cuda"), clock.QUICK)
    for row in rows:
        assert row.seen == row.work.kernels, row
        assert row.cold
