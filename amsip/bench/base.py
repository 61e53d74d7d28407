"""What every measurement carries: the command, the versions, the commit and the seconds it took.

A bench is a module of three functions: `add_arguments(parser)`, `run(arguments) -> dict` (JSON-serialisable) and
`render(result) -> str`.
"""

import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch


def record(command: str, started: float, body: Mapping[str, object]) -> dict[str, object]:
    """A result with where it came from.

    Arguments:
        command: What a reader types to get it again.
        started: `time.perf_counter()` at the start.
        body: The measurement itself.

    Returns:
        A JSON-serialisable dictionary.

    Example:
        >>> record("python -m amsip bench nothing", time.perf_counter(), {"rows": []})["command"]
        'python -m amsip bench nothing'
    """
    return {
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - started, 3),
        "versions": versions(("amsip", "torch", "numpy")),
        "machine": {"cores": os.cpu_count(), "threads": torch.get_num_threads(), "system": platform.system()},
        "commit": commit(),
        **body,
    }


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Python's version and those of the packages that are installed.

    Example:
        >>> "python" in versions(())
        True
    """
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """The commit of the source tree, marked when the package has local changes; None outside a checkout.

    Example:
        >>> commit() is None or len(commit()) >= 7
        True
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no", "--", "amsip") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Aligned columns, first column to the left.

    Example:
        >>> print(table(("name", "value"), [("a", 1), ("bc", 20)]))
        name  value
        ----  -----
        a         1
        bc       20
    """
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(
            c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, all but the first column to the right.

    Example:
        >>> print(markdown(("name", "value"), [("a", "1")]))
        | name | value |
        | --- | ---: |
        | a | 1 |
    """
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def origin(result: Mapping[str, Any]) -> str:
    """The closing section of a page: what made its numbers.

    Example:
        >>> given = {"command": "c", "commit": "abc", "date": "2026-01-02T03", "versions": {"torch": "2"}}
        >>> print(origin({**given, "seconds": 61}).splitlines()[-1])
        `c` at commit abc, 2026-01-02, in 61 s. Versions: torch 2.
    """
    names = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    made = f"`{result['command']}` at commit {result['commit']}, {result['date'][:10]}, in {result['seconds']:.0f} s."
    return f"## Where this comes from\n\n{made} Versions: {names}."


def _git(root: Path, *arguments: str) -> str:
    result = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=10
    )
    return result.stdout.strip()
