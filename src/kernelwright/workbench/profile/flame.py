"""A flame graph in one HTML file: function calls and their times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from .trace import Node, Trace

_LEAST = 0.0005  # fraction of the total time; shorter calls are omitted
_CSP = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1c1e; --paper: #fff; --soft: #5f6268;
  --python: #f2c66d; --op: #8ecae6; --ours: #7fd1a8; --launch: #e5989b }
@media (prefers-color-scheme: dark) { :root { --ink: #eceef1; --paper: #17181b; --soft: #a0a5ad;
  --python: #7a5c1e; --op: #245a78; --ours: #1f6b48; --launch: #7c3d44 } }
body { margin: 16px; font: 14px ui-sans-serif, system-ui, sans-serif; color: var(--ink);
  background: var(--paper) }
p { color: var(--soft); margin: 4px 0 12px }
#graph { position: relative; width: 100% }
#graph div { position: absolute; height: 17px; overflow: hidden; white-space: nowrap;
  font-size: 11px; line-height: 17px; padding-left: 2px; box-sizing: border-box; cursor: pointer;
  border: 1px solid var(--paper); border-radius: 2px }
#graph div:focus, #graph div:hover { outline: 2px solid var(--ink); z-index: 1 }
.python { background: var(--python) } .op { background: var(--op) }
.ours { background: var(--ours) }
.launch { background: var(--launch) }
"""
_SCRIPT = """
const graph = document.getElementById('graph'), boxes = [...graph.children];
function show(from, width) {
  for (const b of boxes) {
    const x = (b.dataset.x - from) / width, w = b.dataset.w / width;
    b.style.left = 100 * Math.max(0, x) + '%';
    b.style.width = 100 * (Math.min(1, x + w) - Math.max(0, x)) + '%';
    b.hidden = x >= 1 || x + w <= 0;
  }
}
function zoom(b) { show(+b.dataset.x, +b.dataset.w); }
graph.addEventListener('click', e => e.target !== graph && zoom(e.target));
graph.addEventListener('keydown', e => e.key === 'Enter' && zoom(e.target));
document.addEventListener('keydown', e => e.key === 'Escape' && show(0, 1));
show(0, 1);
"""


@dataclass
class Frame:
    """The sum over calls with the same stack.

    Attributes:
        us: their time, including callees.
    """

    name: str
    kind: str
    us: float = 0.0
    count: int = 0
    calls: dict[tuple[str, str], Frame] = field(default_factory=dict)


def frames(trace: Trace) -> Frame:
    """The stacks of a trace by time: of kernels on a GPU, of calls on a CPU."""
    whole = Frame("all", "python")
    for root in trace.roots:
        _add(whole, root, trace.on_gpu)
    whole.us = sum(f.us for f in whole.calls.values())
    return whole


def page(trace: Trace, title: str) -> str:
    """The flame graph as a page that needs no other file."""
    whole = frames(trace)
    boxes = list(_boxes(whole, 0.0, 0, max(whole.us, 1e-9)))
    depth = 1 + max(int(box.depth) for box in boxes)
    what = "time of kernels" if trace.on_gpu else "time of calls"
    divs = "".join(_div(box, whole.us) for box in boxes)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_CSP}">'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1><p>Width is {what}, {whole.us / 1e3:.2f} ms total. A box "
        "is called by the one above it. Click or Enter: zoom. Escape: all.</p>"
        f'<div id="graph" style="height:{18 * depth}px">{divs}</div>'
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


@dataclass(frozen=True)
class _Box:
    frame: Frame
    x: float
    width: float
    depth: int


def _add(into: Frame, node: Node, gpu: bool) -> float:
    """Add a call and its callees; returns its time."""
    key = _name(node.name), node.kind
    frame = into.calls.get(key) or Frame(key[0], _class(node))
    below = sum(_add(frame, child, gpu) for child in node.children)
    us = node.gpu_us + below if gpu else node.us
    if us > 0:
        into.calls[key] = frame
        frame.us += us
        frame.count += 1
    return us


def _boxes(frame: Frame, x: float, depth: int, whole: float) -> Iterable[_Box]:
    width = frame.us / whole
    if width < _LEAST:
        return
    yield _Box(frame, x, width, depth)
    for call in sorted(frame.calls.values(), key=lambda f: -f.us):
        yield from _boxes(call, x, depth + 1, whole)
        x += call.us / whole


def _div(box: _Box, whole: float) -> str:
    f = box.frame
    tip = f"{f.name}\n{f.us / 1e3:.3f} ms, {f.us / max(whole, 1e-9):.1%}, {f.count} calls"
    return (
        f'<div class="{f.kind}" tabindex="0" title="{escape(tip)}" data-x="{box.x:.6f}" '
        f'data-w="{box.width:.6f}" style="top:{18 * box.depth}px">{escape(f.name)}</div>'
    )


def _class(node: Node) -> str:
    if node.name.startswith("kernelwright::"):
        return "ours"
    return {"python_function": "python", "cpu_op": "op"}.get(node.kind, "launch")


def _name(name: str) -> str:
    """A frame's name, with its file's name instead of its path."""
    path, paren, rest = name.partition("(")
    return f"{Path(path).name}{paren}{rest}" if paren and "/" in path else name
