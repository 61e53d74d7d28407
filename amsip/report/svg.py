"""Drawings as inline SVG: scales, marks and axes, coloured by the page's style sheet."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Scale:
    """From data to the page, linear or logarithmic.

    Arguments:
        low: The smallest value shown.
        high: The largest.
        start: Where `low` goes, in pixels.
        stop: Where `high` goes.
        log: Whether equal steps are equal factors.

    Example:
        >>> Scale(1.0, 100.0, 0.0, 200.0, log=True)(10.0)
        100.0
    """

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.stop - self.start)

    def ticks(self, count: int = 4) -> list[float]:
        """Round values within the scale, about `count` of them; 1, 2 and 5 times powers of ten when logarithmic."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            values = [k * 10.0**e for e in decades for k in (1, 2, 5)]
            inside = [v for v in values if self.low <= v <= self.high]
            return inside if len(inside) <= 2 * count else [v for v in inside if math.log10(v) % 1 == 0]
        rough = (self.high - self.low) / count
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(k * unit for k in (1, 2, 2.5, 5, 10) if k * unit >= 0.75 * rough)
        first = math.ceil(self.low / step)
        return [round(i * step, 12) for i in range(first, math.floor(self.high / step) + 1)]


def number(value: float, digits: int = 3) -> str:
    """A few digits, and no exponent where a reader does not expect one.

    Example:
        >>> number(0.012345), number(1234.5), number(45.1, 2)
        ('0.0123', '1,230', '45')
    """
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    if 1e-4 <= abs(rounded) < 1e6:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
        return f"{rounded:,.{decimals}f}"
    return f"{rounded:.{digits}g}"


def tick_label(value: float) -> str:
    """The shortest form of a round value."""
    return f"{value:g}"


def drawing(width: float, height: float, parts: Iterable[str], label: str) -> str:
    """The whole drawing; it shrinks with the page, and a screen reader says its label."""
    body = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label, quote=True)}" '
        f'style="max-width:{width:g}px">\n{body}\n</svg>'
    )


def group(parts: Iterable[str], style: str, attributes: str = "") -> str:
    """Marks that share a class."""
    return f'<g class="{style}" {attributes}>' + "".join(parts) + "</g>"


def dots(points: Iterable[tuple[float, float]], style: str) -> str:
    """Many small dots as one path: a cloud of thousands stays a small file."""
    path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
    return f'<path class="{style}" d="{path}"/>'


def circle(x: float, y: float, radius: float, style: str, title: str = "") -> str:
    """One disc, with what to say when pointed at."""
    tip = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.2f}">{tip}</circle>'


def line(points: Sequence[tuple[float, float]], style: str) -> str:
    """A broken line."""
    return f'<polyline class="{style}" points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>'


def area(points: Sequence[tuple[float, float]], style: str) -> str:
    """A filled outline."""
    return f'<polygon class="{style}" points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>'


def text(x: float, y: float, content: str, style: str = "label", turn: float = 0.0) -> str:
    """A piece of text, turned by some degrees."""
    turned = f' transform="rotate({turn:g} {x:.1f} {y:.1f})"' if turn else ""
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}"{turned}>{escape(content)}</text>'


def axes(x: Scale, y: Scale, *, x_ticks: Sequence[float] = (), y_ticks: Sequence[float] = ()) -> str:
    """The frame with its ticks; y grows upwards when its scale says so."""
    left, right, bottom, top = x.start, x.stop, y.start, y.stop
    parts = [area([(left, bottom), (right, bottom), (right, top), (left, top)], "frame")]
    for value in x_ticks:
        parts += [line([(x(value), bottom), (x(value), bottom + 4)], "tick")]
        parts += [text(x(value), bottom + 16, tick_label(value), "tick-label middle")]
    for value in y_ticks:
        parts += [line([(left - 4, y(value)), (left, y(value))], "tick")]
        parts += [line([(left, y(value)), (right, y(value))], "grid")]
        parts += [text(left - 7, y(value) + 4, tick_label(value), "tick-label end")]
    return "".join(parts)
