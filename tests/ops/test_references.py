"""References: a backward's agrees with autograd of its forward's, in float64."""

import pytest
import torch

from kernelwright.dispatch import ladders
from kernelwright.workbench.verify.candidate import all_results

FORWARD = {x.name: x.operator for x in ladders()}
BACKWARD = [op for name, op in FORWARD.items() if name.endswith(".backward")]


def cases():
    for op in BACKWARD:
        shapes = set()
        for c in op.cases:
            small = c.use == "verify" and c.values == "normal" and c.layout == "contiguous"
            key = (c.shape, c.params)
            # longer rows are the same maths
            if small and 0 < c.numel < 1 << 20 and key not in shapes:
                shapes.add(key)
                yield pytest.param(op, c, id=f"{op.name}-{c.id}")


def in_double(v):
    return v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v


@pytest.mark.parametrize(("op", "case"), list(cases()))
def test_backward_reference_is_autograd_of_the_forward(op, case):
    forward = FORWARD[op.name.removesuffix(".backward")]
    args = {k: in_double(v) for k, v in forward.inputs(case, "cpu").items()}
    wanted = [r[1:] for r in op.results]
    varied = [n for n in wanted if args[n] is not None and args[n].is_floating_point()]
    for name in varied:
        args[name] = args[name].clone().requires_grad_()
    got = all_results(forward, args, forward.reference(**args))
    results = dict(zip(forward.results, got, strict=True))
    given = {k: in_double(v) for k, v in op.inputs(case, "cpu").items()}
    grads = {k: v for k, v in given.items() if k[1:] in results and k[0] == "g" and v is not None}
    found = torch.autograd.grad(
        [results[k[1:]] for k in grads],
        [args[n] for n in varied],
        list(grads.values()),
    )
    known = {**args, **results, **grads}
    call = op.with_defaults(known)
    call = {k: v.detach() if isinstance(v, torch.Tensor) else v for k, v in call.items()}
    stated = all_results(op, call, op.reference(**call))
    stated = [g for n, g in zip(wanted, stated, strict=True) if n in varied]
    for mine, autograd in zip(stated, found, strict=True):
        torch.testing.assert_close(mine, autograd, rtol=1e-9, atol=1e-11)
