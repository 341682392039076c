"""Two small operators for wrong kernels to get wrong: a row-wise one and an elementwise one."""

import torch
import torch.nn.functional as F

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.ops.softmax import spec as softmax

CASES = (
    *(case(s, d) for d in FLOATS for s in ((5, 33), (4, 3, 64), (7,))),
    *(case((6, 40), torch.float32, layout=x) for x in ("sliced", "permuted", "offset")),
    *(case((4, 66), torch.float32, values=v) for v in ("large", "nan", "inf")),
)


def _within_one(args, results):
    outside = results[0].abs() > 1
    return f"{int(outside.sum())} elements lie outside of [-1, 1]" if outside.any() else None


def _elementwise(name, reference, **more):
    return Operator(
        name=name,
        schema="(Tensor x) -> (Tensor y)",
        reference=reference,
        inputs=lambda c, device: {"x": tensor(c, "x", device, scale=3.0)},
        cases=CASES,
        cost=lambda x: Cost(reads=(x.nbytes,), writes=(x.nbytes,)),
        outputs=lambda x: (TensorSpec.contiguous(x.shape, x.dtype),),
        layout="rows",
        **more,
    )


def gelu_reference(x):
    return F.gelu(x, approximate="tanh")


GELU = _elementwise("toy_gelu", gelu_reference)
TANH = _elementwise("toy_tanh", torch.tanh, properties={"within one": _within_one})
LYING_FAKE = _elementwise("toy_lying_fake", torch.tanh)
SOFTMAX = softmax.FORWARD

_library = torch.library.Library("kernelwright", "FRAGMENT")
_library.define("toy_lying_fake(Tensor x, *, str? rung=None) -> Tensor")
torch.library.register_fake(
    "kernelwright::toy_lying_fake", lambda x, rung=None: torch.empty_like(x), lib=_library
)
