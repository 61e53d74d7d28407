"""The settings of a fit."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from amsip import _checks

Setting = bool | int | float | str


@dataclass(frozen=True)
class FitConfig:
    """How a map is fitted; the defaults are those of the paper.

    Arguments:
        steps: Gradient steps.
        lr: The learning rate of Adam.
        schedule: "constant", or "cosine" down to zero at the last step.
        warmup: Steps over which the learning rate rises linearly.
        clip: Largest norm of the gradient; infinite by default.
        ema: Decay of the moving average of the parameters that the fit ends with; 0 keeps the last parameters.
        every_layer: The loss is that of the nodes after every layer, for a map that has a `path`.
        dtype: "float64", "float32", or "" to leave the map's own precision.
        max_seconds: Wall time after which training ends cleanly, resumed time included.
        max_skipped: Steps with a failed solve or a non-finite gradient that may be left out before it is an error.
        log_every: Steps between two entries of the log.
        log: A JSONL file to write the entries to; "" for none.
        tensorboard: A directory for TensorBoard; "" for none.
        checkpoint: The file a run is saved to and resumed from; "" for none.
        checkpoint_seconds: Wall time between two checkpoints.
        checkpoint_steps: Steps between two checkpoints; 0 goes by wall time alone.
        patience: Evaluations on the held-out tasks without a better one that end the fit; 0 never ends it.
        check_every: Steps between two evaluations on the held-out tasks.

    Raises:
        ValueError: A value is out of range.

    Example:
        >>> FitConfig(steps=100).lr
        0.0003
    """

    steps: int = 4000
    lr: float = 3e-4
    schedule: str = "constant"
    warmup: int = 0
    clip: float = math.inf
    ema: float = 0.0
    every_layer: bool = False
    dtype: str = ""
    max_seconds: float = math.inf
    max_skipped: int = 0
    log_every: int = 50
    log: str = ""
    tensorboard: str = ""
    checkpoint: str = ""
    checkpoint_seconds: float = 60.0
    checkpoint_steps: int = 0
    patience: int = 0
    check_every: int = 200

    def __post_init__(self) -> None:
        _checks.one_of("schedule", self.schedule, ("constant", "cosine"))
        _checks.one_of("dtype", self.dtype, ("", "float64", "float32"))
        _checks.positive("lr", self.lr)
        for name in ("steps", "warmup", "ema", "max_skipped", "checkpoint_steps", "patience"):
            _checks.at_least(name, getattr(self, name), 0)
        for name in ("log_every", "check_every"):
            _checks.at_least(name, getattr(self, name), 1)
        for name in ("clip", "max_seconds", "checkpoint_seconds"):
            _checks.above_zero(name, getattr(self, name))
        _checks.below(name="ema", value=self.ema, bound=1.0)

    @classmethod
    def of(cls, settings: Mapping[str, Setting]) -> "FitConfig":
        """From a table of a TOML file: unknown keys and wrong types are errors.

        Example:
            >>> FitConfig.of({"step": 10})
            Traceback (most recent call last):
            ...
            ValueError: `step` is not a setting of [fit]: did you mean `steps`?
        """
        fields = {field.name: field for field in dataclasses.fields(cls)}
        _checks.known_keys("[fit]", list(settings), list(fields))
        return cls(**{key: _checks.setting(key, value, fields[key].type) for key, value in settings.items()})

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from zero.

        Example:
            >>> FitConfig(steps=10, lr=1.0, schedule="cosine", warmup=2).rate(0)
            0.5
        """
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        if self.schedule == "constant":
            return self.lr
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.lr * 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
