"""Where the measurements keep what they fetch: never inside the package, never inside the repository."""

import os
from pathlib import Path


def cache_directory(name: str) -> Path:
    """`$AMSIP_CACHE/name`, or `name` in the user's own cache; made when missing.

    Example:
        >>> cache_directory("doctest").name
        'doctest'
    """
    chosen = os.environ.get("AMSIP_CACHE")
    root = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "amsip"
    directory = root.expanduser() / name
    directory.mkdir(parents=True, exist_ok=True)
    return directory
