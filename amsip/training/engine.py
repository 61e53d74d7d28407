"""The training loop: one for every map, loss and task."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from amsip import _checks
from amsip.training import parallel
from amsip.training.checkpoint import load_checkpoint, save_checkpoint
from amsip.training.config import FitConfig
from amsip.training.log import Entry, LogFile, TrainLog
from amsip.training.losses import Loss, SquaredDiscrepancy
from amsip.training.tasks import Task, Tasks

DEFAULT_CONFIG = FitConfig()
DEFAULT_LOSS = SquaredDiscrepancy()
LONGEST_EMA_START = 10.0


def fit_map(
    node_map: nn.Module,
    tasks: Tasks | Iterable[Task],
    config: FitConfig = DEFAULT_CONFIG,
    *,
    loss: Loss = DEFAULT_LOSS,
    held_out: Sequence[Task] = (),
    generator: torch.Generator | None = None,
    callback: Callable[[Entry], None] | None = None,
) -> TrainLog:
    """Fits the parameters of a map, in place.

    With `config.checkpoint` a run that was killed continues where its last checkpoint was, bit for bit (given tasks
    that depend on the generator alone). Under `torchrun`, with the process group joined, every rank draws its own
    tasks and gradients are averaged. The map ends with its best parameters on the held-out tasks if there are any,
    else with their moving average if `config.ema` asks for one, else with the last ones.

    Arguments:
        node_map: A NodeMap that is a torch module; tasks with an observation go through its `given`.
        tasks: From a generator to a task, called once a step; or an iterable of tasks.
        config: How to fit.
        loss: From nodes and task to a scalar.
        held_out: Tasks for early stopping.
        generator: Draws the tasks.
        callback: Called after each step with its number, loss and learning rate.

    Returns:
        The record of the fit.

    Raises:
        NumericalError: More than `config.max_skipped` steps had a failed solve or a non-finite gradient.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> from amsip.maps.attention import AttentionMap
        >>> from amsip.training import ReferenceTasks
        >>> draws = torch.randn(100, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> tasks = ReferenceTasks(Samples(draws), SquaredExponential(0.5), budgets=(4, 8), batch=5)
        >>> fit_map(AttentionMap(2, width=8), tasks, FitConfig(steps=3), generator=torch.Generator()).steps
        3
    """
    if generator is None:
        generator = torch.Generator()
        generator.seed()
    run = _Run(node_map, config, loss, generator, held_out)
    draw = tasks if callable(tasks) else _in_turn(tasks)
    file = LogFile(config.log, config.tensorboard, run.step) if parallel.rank() == 0 else LogFile("", "", 0)
    try:
        while not run.ended():
            entry = run.advance(draw)
            if callback is not None:
                callback(entry)
            run.report(file)
    finally:
        file.close()
    return run.finish()


class _Run:
    """Everything a fit carries from step to step, and to disk."""

    def __init__(
        self, node_map: nn.Module, config: FitConfig, loss: Loss, generator: torch.Generator, held_out: Sequence[Task]
    ) -> None:
        if config.dtype:
            node_map.to(getattr(torch, config.dtype))
        self.map, self.config, self.loss, self.generator = node_map.train(), config, loss, generator
        self.parameters = [p for p in node_map.parameters() if p.requires_grad]
        _checks.trainable(len(self.parameters))
        self.optimiser = torch.optim.Adam(self.parameters, lr=config.lr, fused=True)
        self.held_out = held_out
        self.step, self.skipped, self.stale = 0, 0, 0
        self.late, self.due, self.reason = False, False, ""
        self.window: list[float] = []
        self.losses: list[float] = []
        self.scores: list[float] = []
        self.best = math.inf
        self.ema: dict[str, Tensor] = self._copy() if config.ema else {}
        self.best_state: dict[str, Tensor] = {}
        self.before, self.start, self.saved = 0.0, time.monotonic(), time.monotonic()
        self._resume()
        self.late = self.before > config.max_seconds

    @property
    def seconds(self) -> float:
        """Wall time spent so far, earlier runs included."""
        return self.before + time.monotonic() - self.start

    def ended(self) -> str:
        """Why the fit is over, or nothing."""
        if self.step >= self.config.steps:
            return "steps"
        if self.late:
            return "time"
        return "patience" if 0 < self.config.patience <= self.stale else ""

    def advance(self, draw: Tasks) -> Entry:
        """One gradient step."""
        rate = self.config.rate(self.step)
        value, failed = self._gradients(draw(self.generator))
        value, self.late, due = self._agree(value, failed)
        if math.isfinite(value):
            for group in self.optimiser.param_groups:
                group["lr"] = rate
            self.optimiser.step()
            self._average()
            self.window.append(value)
        else:
            self.skipped += 1
            _checks.finite_loss(self.step, self.skipped, self.config.max_skipped, self.reason)
        self.step += 1
        self.due = due
        return {"step": self.step, "loss": value, "lr": rate}

    def report(self, file: LogFile) -> None:
        """What is due after a step: an entry of the log, an evaluation, a checkpoint."""
        check = bool(self.held_out) and self.step % self.config.check_every == 0
        if check:
            self._check()
        over = bool(self.ended())
        if self.held_out and over and not check:
            self._check()
        if self.window and (over or self.step % self.config.log_every == 0):
            self.losses.append(sum(self.window) / len(self.window))
            self.window = []
            rate = self.config.rate(self.step - 1)
            file.write({"step": self.step, "loss": self.losses[-1], "lr": rate, "seconds": round(self.seconds, 3)})
        if self.held_out and (check or over):
            file.write({"step": self.step, "held_out": self.scores[-1]})
        if self.due or over:
            self.save()

    def finish(self) -> TrainLog:
        """The record, once the map has its final parameters."""
        final = self.best_state or self.ema
        if final:
            self.map.load_state_dict(final)
        self.map.eval()
        best = self.best if self.held_out else min(self.losses, default=math.inf)
        return TrainLog(
            self.step, self.seconds, tuple(self.losses), tuple(self.scores), best, self.skipped, self.ended()
        )

    def save(self) -> None:
        """A checkpoint, written by the first rank with the generators of all."""
        states = parallel.gathered(self.generator.get_state())
        self.saved = time.monotonic()
        if not self.config.checkpoint or parallel.rank() > 0:
            return
        tensors = {f"generator.{rank}": state for rank, state in enumerate(states)}
        groups = {"map": self.map.state_dict(), "ema": self.ema, "best": self.best_state}
        for group, state in groups.items():
            tensors.update({f"{group}.{name}": value for name, value in state.items()})
        for index, moments in self.optimiser.state_dict()["state"].items():
            tensors.update({f"optimiser.{index}.{name}": value for name, value in moments.items()})
        save_checkpoint(Path(self.config.checkpoint), tensors, self._counters())

    def _gradients(self, task: Task) -> tuple[float, bool]:
        """The loss, its gradient left on the parameters, and whether either failed."""
        self.optimiser.zero_grad(set_to_none=True)
        try:
            value = self.loss(self._path(task) if self.config.every_layer else self._move(task), task)
            value.backward()
        except _checks.NumericalError as error:
            self.reason = str(error)
            return math.nan, True
        return value.item(), False

    def _agree(self, value: float, failed: bool) -> tuple[float, bool, bool]:
        """Averages gradients and losses over ranks, clips, and lets all ranks decide alike what happens next."""
        votes = [0.0 if failed else value, failed, self.seconds > self.config.max_seconds, self._checkpoint_due()]
        pieces = [torch.zeros_like(p) if failed or p.grad is None else p.grad for p in self.parameters]
        flat = torch.cat([*(g.reshape(-1) for g in pieces), torch.tensor(votes).to(pieces[0])])
        total = parallel.summed(flat) / parallel.size()
        gradient, (mean, failures, late, due) = total[: -len(votes)], total[-len(votes) :].tolist()
        norm = gradient.norm().item()
        scale = min(1.0, self.config.clip / norm) if norm > 0 else 1.0
        if failures > 0 or not math.isfinite(norm):
            return math.nan, late > 0, due > 0
        if parallel.size() > 1 or scale < 1.0:
            chunks = (gradient * scale).split([p.numel() for p in self.parameters])
            for p, chunk in zip(self.parameters, chunks, strict=True):
                p.grad = chunk.view_as(p)
        return (value if parallel.size() == 1 else mean), late > 0, due > 0

    def _checkpoint_due(self) -> bool:
        if not self.config.checkpoint or parallel.rank() > 0:
            return False
        every = self.config.checkpoint_steps
        if every and (self.step + 1) % every == 0:
            return True
        return time.monotonic() - self.saved > self.config.checkpoint_seconds

    def _move(self, task: Task) -> Tensor:
        node_map: Any = self.map if task.observation is None else self.map.given(task.observation)  # type: ignore[operator]
        return node_map(task.seeds, task.embedding)

    def _path(self, task: Task) -> Tensor:
        node_map: Any = self.map
        return node_map.path(task.seeds, task.embedding)

    def _average(self) -> None:
        """The moving average, shorter at the beginning so that it forgets the untrained parameters."""
        if not self.config.ema:
            return
        decay = min(self.config.ema, (1.0 + self.step) / (LONGEST_EMA_START + self.step))
        for name, value in self.map.state_dict().items():
            if value.is_floating_point():
                self.ema[name].lerp_(value.detach(), 1.0 - decay)
            else:
                self.ema[name].copy_(value)

    def _check(self) -> None:
        """The loss on the held-out tasks, with the parameters the fit would end with."""
        with torch.no_grad(), self._using(self.ema):
            try:
                score = sum(self.loss(self._move(task), task).item() for task in self.held_out) / len(self.held_out)
            except _checks.NumericalError:
                score = math.inf
        self.scores.append(score)
        self.stale += 1
        if score < self.best:
            self.best, self.stale = score, 0
            self.best_state = {k: v.clone() for k, v in (self.ema or self._copy()).items()}

    @contextmanager
    def _using(self, state: dict[str, Tensor]) -> Iterator[None]:
        current = self._copy()
        self.map.load_state_dict(state or current)
        self.map.eval()
        try:
            yield
        finally:
            self.map.load_state_dict(current)
            self.map.train()

    def _copy(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.map.state_dict().items()}

    def _counters(self) -> dict[str, Any]:
        lists = {"window": self.window, "losses": self.losses, "scores": self.scores}
        counts = {"step": self.step, "skipped": self.skipped, "stale": self.stale, "best": self.best}
        return {**lists, **counts, "seconds": self.seconds, "ranks": parallel.size()}

    def _resume(self) -> None:
        path = Path(self.config.checkpoint)
        if self.config.checkpoint and path.exists():
            tensors, counters = load_checkpoint(path)
            _checks.one_of("the number of processes", parallel.size(), [counters["ranks"]])
            for name in ("window", "losses", "scores", "step", "skipped", "stale", "best"):
                setattr(self, name, counters[name])
            self.before = counters["seconds"]
            self._restore(path, tensors)
            return
        parallel.share([value.detach() for value in self.map.state_dict().values()])
        parallel.own_stream(self.generator)

    def _restore(self, path: Path, tensors: dict[str, Tensor]) -> None:
        found = {name.removeprefix("map."): value for name, value in tensors.items() if name.startswith("map.")}
        _checks.fitting(path, list(self.map.state_dict()), list(found))
        self.map.load_state_dict(found)
        for group, state in (("ema.", self.ema), ("best.", self.best_state)):
            state.update({k.removeprefix(group): v for k, v in tensors.items() if k.startswith(group)})
        saved = self.optimiser.state_dict()
        for name in (key for key in tensors if key.startswith("optimiser.")):
            _, index, moment = name.split(".")
            saved["state"].setdefault(int(index), {})[moment] = tensors[name]
        self.optimiser.load_state_dict(saved)
        self.generator.set_state(tensors[f"generator.{parallel.rank()}"])


def _in_turn(tasks: Iterable[Task]) -> Tasks:
    """Tasks one after the other; the generator has nothing to draw."""
    following = iter(tasks)
    return lambda generator: _checks.one_more("tasks", following)
