"""README's picture: a training step with `kw.patch`, beside transformers and Liger."""

from __future__ import annotations

import statistics

from benchmarks.patched import LIGER, OURS, UNPATCHED, Patched

from kernelwright.support.svg import picture as drawn
from kernelwright.support.svg import rect, text

WIDTH, HEIGHT = 640, 330
LEFT, FULL = 150, 360  # where bars begin, and the longest one
STYLE = """
:root { --ink: #1b1c1e; --soft: #5f6268; --theirs: #8b9098; --peer: #c2417c; --ours: #17995c }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eceef1; --soft: #a0a5ad; --theirs: #8e949d; --peer: #ea77a8; --ours: #35bd7d }
}
text { fill: var(--ink); font: 20px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif }
.head { font-weight: 650 } .soft { fill: var(--soft); font-size: 16px }
.theirs { fill: var(--theirs) }
.peer { fill: var(--peer) }
.ours { fill: var(--ours) }
"""
KINDS = {UNPATCHED: "theirs", LIGER: "peer", OURS: "ours"}


def picture(step: Patched) -> str:
    """Tokens a second and peak memory of each variant, as an SVG that stands alone."""
    s = step.shape
    tokens = s["batch"] * s["tokens"]
    ran = {name: v for name in KINDS if (v := step.variants.get(name)) and v.step_ms}
    rates = {name: tokens / statistics.median(v.step_ms) for name, v in ran.items()}
    memory = {name: v.peak_bytes / 2**30 for name, v in ran.items()}
    parts = [
        *_panel(28, "Training, thousand tokens/s (more is better)", rates, "{:.1f}"),
        *_panel(172, "Peak memory, GiB (less is better)", memory, "{:.1f}"),
        text(
            0,
            318,
            f"{s['layers']} layers of Llama 3 8B, bf16, eager (no torch.compile), one H200",
            "soft",
        ),
    ]
    label = "kw.patch beside transformers and Liger: " + ", ".join(
        f"{name} {rates[name]:.1f} thousand tokens/s and {memory[name]:.1f} GiB" for name in ran
    )
    return drawn(parts, WIDTH, HEIGHT, label, STYLE)


def _panel(top: int, head: str, values: dict[str, float], form: str) -> list[str]:
    parts = [text(0, top, head, "head")]
    most = max(values.values())
    for i, (name, value) in enumerate(values.items()):
        y, length = top + 16 + i * 34, FULL * value / most
        parts.append(text(0, y + 19, name))
        parts.append(rect(KINDS[name], LEFT, y + 2, length, 22))
        parts.append(text(LEFT + length + 12, y + 19, form.format(value)))
    return parts
