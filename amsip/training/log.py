"""What a fit leaves behind: a small record, and a file of lines."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Entry = dict[str, float]


@dataclass(frozen=True)
class TrainLog:
    """The record of a fit.

    Arguments:
        steps: Gradient steps taken.
        seconds: Wall time, over all resumed runs.
        losses: The mean loss of each window of `log_every` steps.
        held_out: The loss on the held-out tasks, at each evaluation.
        best: The smallest of these; without held-out tasks, the smallest of `losses`.
        skipped: Steps left out because a solve failed or a gradient was not finite.
        ended: "steps", "time" or "patience".

    Example:
        >>> log = TrainLog(steps=2, seconds=0.1, losses=(0.5,), best=0.5)
        >>> TrainLog.of(log.as_dict()) == log
        True
    """

    steps: int
    seconds: float
    losses: tuple[float, ...]
    held_out: tuple[float, ...] = ()
    best: float = float("inf")
    skipped: int = 0
    ended: str = "steps"

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings, for JSON."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "TrainLog":
        """The inverse of `as_dict`."""
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**plain)


class LogFile:
    """JSONL, one entry a line, continued after a resume; and TensorBoard where a directory is given."""

    def __init__(self, path: str, tensorboard: str, step: int) -> None:
        self.path = Path(path) if path else None
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("".join(line for line in self._lines() if json.loads(line)["step"] <= step))
        self.writer = _tensorboard(tensorboard) if tensorboard else None

    def write(self, entry: Entry) -> None:
        """One line, on disk at once."""
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        if self.writer is not None:
            for key, value in entry.items():
                if key != "step":
                    self.writer.add_scalar(key, value, int(entry["step"]))

    def close(self) -> None:
        """TensorBoard's file ends here."""
        if self.writer is not None:
            self.writer.close()

    def _lines(self) -> list[str]:
        """The whole lines of an earlier run: a kill can leave half a line at the end."""
        if self.path is None or not self.path.exists():
            return []
        return [line for line in self.path.read_text().splitlines(keepends=True) if line.endswith("}\n")]


def _tensorboard(directory: str) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ImportError("`tensorboard` needs the package of that name: `pip install amsip[train]`.") from None
    return SummaryWriter(directory)
