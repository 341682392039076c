"""rand, randn and bernoulli: the mathematics. The numbers that PyTorch's CUDA generator draws for a
seed and an offset.

Element i belongs to thread t = i % T of a grid of T threads, in its step s = i // (4 T). It is
computed from word w = i // T % 4 of Philox4x32-10 under the seed, at position offset / 4 + s of
sequence t. A word becomes u = (word + 1/2) / 2^32, rounded to float32 twice: a uniform number in
(0, 1]. rand is u, or 0 if u rounds to 1; randn converts two adjacent words to sqrt(-2 log u) sin
and cos of 2 pi u (Box and Muller 1958); bernoulli with one p is u < p. With a tensor of
probabilities it is u <= p_i with word i % 4 of sequence i // 4.
"""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, adversarial, generator, tensor

from .definition import bernoulli, bernoulli_p, normal, radius, uniform
from .grid import BLOCK

H200_THREADS = 132 * 8 * BLOCK
SHAPES = (
    ((0,), BLOCK),
    ((1,), BLOCK),
    ((), BLOCK),
    ((255,), BLOCK),
    ((3, 5, 17), BLOCK),
    ((5, 1001), 2 * BLOCK),
    ((13, 1000), BLOCK),
)
BENCH = ((2**20, ""), (2**28, ""), (2**24, "GPT-2 residual, 21,845 tokens"))


def cases(*sweep):
    """`sweep`: further arguments of every other case."""
    return (
        *(
            case(shape, d, threads=threads, **(sweep[i % len(sweep)] if sweep else {}))
            for d in FLOATS
            for i, (shape, threads) in enumerate(SHAPES)
            if d == torch.float32 or math.prod(shape) > 1
        ),
        *(
            case((n,), d, use="bench", label=label, threads=H200_THREADS, **dict(*sweep[:1]))
            for n, label in BENCH
            for d in (torch.bfloat16, torch.float32)
        ),
        case(
            (2**31 + 5,), torch.bfloat16, use="big", threads=H200_THREADS, **dict(*sweep[:1])
        ),
    )  # fmt: skip


def state(c, device):
    """A 64-bit seed, and an offset whose addition carries into its upper word."""
    words = torch.randint(-(2**63), 2**63 - 1, (1,), generator=generator(c.seed, "cpu"))
    return torch.cat((words, torch.tensor([2**34 - 4 * (c.seed % 3)]))).to(device)


def inputs(c, device, **more):
    threads = c.param("threads")
    return {
        "state": state(c, device),
        "size": c.shape,
        "threads": threads,
        **more,
        "dtype": c.dtype,
    }


def inputs_p(c, device):
    return inputs(c, device, p=c.param("p"))


def inputs_bernoulli(c, device):
    """Numbers, some of which are valid probabilities; in what is timed all of them, because
    PyTorch's kernel asserts it."""
    p = tensor(c, "p", device, scale=0.7)
    return {"state": state(c, device), "p": p.clamp_(0, 1) if c.use == "bench" else p}


def outputs(state, size, threads, dtype, p=None):
    return (TensorSpec.contiguous(tuple(size), dtype),)


def cost(state, size, threads, dtype, p=None):
    return Cost(reads=(), writes=(math.prod(size) * dtype.itemsize,))


def noise(state, size, threads, dtype):
    """The noise of the float32 steps: an angle of up to 2 pi is rounded by 2^-22, its product with
    1 / (2 pi) by 2^-24 of a turn, and the hardware's sine has an error of 2^-21.4: together 2^-20.2
    of the radius."""
    return (2.0**-20.2 * radius(state, size, threads),)


def gradient(specs, gy):
    """As PyTorch's: zeros."""
    return {"p": gy.new_zeros(()).expand(specs["p"].shape)}


def _operator(name, arguments, reference, make, source, found, **more):
    return Operator(
        name=name,
        schema=f"(Tensor state, int[] size, int threads, {arguments}) -> (Tensor y)",
        reference=reference,
        inputs=make,
        cases=found,
        cost=cost,
        outputs=outputs,
        layout="any",
        contiguous=("state",),
        source=source,
        **more,
    )


RAND = _operator(
    "rand", "ScalarType? dtype", uniform, inputs, "torch.rand on a GPU", cases(), exact=True
)
RANDN = _operator(
    "randn", "ScalarType? dtype", normal, inputs, "torch.randn on a GPU", cases(), noise=noise
)
BERNOULLI_P = _operator(
    "bernoulli_p",
    "float p, ScalarType? dtype",
    bernoulli_p,
    inputs_p,
    "torch.bernoulli with one probability, on a GPU",
    cases({"p": 0.3}, {"p": 0.0}, {"p": 1.0}, {"p": 1e-3}),
    exact=True,
)
BERNOULLI = Operator(
    name="bernoulli",
    schema="(Tensor state, Tensor p) -> (Tensor y)",
    reference=bernoulli,
    inputs=inputs_bernoulli,
    cases=(
        *adversarial(),
        *(
            case((n,), d, use="bench", label=label)
            for n, label in BENCH
            for d in (torch.bfloat16, torch.float32)
        ),
        case((2**31 + 5,), torch.bfloat16, use="big"),
    ),
    cost=lambda state, p: Cost(reads=(p.nbytes,), writes=(p.nbytes,)),
    outputs=lambda state, p: (TensorSpec.contiguous(p.shape, p.dtype),),
    layout="any",
    contiguous=("state",),
    exact=True,
    source="torch.bernoulli on a GPU",
)


def public_bernoulli(state, p):
    """The arguments of the public function, which draws its state itself."""
    return (p,), {}
