"""From the result of `bench core` to its tables, for a terminal and for the page `core.md`."""

from collections.abc import Iterator

from amsip.bench.base import markdown, origin, table
from amsip.bench.core import sharp

ARMS = ("reweight", "optimum")
STANDARD_ERRORS = 5.0
HEADER = ("target", "M", "floor", "reweight/floor", "known", "z", "optimum/floor", "known", "z", "within 5")


def render(result: dict) -> str:
    """Both tables, for a terminal.

    Example:
        >>> print(render({"ratios": [], "descents": {"note": "not run"}}).splitlines()[0])
        target  M  floor  reweight/floor  known  z  optimum/floor  known  z  within 5
    """
    ratios = result["ratios"]
    verdict = "\n".join([_agreement(ratios), *(f"  {line}" for line in _apart(ratios))])
    return f"{table(HEADER, list(map(_shown, ratios)))}\n\n{verdict}\n\n{sharp.render(result['descents'])}"


def page(result: dict) -> str:
    """The whole page, in Markdown."""
    return "\n\n".join([_opening(result), *_targets(result), _sharp(result["descents"]), origin(result)]) + "\n"


def _opening(result: dict) -> str:
    lines = [
        "# What the mathematics alone reaches",
        "",
        "No training is involved. Each cell is a median of MMD² over sets of M seeds, as a ratio to that of the seeds",
        "with equal weights (the floor): with optimal weights (*reweight*), and after 150 Adam steps on the nodes of",
        "each set (*optimum*). Beside it stands a value measured beforehand by an independent implementation, and how",
        "many standard errors apart the two are (z); sets are resampled in pairs for that error.",
        "",
        f"**{_agreement(result['ratios'])}**",
    ]
    apart = list(_apart(result["ratios"]))
    return "\n".join([*lines, *(["", *(f"- {line}" for line in apart)] if apart else [])])


def _targets(result: dict) -> Iterator[str]:
    rows = result["ratios"]
    for name in dict.fromkeys(row["target"] for row in rows):
        here = [row for row in rows if row["target"] == name]
        yield f"## {name}\n\n{here[0]['sets']} seed sets; self-affinity {here[0]['energy']:.5f}.\n\n" + markdown(
            HEADER[1:], [_shown(row)[1:] for row in here]
        )


def _sharp(descents: dict) -> str:
    losers = [row["method"] for row in descents["rows"] if row["above_start"]]
    sentence = f"Above its start on some case: {', '.join(losers)}." if losers else "None ended above its start."
    return (
        f"## Two refinements of sharp conditionals\n\n{sharp.title(descents)} Every case is followed from the same "
        f"seeds, drawn by weight; one row keeps the best of {sharp.STARTS} such starts. The best known score of a case "
        "is the least that any of the methods below, or 1,200 further steps of Adam, has met on it. The score has "
        "many local minima here: a descent from one start rests in one of them, so what keeps it from the best known "
        f"value is where it began, not the number of its steps. {sentence}\n\n"
        + markdown(sharp.HEADER, [list(map(str, row)) for row in sharp.rows(descents)])
        + "\n\n*End/start* is the median over cases of the last score over the first, *worst* the largest; *end/best* "
        f"the median over the best known. To both sides of a ratio {sharp.ROUNDING:g} of the self-affinity is added, "
        "below which a score is zero to rounding. *Steps* and *CPU ms* are medians over the cases that came within 1% "
        "of the best known score."
    )


def _shown(row: dict) -> list[str]:
    cells = [cell for arm in ARMS for cell in _cells(row[arm])]
    agrees = all(abs(row[arm]["z"]) <= STANDARD_ERRORS for arm in ARMS)
    return [row["target"], str(row["m"]), f"{row['floor']:.3e}", *cells, "yes" if agrees else "no"]


def _cells(arm: dict) -> tuple[str, str, str]:
    return f"{arm['ratio']:.4g}", f"{arm['known']:.4g}", f"{arm['z']:+.1f}"


def _agreement(rows: list[dict]) -> str:
    judged = [abs(row[arm]["z"]) <= STANDARD_ERRORS for row in rows for arm in ARMS]
    return f"{sum(judged)} of {len(judged)} ratios agree within {STANDARD_ERRORS:g} standard errors."


def _apart(rows: list[dict]) -> Iterator[str]:
    for row in rows:
        for arm in ARMS:
            if abs(row[arm]["z"]) > STANDARD_ERRORS:
                why = " (the Gram is singular to rounding: the ridge decides)" if row["ridge_decides"] else ""
                ratio, known = row[arm]["ratio"], row[arm]["known"]
                yield f"apart: {row['target']}, M = {row['m']}, {arm}: {ratio:.3g} against {known:.3g}{why}"
