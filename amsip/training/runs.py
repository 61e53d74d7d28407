"""A training run from a file: map, tasks, loss and fit in one TOML, trained weights and their card as the result."""

import dataclasses
import importlib.metadata
import json
import math
import platform
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from amsip import _checks
from amsip._disk import sha256
from amsip.maps.catalogue import build_map
from amsip.maps.meanshift import MeanShift
from amsip.pretrained import load_map, save_map
from amsip.training import parallel
from amsip.training.config import FitConfig
from amsip.training.engine import fit_map
from amsip.training.families import build_tasks
from amsip.training.log import Entry, TrainLog
from amsip.training.losses import Distillation, LogRatio, Loss, SquaredDiscrepancy
from amsip.training.tasks import BUDGETS, Task, Tasks

HELD_OUT_OFFSET = 50_000
LOSSES: dict[str, Callable[..., Loss]] = {"squared": SquaredDiscrepancy, "log-ratio": LogRatio}


@dataclass(frozen=True)
class RunConfig:
    """The content of a training file.

    Arguments:
        output: Where the weights go, a `.safetensors` file; card, log and checkpoint go beside it.
        map: `kind` and its settings, or `start` (shipped weights or a file) to finetune; `rng_seed` of its parameters.
        tasks: `family` and its options, `budgets`, `batch`, and how many tasks are `held_out` for early stopping.
        loss: `kind` ("squared", "log-ratio", or "distillation" of one mean-shift step) and its settings.
        fit: The settings of `FitConfig`.
        rng_seed: Of the data; each process of a parallel run draws its own from it.
        stored: The precision of the weights on disk, "float64" or "float32"; "" keeps that of the fit.

    Raises:
        ValueError: The precision is unknown.

    Example:
        >>> RunConfig.of({"output": "a.safetensors", "map": {"kind": "attention"}, "tasks": {"family": "banana"}}).loss
        {'kind': 'squared'}
    """

    output: str
    map: Mapping[str, Any]
    tasks: Mapping[str, Any]
    loss: Mapping[str, Any] = field(default_factory=lambda: {"kind": "squared"})
    fit: Mapping[str, Any] = field(default_factory=dict)
    rng_seed: int = 0
    stored: str = ""

    def __post_init__(self) -> None:
        _checks.one_of("stored", self.stored, ("", "float64", "float32"))

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> "RunConfig":
        """From the tables of a TOML file: unknown and missing keys are errors."""
        _checks.known_keys("a training file", list(table), [item.name for item in dataclasses.fields(cls)])
        _checks.has_keys("A training file", list(table), ["output", "map", "tasks"])
        return cls(**table)

    @property
    def fingerprint(self) -> str:
        """What a checkpoint must share with a run that resumes it."""
        kept = [dict(self.map), dict(self.tasks), dict(self.loss), self.rng_seed]
        return sha256(json.dumps(kept, sort_keys=True).encode())[:8]


def train_from_config(path: str | Path, *, progress: bool = False, resume: bool = True) -> TrainLog:
    """Trains the map a TOML file describes and writes its weights, its card and a log.

    A run that was interrupted continues from its checkpoint; a finished one returns at once. Under `torchrun` the
    processes train together and the first one writes.

    Arguments:
        path: The TOML file; the paths in it are relative to the working directory.
        progress: Show a bar (needs tqdm).
        resume: Continue from a checkpoint of the same map, tasks and loss, where there is one.

    Returns:
        The record of the fit.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A key is unknown or missing, or a value is out of range.

    Example:
        >>> train_from_config("no-such-file.toml")
        Traceback (most recent call last):
        ...
        FileNotFoundError: ... 'no-such-file.toml'
    """
    with Path(path).open("rb") as stream:
        config = RunConfig.of(tomllib.load(stream))
    with parallel.joined():
        return train_run(config, command_of(Path(path)), progress=progress, resume=resume)


