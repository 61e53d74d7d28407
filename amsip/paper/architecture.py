"""fig:architecture: the network as a drawing, and what an untrained one does."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from amsip.maps.attention import AttentionMap
from amsip.paper.base import Claim, Data, Experiment, Finding, Run, Verdict
from amsip.paper.style import FLOOR, INK, SOFT, WARM
from amsip.problems.toys import BASE_SEED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BUDGETS = (1, 4, 16, 64)
DIMS = (2, 7, 32)
UNSEEN = 96
ROUNDING = 1e-12


def compute(run: Run) -> Data:
    """How far an untrained net moves its seeds, and how far permuting seeds changes more than the order of nodes."""
    generator = torch.Generator().manual_seed(BASE_SEED)
    rows = []
    for dim in DIMS:
        for m in (*BUDGETS, UNSEEN):
            seeds = torch.randn(8, m, dim, generator=generator, dtype=torch.float64)
            untrained = AttentionMap(dim, generator=torch.Generator().manual_seed(0))
            shaken = _shaken(AttentionMap(dim, generator=torch.Generator().manual_seed(0)), generator)
            order = torch.randperm(m, generator=generator)
            with torch.no_grad():
                still, moved, permuted = untrained(seeds), shaken(seeds), shaken(seeds[:, order])
            rows.append(
                {
                    "d": dim,
                    "m": m,
                    "untrained": _largest(still - seeds),
                    "moved": _largest(moved - seeds),
                    "permuted": _largest(permuted - moved[:, order]),
                }
            )
    parameters = {str(dim): sum(p.numel() for p in AttentionMap(dim).parameters()) for dim in DIMS}
    return {"rows": rows, "parameters": parameters}


def draw(data: Data, figure: "Figure") -> None:
    """The three stages, from left to right."""
    figure.set_size_inches(7.2, 2.7)
    axes = figure.subplots()
    axes.set_xlim(0, 72)
    axes.set_ylim(0, 27)
    axes.set_aspect("equal")
    axes.axis("off")
    generator = torch.Generator().manual_seed(3)
    seeds = torch.randn(9, 2, generator=generator) * torch.tensor([2.6, 2.4]) + torch.tensor([8.0, 13.0])
    goal = seeds + 0.45 * (torch.tensor([8.0, 13.0]) - seeds).flip(0)
    _seeds(axes, seeds)
    _network(axes, data)
    _rule(axes, seeds + torch.tensor([56.0, 0.0]), goal + torch.tensor([56.0, 0.0]))


def headline(data: Data) -> str:
    """The result in one line."""
    worst = max(row["permuted"] for row in data["rows"])
    return f"Untrained, the network returns its seeds exactly; permuting the seeds permutes the nodes to {worst:.1e}."


def _shaken(net: AttentionMap, generator: torch.Generator) -> AttentionMap:
    """The net with every parameter moved off its initial value, so that nothing is zero by design."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return net


def _largest(difference: Tensor) -> float:
    return float(difference.abs().max())


def _box(axes: "Axes", x: float, y: float, width: float, height: float, text: str, colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=0.6"
    axes.add_patch(FancyBboxPatch((x, y), width, height, style, facecolor="white", edgecolor=colour, linewidth=1.1))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=7, color=INK, linespacing=1.35)


def _arrow(axes: "Axes", start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "#555555", "linewidth": 1.0})


def _seeds(axes: "Axes", seeds: Tensor) -> None:
    axes.scatter(seeds[:, 0], seeds[:, 1], s=22, facecolors="white", edgecolors=FLOOR, linewidths=1.2)
    axes.text(8, 25.2, "M independent draws", ha="center", color=FLOOR, fontsize=8)
    axes.text(8, 1.4, "equal weights: the floor", ha="center", color="#555555", fontsize=7)
    _arrow(axes, (15.0, 13), (18.0, 13))


def _network(axes: "Axes", data: Data) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((25.6, 6.4), 15.8, 15.6, facecolor="#f6f8f9", edgecolor=SOFT, linewidth=0.8))
    axes.text(33.5, 22.6, "three blocks", ha="center", fontsize=7, color="#555555")
    _box(axes, 18.2, 10.5, 5.8, 5.0, "linear\n$d \\to 64$", FLOOR)
    _box(axes, 27.0, 15.4, 13.0, 5.2, "attention among nodes\n4 heads", WARM)
    _box(axes, 27.0, 7.8, 13.0, 5.2, "each node, modulated\nby M and the spread", WARM)
    _box(axes, 43.0, 10.5, 6.6, 5.0, "linear, zero\nat the start", FLOOR)
    _arrow(axes, (24.0, 13), (25.6, 13))
    _arrow(axes, (33.5, 15.4), (33.5, 13.0))
    _arrow(axes, (41.4, 13), (43.0, 13))
    _arrow(axes, (49.6, 13), (55.0, 13))
    axes.text(52.3, 14.2, "$+\\Delta z_j$", ha="center", fontsize=8)
    axes.text(33.5, 25.2, "the network, one forward pass", ha="center", color=INK, fontsize=8)
    _box(axes, 27.0, 1.0, 13.0, 3.6, "$\\log M$, $\\log$ spread", SOFT)
    _arrow(axes, (33.5, 4.6), (33.5, 7.8))


def _rule(axes: "Axes", seeds: Tensor, nodes: Tensor) -> None:
    for seed, node in zip(seeds.tolist(), nodes.tolist(), strict=True):
        axes.plot(*zip(seed, node, strict=True), color=SOFT, linewidth=0.8, zorder=1)
    axes.scatter(seeds[:, 0], seeds[:, 1], s=10, facecolors="white", edgecolors=SOFT, linewidths=0.8, zorder=2)
    sizes = torch.linspace(16, 60, len(nodes))
    axes.scatter(nodes[:, 0], nodes[:, 1], s=sizes, color=WARM, edgecolors="white", linewidths=0.6, zorder=3)
    axes.text(64, 25.2, "nodes, weights solved for", ha="center", color=WARM, fontsize=8)
    axes.text(64, 1.4, "$w = (K+\\varepsilon I)^{-1}(\\mu + \\kappa 1)$", ha="center", color="#555555", fontsize=7.5)


def _untrained(data: Data) -> Finding:
    worst = max(row["untrained"] for row in data["rows"])
    verdict = Verdict.HOLDS if worst == 0.0 else Verdict.FAILS
    return Finding(verdict, worst, None, "Largest displacement over M = 1 to 96 and d = 2, 7, 32: exactly none.")


def _equivariant(data: Data) -> Finding:
    worst = max(row["permuted"] for row in data["rows"])
    moved = min(row["moved"] for row in data["rows"])
    verdict = Verdict.HOLDS if worst < ROUNDING * max(1.0, moved) else Verdict.FAILS
    note = (
        f"With every parameter shaken, so that nodes move by {moved:.2g} at least; M = 96 was never a training budget."
    )
    return Finding(verdict, worst, None, note)


EXPERIMENT = Experiment(
    label="architecture",
    title="The network: untrained it returns its seeds, and the order of seeds does not matter",
    minutes=0.1,
    compute=compute,
    draw=draw,
    headline=headline,
    claims=(
        Claim(
            "architecture-zero-start",
            "A zero displacement reproduces the floor, and an untrained network emits it.",
            "section 4.1, fig:architecture",
            "largest displacement of an untrained network",
            _untrained,
        ),
        Claim(
            "architecture-any-order-any-m",
            "One network serves any number of nodes and treats them as a set.",
            "section 4.1, appendix C.1",
            "largest change of a node when the seeds are permuted",
            _equivariant,
        ),
    ),
)
