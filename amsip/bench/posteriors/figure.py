"""The one picture: how many draws a node replaces, ours against everybody's."""

from pathlib import Path

from amsip.bench.posteriors.arms import DEFAULT, DESCENT, OURS, PLAIN
from amsip.bench.posteriors.data import DIMENSIONS
from amsip.bench.posteriors.pages import HEADLINE, tasks_of
from amsip.bench.posteriors.summary import best_settings, standings

OURS_COLOUR, RIVAL_COLOUR = "#c2410c", "#94a3b8"
CAP = 10_000 / HEADLINE


def draw_figure(result: dict, path: Path) -> None:
    """One row a task; a grey dot a rival, the best one named; ours in colour.

    Arguments:
        result: What the bench returned.
        path: Where to write it; the suffix decides the format.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    tasks = tasks_of(result)
    with mpl.rc_context({"svg.hashsalt": "amsip", "font.size": 10}):
        figure = Figure(figsize=(8.0, 0.55 * len(tasks) + 1.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for height, task in enumerate(reversed(tasks)):
            best = best_settings(standings(result["cells"], task, HEADLINE))
            rivals = {name: s.capped[0] for name, s in best.items() if name not in (*OURS, PLAIN)}
            axes.plot([1.0, CAP], [height, height], color="#e2e8f0", linewidth=6, zorder=0, solid_capstyle="round")
            axes.scatter(list(rivals.values()), [height] * len(rivals), s=28, color=RIVAL_COLOUR, zorder=2)
            if rivals:
                name, value = max(rivals.items(), key=lambda pair: pair[1])
                axes.annotate(name, (value, height), (0, -13), textcoords="offset points", fontsize=7.5, ha="center")
            for arm, size, marker in ((DESCENT, 60, "D"), (DEFAULT, 110, "o")):
                if arm in best:
                    axes.scatter([best[arm].capped[0]], [height], s=size, color=OURS_COLOUR, marker=marker, zorder=3)
        for label, colour, marker in (
            (DEFAULT, OURS_COLOUR, "o"),
            (DESCENT, OURS_COLOUR, "D"),
            ("rivals", RIVAL_COLOUR, "o"),
        ):
            axes.scatter([], [], color=colour, marker=marker, label=label)
        axes.set_yticks(range(len(tasks)), [f"{task} (d = {DIMENSIONS[task]})" for task in reversed(tasks)])
        axes.set_xscale("log")
        axes.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
        axes.set_xlim(0.8, 1.15 * CAP)
        axes.axvline(1.0, color="#334155", linewidth=0.8, linestyle=":")
        axes.set_xlabel(f"draws that one node replaces (M = {HEADLINE}; the pool allows {CAP:.0f})")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=3, frameon=False)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
