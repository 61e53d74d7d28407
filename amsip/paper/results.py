"""The results that are committed with the project, and what they say about the paper's sentences."""

import json
from pathlib import Path

from amsip.paper.base import Data, Verdict, plain
from amsip.paper.registry import experiment, labels

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "paper"


def load_results(folder: Path = COMMITTED) -> dict[str, Data]:
    """The full results in a folder, by label, in the paper's order; quick ones are no evidence and are left out.

    Arguments:
        folder: Where LABEL.json files are.

    Example:
        >>> load_results(Path("no-such-folder"))
        {}
    """
    paths = {label: folder / f"{label}.json" for label in labels()}
    found = {label: json.loads(path.read_text()) for label, path in paths.items() if path.exists()}
    return {label: result for label, result in found.items() if not result["configuration"]["quick"]}


def headline(label: str, results: dict[str, Data]) -> str:
    """The result in one line, or that there is none."""
    return experiment(label).headline(results[label]["data"]) if label in results else "no committed result"


def claim_rows(results: dict[str, Data]) -> list[Data]:
    """Every claim with its verdict, in the paper's order.

    Arguments:
        results: As `load_results` gives them.

    Returns:
        One JSON-serialisable row a claim, with the commit and the command its numbers come from.

    Example:
        >>> claim_rows({})
        []
    """
    rows = []
    for label, result in results.items():
        for claim in experiment(label).claims:
            finding = claim.check(result["data"])
            rows.append(
                {
                    "claim": claim.name,
                    "label": label,
                    "sentence": claim.sentence,
                    "place": claim.place,
                    "measured": claim.measured,
                    "verdict": str(finding.verdict),
                    "number": plain(finding.number),
                    "interval": None if finding.interval is None else plain(list(finding.interval)),
                    "note": finding.note,
                    "command": result["command"],
                    "commit": result["commit"],
                }
            )
    return rows


def tally(rows: list[Data]) -> str:
    """How many claims have each verdict, in one line.

    Example:
        >>> tally([{"verdict": "holds"}, {"verdict": "holds"}, {"verdict": "not testable"}])
        '3 sentences. holds: 2, not testable: 1.'
    """
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in Verdict}
    found = ", ".join(f"{verdict}: {count}" for verdict, count in counts.items() if count)
    return f"{len(rows)} sentences. {found or 'none yet'}."
