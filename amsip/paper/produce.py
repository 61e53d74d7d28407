"""Running experiments: data, figure and origin on disk, and nothing twice."""

import importlib.metadata
import json
import time
from collections.abc import Callable
from pathlib import Path

from amsip._disk import write_atomically
from amsip.bench.base import record
from amsip.bench.cache import cache_directory
from amsip.paper.base import Data, Experiment, Run, plain
from amsip.paper.style import drawn
from amsip.pretrained import load_card

SCHEMA = 1


def produce(
    experiment: Experiment, output: Path, *, quick: bool, again: bool, report: Callable[[str], None]
) -> tuple[Data, bool]:
    """One experiment into `output`: LABEL.json, LABEL.png and LABEL.pdf.

    Arguments:
        experiment: Which.
        output: The folder.
        quick: The version of at most a minute.
        again: Compute even if the data is there.
        report: Told what happens, a line at a time.

    Returns:
        The result, and whether it was computed now; the figure is drawn in any case.
    """
    path = output / f"{experiment.label}.json"
    result = None if again else finished(experiment, path, quick)
    fresh = result is None
    if result is None:
        result = _computed(experiment, quick, again, report)
        write_atomically(path, (json.dumps(result, allow_nan=False) + "\n").encode())
    for kind in ("png", "pdf"):
        write_atomically(path.with_suffix(f".{kind}"), drawn(experiment.draw, result["data"], kind))
    return result, fresh


def configuration(experiment: Experiment, quick: bool) -> Data:
    """What a result depends on: two runs with one configuration are the same run.

    Example:
        >>> nothing = Experiment("a", "", 0.0, lambda run: {}, lambda data, figure: None, lambda data: "", ())
        >>> configuration(nothing, quick=True)["label"]
        'a'
    """
    return {
        "label": experiment.label,
        "quick": quick,
        "universal": load_card("universal").sha256,
        "package": importlib.metadata.version("amsip"),
        "schema": SCHEMA,
    }


def finished(experiment: Experiment, path: Path, quick: bool) -> Data | None:
    """The result in a file if it has this configuration, else None."""
    if not path.exists():
        return None
    result: Data = json.loads(path.read_text())
    return result if result.get("configuration") == configuration(experiment, quick) else None


def _computed(experiment: Experiment, quick: bool, again: bool, report: Callable[[str], None]) -> Data:
    started = time.perf_counter()
    folder = cache_directory("paper-quick" if quick else "paper")
    data = plain(experiment.compute(Run(quick, folder, report, again)))
    command = f"amsip reproduce {experiment.label}{' --quick' if quick else ''}"
    body = {"title": experiment.title, "configuration": configuration(experiment, quick), "data": data}
    return record(command, started, body)
