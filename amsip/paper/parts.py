"""Finished parts of a computation on disk, so that a run that was cut goes on where it stopped."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from amsip._disk import write_atomically
from amsip.paper.base import Data, Run, plain


def kept(run: Run, name: str, stamp: Mapping[str, Any], compute: Callable[[], Data]) -> Data:
    """The part as it was computed before with the same stamp, or computed now and written.

    Arguments:
        run: Where parts are kept.
        name: A file name without its ending; experiments that share a part give it the same name.
        stamp: What the part depends on beside the code, such as sizes and digests of weights.
        compute: From nothing to the part.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = Run(True, Path(folder), lambda line: None)
        ...     [kept(run, "a", {"m": 4}, lambda value=value: {"value": value})["value"] for value in (1, 2)]
        [1, 1]
    """
    path = run.folder / "parts" / f"{name}.json"
    wanted = plain({"quick": run.quick, **stamp})
    if path.exists() and not run.again:
        found = json.loads(path.read_text())
        if found["stamp"] == wanted:
            part: Data = found["part"]
            return part
    part = plain(compute())
    write_atomically(path, json.dumps({"stamp": wanted, "part": part}, allow_nan=False).encode())
    return part
