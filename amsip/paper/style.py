"""How the paper's figures look: one colour an arm, budgets on a binary axis, discrepancies on a logarithmic one."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from amsip.paper.base import Data

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FLOOR, REWEIGHT, WARM, FINETUNED = "#3a7ca5", "#5a8a94", "#ff7f0e", "#7f7f7f"
UNIVERSAL, DEFAULT, DESCENT, SVGD, SVGD_REWEIGHTED = "#b5177e", "#2f9e6e", "#a63603", "#1f77b4", "#9467bd"
STAR, INK, SOFT = "#d4a017", "#222222", "#b9c4cc"
DENSITY = ("#ffffff", "#eef3f6", "#d9e4ea", "#bccfd9", "#9ab5c4", "#7899ad")
COLUMN = 3.3

# colour, line, marker, name in the legend
LOOKS: Mapping[str, tuple[str, str, str, str]] = {
    "floor": (FLOOR, "--", "", "independent-sample floor"),
    "reweight": (REWEIGHT, "-", "o", "reweight only"),
    "warm": (WARM, "-", "o", "warm start (one pass)"),
    "finetuned": (FINETUNED, "-", "s", "finetuned (per set)"),
    "universal": (UNIVERSAL, ":", "D", "universal map (no training)"),
    "descent": (DESCENT, "-", "^", "descent (per set)"),
    "svgd": (SVGD, "-", "v", "SVGD, tuned"),
    "svgd-reweighted": (SVGD_REWEIGHTED, "-", "v", "SVGD, reweighted"),
}

SETTINGS: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9.0,
    "axes.labelsize": 8.5,
    "axes.edgecolor": "#666666",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "hatch.linewidth": 0.5,
    "pdf.fonttype": 42,
    "savefig.dpi": 160,
}


def drawn(draw: Callable[[Data, "Figure"], None], data: Data, kind: str) -> bytes:
    """A drawing as the bytes of a PNG or PDF file; the settings of matplotlib are as before afterwards.

    Arguments:
        draw: Puts data on a figure.
        data: What it draws.
        kind: "png" or "pdf".

    Example:
        >>> drawn(lambda data, figure: None, {}, "png")[1:4]
        b'PNG'
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    settings: Any = {**dict(matplotlib.rcParamsDefault.items()), **SETTINGS, "backend": "agg"}
    with matplotlib.rc_context(settings):
        figure = Figure(layout="constrained")
        FigureCanvasAgg(figure)
        draw(data, figure)
        stream = io.BytesIO()
        # without a date, the same data gives the same file
        figure.savefig(stream, format=kind, metadata={"CreationDate": None} if kind == "pdf" else {"Software": None})
    return stream.getvalue()


def budget_axes(axes: "Axes", budgets: Sequence[int], *, ylabel: str = "squared discrepancy MMD²") -> None:
    """The number of nodes on a binary axis, a discrepancy on a logarithmic one."""
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(list(budgets), [str(m) for m in budgets])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("number of nodes M")
    if ylabel:
        axes.set_ylabel(ylabel)
    axes.grid(True, which="major", color="#e6eaed", linewidth=0.6)
    axes.set_axisbelow(True)


def arm_curve(axes: "Axes", rows: Sequence[Data], arm: str, *, label: str | None = None, floor: bool = False) -> None:
    """The median of an arm against M, with its quartiles as a band.

    Arguments:
        axes: Where.
        rows: Rows with `arm`, `m`, `median` and `quartiles`, as `amsip.paper.arms.sweep` gives them.
        arm: Which of them.
        label: Its name in the legend; the usual one when not given.
        floor: Put a gold star where the median is below the floor's.
    """
    colour, line, marker, usual = LOOKS[arm]
    own = sorted((row for row in rows if row["arm"] == arm), key=lambda row: row["m"])
    m, median = [row["m"] for row in own], [row["median"] for row in own]
    face = "white" if arm == "reweight" else colour
    axes.plot(
        m, median, line, color=colour, marker=marker or None, markerfacecolor=face, label=label or usual, zorder=3
    )
    low, high = zip(*(row["quartiles"] for row in own), strict=True)
    axes.fill_between(m, low, high, color=colour, alpha=0.14, linewidth=0, zorder=1)
    if floor:
        base = {row["m"]: row["median"] for row in rows if row["arm"] == "floor"}
        below = [(x, y) for x, y in zip(m, median, strict=True) if y < base[x]]
        if below:
            axes.plot(*zip(*below, strict=True), "*", color=STAR, markersize=9, markeredgecolor=colour, zorder=4)


def plane(axes: "Axes", *, labels: tuple[str, str] = ("$x_1$", "$x_2$")) -> None:
    """A panel that shows the plane itself: coordinates named, no grid."""
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.spines[["top", "right"]].set_visible(True)


def density(axes: "Axes", grid: Data) -> None:
    """A density as a backdrop of a few pale levels; `grid` holds x, y and values by row."""
    from matplotlib.colors import ListedColormap

    top = max(max(row) for row in grid["values"])
    levels = [top * share for share in (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 1.0001)]
    axes.contourf(grid["x"], grid["y"], grid["values"], levels=levels, cmap=ListedColormap(list(DENSITY)), zorder=0)


def shared_legend(figure: "Figure", axes: "Axes", *, columns: int) -> None:
    """One legend for all panels, above them."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=columns)
