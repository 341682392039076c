"""Writes SVG: elements with escaped texts and attributes, and whole drawings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

Length = float | str  # pixels, or a text such as "50%"


def element(name: str, content: str = "", /, **attributes: Length | None) -> str:
    """An element.

    Args:
        content: markup inside of it.
        attributes: `kind` is the class and `_` stands for a dash; None and an empty text are
            omitted, and a float is written with one decimal.
    """
    written = "".join(
        f' {"class" if key == "kind" else key.replace("_", "-")}="{_value(v)}"'
        for key, v in attributes.items()
        if v is not None and v != ""
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def _value(value: Length) -> str:
    return f"{value:.1f}" if isinstance(value, float) else escape(str(value))


def text(x: Length, y: float, words: str, kind: str = "", anchor: str = "", **more: Length) -> str:
    """A text whose baseline is at y. `anchor`: "middle" or "end", where x is not its start."""
    return element("text", escape(words), kind=kind, x=x, y=float(y), text_anchor=anchor, **more)


def rect(kind: str, x: Length, y: Length, width: Length, height: Length, **more: Length) -> str:
    return element("rect", kind=kind, x=x, y=y, width=width, height=height, **more)


def line(kind: str, x1: Length, y1: float, x2: Length, y2: float) -> str:
    return element("line", kind=kind, x1=x1, y1=float(y1), x2=x2, y2=float(y2))


def points(at: Iterable[tuple[float, float]]) -> str:
    """The corners of a polyline or path."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in at)


def drawing(
    parts: Iterable[str], height: float, label: str, width: int | None = None, kind: str = "chart"
) -> str:
    """The parts as one drawing for a page.

    Args:
        label: a description for readers who do not see it.
        width: in pixels; by default the page's.
    """
    return element(
        "svg",
        "".join(parts),
        kind=kind,
        role="img",
        aria_label=label,
        width=width or "100%",
        height=f"{height:.0f}",
        xmlns="http://www.w3.org/2000/svg",
    )


def picture(parts: Iterable[str], width: int, height: float, label: str, style: str) -> str:
    """The parts as a file, which a narrow page shows smaller."""
    whole = element(
        "svg",
        "".join(parts),
        role="img",
        aria_label=label,
        viewBox=f"0 0 {width} {height:.0f}",
        width=width,
        xmlns="http://www.w3.org/2000/svg",
    )
    return styled(whole, style)


def styled(drawing: str, style: str) -> str:
    """A drawing as a file, with its style."""
    head, _, rest = drawing.partition(">")
    return f"{head}><style>{style}</style>{rest}\n"


def round_step(least: float) -> float:
    """A step between ticks: 1, 2 or 5 times a power of ten, not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= least * 0.999)
