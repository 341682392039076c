"""The table of attention's forward in TFLOP/s, from the printed output of its measurement."""

from __future__ import annotations

import re

from kernelwright.workbench.records import records

FILE = "measured/attention_2.txt"
#: The rungs and peers, by their names in that file.
COLUMNS = {
    "flash": "`triton_flash`",
    "wgmma": "`cuda_wgmma`",
    "wgmma_persistent": "`cuda_wgmma_persistent`",
    "wgmma_dynamic": "`cuda_wgmma_dynamic`",
    "wgmma_wide": "`cuda_wgmma_wide`",
    "FA2": "FlashAttention-2",
    "cudnn": "cuDNN",
}
_LINE = re.compile(r"^fwd (\d+)x(\d+)x(\d+)x(\d+) (causal|full) (.*)", re.M)
_RATE = re.compile(r"(\w+)(?::[\d/]+)?: (\d+)\b(?!us)")


def rows(machine: str) -> list[list[str]]:
    """A row per shape: for each rung its config with the highest rate. Without a record, none."""
    path = records.ROOT / machine / FILE
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [["batch", "heads", "keys", "head size", "mask", *COLUMNS.values()], *fastest(text)]


def fastest(text: str) -> list[list[str]]:
    out: list[list[str]] = []
    for *shape, mask, printed in _LINE.findall(text):
        rates: dict[str, int] = {}
        for name, rate in _RATE.findall(printed.split(" | ")[-1]):
            rates[name] = max(int(rate), rates.get(name, 0))
        sizes = [f"{int(n):,}" for n in shape]
        figures = [str(rates.get(name, "")) for name in COLUMNS]
        out.append([*sizes, "causal" if mask == "causal" else "none", *figures])
    return out