def train_run(config: RunConfig, command: str, *, progress: bool = False, resume: bool = True) -> TrainLog:
    """Trains what a configuration says and writes weights, card and log.

    Arguments:
        config: The run.
        command: What a reader types to get it again, for the card.
        progress: Show a bar (needs tqdm).
        resume: Continue from a checkpoint of the same map, tasks and loss, where there is one.

    Returns:
        The record of the fit.

    Example:
        >>> import tempfile
        >>> output = str(Path(tempfile.mkdtemp()) / "mine.safetensors")
        >>> table = {"map": {"kind": "unrolled", "layers": 1}, "tasks": {"family": "universal"}, "fit": {"steps": 1}}
        >>> train_run(RunConfig.of({"output": output, **table}), "none").ended
        'steps'
    """
    node_map, tasks, fit = _map(config), _tasks(config), _fit(config)
    if not resume and parallel.rank() == 0:
        Path(fit.checkpoint).unlink(missing_ok=True)
    parallel.wait()
    bar = _Bar(fit.steps) if progress and parallel.rank() == 0 else None
    log = fit_map(
        node_map,
        tasks,
        fit,
        loss=_loss(config.loss),
        held_out=_held_out(config, tasks),
        generator=torch.Generator().manual_seed(config.rng_seed),
        callback=bar,
    )
    if bar is not None:
        bar.close()
    if config.stored:
        node_map.to(getattr(torch, config.stored))
    if parallel.rank() == 0:
        save_map(node_map, config.output, about=provenance(dataclasses.asdict(config), command, log))
    return log


def _map(config: RunConfig) -> nn.Module:
    settings = dict(config.map)
    start, seed = settings.pop("start", None), settings.pop("rng_seed", 0)
    if start is not None:
        _checks.known_keys("[map] with `start`", list(settings), ["start", "rng_seed"])
        return load_map(start)
    _checks.has_keys("[map]", list(settings), ["kind"])
    return build_map(settings.pop("kind"), settings, generator=torch.Generator().manual_seed(seed))


def _tasks(config: RunConfig) -> Tasks:
    options = {key: value for key, value in config.tasks.items() if key != "held_out"}
    _checks.has_keys("[tasks]", list(options), ["family"])
    budgets, batch = tuple(options.pop("budgets", BUDGETS)), options.pop("batch", 64)
    return build_tasks(options.pop("family"), options, budgets=budgets, batch=batch)


def _held_out(config: RunConfig, tasks: Tasks) -> list[Task]:
    generator = torch.Generator().manual_seed(config.rng_seed + HELD_OUT_OFFSET)
    return [tasks(generator) for _ in range(config.tasks.get("held_out", 0))]


def _fit(config: RunConfig) -> FitConfig:
    fit, output = FitConfig.of(config.fit), Path(config.output)
    checkpoint = fit.checkpoint or str(output.with_name(f"{output.stem}-{config.fingerprint}.checkpoint"))
    return dataclasses.replace(fit, checkpoint=checkpoint, log=fit.log or str(output.with_suffix(".jsonl")))


def _loss(table: Mapping[str, Any]) -> Loss:
    settings = dict(table)
    kind = settings.pop("kind", "squared")
    _checks.one_of("[loss] kind", kind, [*LOSSES, "distillation"])
    if kind == "distillation":
        _checks.known_keys("[loss]", list(settings), ["damping", "jitter"])
        return Distillation(MeanShift(steps=1, **settings))
    _checks.known_keys("[loss]", list(settings), [item.name for item in dataclasses.fields(LOSSES[kind])])  # type: ignore[arg-type]
    return LOSSES[kind](**settings)


def command_of(path: Path) -> str:
    """What trains from a file; an absolute path says nothing to others."""
    return f"amsip train {path.name if path.is_absolute() else path.as_posix()}"


def provenance(configuration: Mapping[str, Any], command: str, log: TrainLog) -> dict[str, Any]:
    """What the card says: how to make these weights again, and how the fit ended."""
    about = {
        "command": command,
        "configuration": configuration,
        "commit": _commit(),
        "versions": {
            "amsip": importlib.metadata.version("amsip"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "processes": parallel.size(),
        "steps": log.steps,
        "seconds": round(log.seconds, 1),
        "ended": log.ended,
        "losses": list(log.losses[-5:]),
        "held_out": list(log.held_out[-5:]),
        "skipped": log.skipped,
    }
    plain: dict[str, Any] = _plain(about)
    return plain


def _plain(value: Any) -> Any:
    """Infinite and undefined numbers as words: JSON has none."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _commit() -> str:
    """The commit of the source, marked where files differ from it; empty outside a repository."""
    folder = Path(__file__).parent
    try:
        command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


class _Bar:
    """A progress bar, as a callback of `fit_map`."""

    def __init__(self, steps: int) -> None:
        try:
            from tqdm import tqdm
        except ImportError:
            raise ImportError("`progress` needs tqdm: `pip install amsip[train]`.") from None
        self.bar = tqdm(total=steps, unit="step", dynamic_ncols=True)

    def __call__(self, entry: Entry) -> None:
        self.bar.update(int(entry["step"]) - self.bar.n)
        self.bar.set_postfix(loss=f"{entry['loss']:.4g}", refresh=False)

    def close(self) -> None:
        self.bar.close()
