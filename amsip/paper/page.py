"""The page `docs/paper.md`: figures, claims and settings, made from the committed results and nothing else."""

from collections.abc import Sequence

from amsip.bench.base import markdown
from amsip.paper.base import Data
from amsip.paper.registry import experiment
from amsip.paper.results import claim_rows, tally

OPENING = """# The paper's experiments, reproduced

Every figure and table of the paper, computed by this package: `amsip reproduce` lists them,
`amsip reproduce LABEL` runs one and `amsip reproduce --all` all of them, going on where it stopped. This page is made
from the files in `docs/paper` by `amsip claims --pages docs`; no number in it is typed by hand.

Constants that the paper does not print were read in the authors' public successor repository; the implementation is
independent. Where nothing was found, the choice is ours and the experiment's file says so. Medians are over independent
seed sets, bands are quartiles, brackets are 95% intervals from resampling the sets unless a note says otherwise. Every
arm of a figure starts from the same seeds and is scored with one reference. **Ours, beyond the paper**: the universal
map, which was not trained on any of these posteriors, and the default kernel."""


def page(results: dict[str, Data]) -> str:
    """The whole page, in Markdown.

    Arguments:
        results: As `amsip.paper.results.load_results` gives them.

    Example:
        >>> page({}).splitlines()[0]
        "# The paper's experiments, reproduced"
    """
    sections = [OPENING, _claims(results), _gallery(results), _reproduction(results), _origins(results)]
    return "\n\n".join(sections) + "\n"


def _claims(results: dict[str, Data]) -> str:
    rows = claim_rows(results)
    header = ("sentence, in our words", "where", "verdict", "number", "what it means")
    cells = [
        (
            f"{row['sentence']} <br>*{row['measured']}*",
            f"[{row['place']}](#{row['label']})",
            f"**{row['verdict']}**",
            _number(row),
            row["note"],
        )
        for row in rows
    ]
    return f"## What holds\n\n{tally(rows)}\n\n" + _left_table(header, cells)


def _gallery(results: dict[str, Data]) -> str:
    parts = ["## Figures"]
    for label, result in results.items():
        found = experiment(label)
        parts.append(f"### {label}\n\n**{found.title}.** {found.headline(result['data'])}")
        parts.append(f"![{found.title}](paper/{label}.png)")
    return "\n\n".join(parts)


def _reproduction(results: dict[str, Data]) -> str:
    table = results.get("repro", {}).get("data", {}).get("rows", [])
    header = ("experiment", "setting", "paper", "ours", "agrees")
    cells = [tuple(str(row[name]) for name in header) for row in table]
    return "## Settings, ours beside the paper's\n\n" + markdown(header, cells)


def _origins(results: dict[str, Data]) -> str:
    header = ("experiment", "command", "commit", "date", "seconds", "versions")
    cells = [
        (
            label,
            f"`{result['command']}`",
            str(result["commit"]),
            result["date"][:10],
            f"{result['seconds']:.0f}",
            ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
        )
        for label, result in results.items()
    ]
    return "## Where each number comes from\n\n" + markdown(header, cells)


def _number(row: Data) -> str:
    if row["number"] is None:
        return "-"
    if row["interval"] is None:
        return f"{row['number']:.3g}"
    low, high = row["interval"]
    return f"{row['number']:.3g} [{low:.3g}, {high:.3g}]"


def _left_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Text columns, all to the left."""
    lines = [header, ("---",) * len(header), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
