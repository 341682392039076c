"""The specification of operators: no GPU code, no timing, no files."""

from . import arguments, eligibility, rungs
from .case import Case, case
from .operator import (
    H200,
    PYTORCHS,
    Config,
    Cost,
    Gpu,
    Ladder,
    Operator,
    Rung,
    UnknownRung,
    Unsupported,
)
from .peer import Peer
from .plan import (
    NULL,
    CudaKernel,
    Launch,
    NumbaKernel,
    Plan,
    Pointers,
    Scalar,
    Scratch,
    TritonKernel,
    f32,
    f64,
    i32,
    i64,
)
from .signature import TensorSpec, contiguous_strides, is_dense, rows_view
from .tensor_map import TensorMap

__all__ = [
    "H200",
    "NULL",
    "PYTORCHS",
    "Case",
    "Config",
    "Cost",
    "CudaKernel",
    "Gpu",
    "Ladder",
    "Launch",
    "NumbaKernel",
    "Operator",
    "Peer",
    "Plan",
    "Pointers",
    "Rung",
    "Scalar",
    "Scratch",
    "TensorMap",
    "TensorSpec",
    "TritonKernel",
    "UnknownRung",
    "Unsupported",
    "arguments",
    "case",
    "contiguous_strides",
    "eligibility",
    "f32",
    "f64",
    "i32",
    "i64",
    "is_dense",
    "rows_view",
    "rungs",
]
