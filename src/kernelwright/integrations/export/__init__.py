"""Models and operators as ONNX files and AOTInductor packages.

from kernelwright.integrations import export
program = export.trace(model, (tokens,), ({0: "batch", 1: "length"},))
export.write_onnx(program, Path("model.onnx"))
for check in export.check_onnx(Path("model.onnx"), program): print(check)

`trace` exports the model with torch.export and replaces every operator of ours by PyTorch's
(decompositions.py), so that a file holds only standard operators of its format.
"""

from __future__ import annotations

from .checks import Check, check_aoti, check_onnx
from .files import ONNX_OPSET, write_aoti, write_onnx
from .program import Program, trace

__all__ = [
    "ONNX_OPSET",
    "Check",
    "Program",
    "check_aoti",
    "check_onnx",
    "trace",
    "write_aoti",
    "write_onnx",
]
