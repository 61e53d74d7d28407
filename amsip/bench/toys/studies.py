"""Small measurements beside the table, each of which explains one of its numbers; kept in parts, like the cells."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from amsip._disk import write_atomically
from amsip.bench.toys import endings, repeats

Part = dict[str, object]

STUDIES: Mapping[str, Mapping[str, Callable[[], Part]]] = {
    "repeats": repeats.PARTS,
    "endings": endings.PARTS,
}


def study_parts(folder: Path, measured: tuple[str, ...], report: Callable[[str], None]) -> dict[str, list[Part]]:
    """The parts of every study that are there, in order, those of the named studies measured where they are missing.

    Arguments:
        folder: One JSON file a part.
        measured: Names of studies.
        report: Told how far it is, a line at a time.

    Example:
        >>> study_parts(Path("nowhere"), (), print)
        {'repeats': [], 'endings': []}
    """
    return {
        name: [part for key in parts if (part := _part(folder, name, key, name in measured, report)) is not None]
        for name, parts in STUDIES.items()
    }


def _part(folder: Path, name: str, key: str, measuring: bool, report: Callable[[str], None]) -> Part | None:
    path = folder / "studies" / f"{name}-{key}.json"
    if not path.exists():
        if not measuring:
            return None
        report(f"{name}: {key}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(STUDIES[name][key]()).encode())
    part: Part = json.loads(path.read_text())
    return part
