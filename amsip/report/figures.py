"""The two drawings of every report: the nodes on the posterior, and the error against the number of model runs."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.report import svg
from amsip.rules import Rule

CELL, GAP, LEFT, TOP = 190.0, 14.0, 62.0, 10.0
SHOWN_DRAWS, BINS, MARGIN = 1300, 32, 0.04


def pair_plot(
    samples: Float[Tensor, "n d"], labels: Sequence[str], rules: Sequence[Rule], chosen: int, name: str = "budget"
) -> str:
    """Every pair of parameters: the draws as a cloud, the nodes as discs whose area is the size of their weight.

    Arguments:
        samples: The draws.
        labels: One per parameter.
        rules: The rules that a switch chooses between.
        chosen: Which of them shows first.
        name: The name of the switch.

    Returns:
        An SVG drawing.
    """
    dim = samples.shape[-1]
    size = LEFT + dim * CELL + (dim - 1) * GAP + 10.0
    limits = [_limits(samples[:, i]) for i in range(dim)]
    parts = []
    for row in range(dim):
        for column in range(row + 1):
            x = svg.Scale(*limits[column], *_span(LEFT, column))
            y = svg.Scale(*limits[row], *_upwards(TOP, row))
            parts.append(_cell(samples, row, column, x, y))
            parts.append(_labels(labels, row, column, x, y, last=row == dim - 1))
    for index, rule in enumerate(rules):
        hidden = "" if index == chosen else " hidden"
        parts.append(svg.group(_nodes(rule, limits), f"nodes{hidden}", f'data-{name}="{index}"'))
    return svg.drawing(size, size + 36.0, parts, "The nodes of the rule on the draws of the posterior, pair by pair")


def error_chart(
    title: str,
    budgets: Sequence[int],
    errors: Mapping[str, Sequence[float]],
    y: svg.Scale,
) -> str:
    """Error against the number of model runs, both logarithmic; one line per key, `rule` and `draws`."""
    x = svg.Scale(budgets[0] * 0.85, budgets[-1] * 1.18, 56.0, 300.0, log=True)
    parts = [svg.text(6.0, 20.0, title, "strong"), svg.axes(x, y, x_ticks=budgets, y_ticks=y.ticks())]
    for key, values in errors.items():
        points = [(x(m), y(e)) for m, e in zip(budgets, values, strict=True)]
        parts.append(svg.line(points, f"{key}-line"))
        parts += [
            svg.circle(px, py, 4.0, f"{key}-dot", f"{m} runs: error {svg.number(e)}")
            for (px, py), m, e in zip(points, budgets, values, strict=True)
        ]
    parts.append(svg.text(178.0, y.start + 36.0, "model runs M", "soft middle"))
    return svg.drawing(320.0, y.start + 46.0, parts, f"{title}: error against the number of model runs")


def _span(offset: float, index: int) -> tuple[float, float]:
    start = offset + index * (CELL + GAP)
    return start, start + CELL


def _upwards(offset: float, index: int) -> tuple[float, float]:
    start, stop = _span(offset, index)
    return stop, start


def _limits(values: Tensor) -> tuple[float, float]:
    low, high = values.quantile(torch.tensor([0.0005, 0.9995], dtype=values.dtype)).tolist()
    return low - MARGIN * (high - low), high + MARGIN * (high - low)


def _cell(samples: Tensor, row: int, column: int, x: svg.Scale, y: svg.Scale) -> str:
    if row == column:
        return svg.axes(x, y) + _histogram(samples[:, row], x, y)
    step = max(1, len(samples) // SHOWN_DRAWS)
    cloud = [(x(a), y(b)) for a, b in samples[::step][:, [column, row]].tolist() if _inside(x, a) and _inside(y, b)]
    return svg.axes(x, y) + svg.dots(cloud, "cloud")


def _histogram(values: Tensor, x: svg.Scale, y: svg.Scale) -> str:
    counts = torch.histc(values, BINS, x.low, x.high)
    heights = counts / counts.max() * 0.9 * (y.start - y.stop)
    width = (x.stop - x.start) / BINS
    bars = []
    for i, height in enumerate(heights.tolist()):
        left, top = x.start + i * width, y.start - height
        bars.append(svg.area([(left, y.start), (left, top), (left + width, top), (left + width, y.start)], "bars"))
    return "".join(bars)


def _labels(labels: Sequence[str], row: int, column: int, x: svg.Scale, y: svg.Scale, *, last: bool) -> str:
    parts = []
    if last:
        parts += [svg.text(x(t), y.start + 16.0, svg.tick_label(t), "tick-label middle") for t in x.ticks(3)]
        parts.append(svg.text(0.5 * (x.start + x.stop), y.start + 34.0, labels[column], "middle"))
    if column == 0 and row > 0:
        parts += [svg.text(x.start - 6.0, y(t) + 4.0, svg.tick_label(t), "tick-label end") for t in y.ticks(3)]
        parts.append(svg.text(14.0, 0.5 * (y.start + y.stop), labels[row], "middle", turn=-90.0))
    return "".join(parts)


def _nodes(rule: Rule, limits: Sequence[tuple[float, float]]) -> list[str]:
    """Discs in every cell below the diagonal; area goes with |weight|, colour with its sign."""
    scale = 9.0 / float(rule.weights.abs().max()) ** 0.5
    marks = []
    for row in range(1, len(limits)):
        for column in range(row):
            x = svg.Scale(*limits[column], *_span(LEFT, column))
            y = svg.Scale(*limits[row], *_upwards(TOP, row))
            for (a, b), w in zip(rule.nodes[:, [column, row]].tolist(), rule.weights.tolist(), strict=True):
                if _inside(x, a) and _inside(y, b):
                    style = "node" if w >= 0 else "node negative"
                    marks.append(svg.circle(x(a), y(b), max(1.6, scale * abs(w) ** 0.5), style, f"weight {w:.3f}"))
    return marks


def _inside(scale: svg.Scale, value: float) -> bool:
    return scale.low <= value <= scale.high
