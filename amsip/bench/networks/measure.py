"""One row of the comparison: train a design, send it over the held-out posteriors, time one pass."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from amsip._disk import write_atomically
from amsip.bench.networks.heldout import HeldOut
from amsip.bench.networks.variants import BASE, NONE, SHIPPED, VARIANTS, Variant
from amsip.bench.timing import milliseconds
from amsip.defaults import shipped_network, whitened_kernel
from amsip.maps.base import NodeMap
from amsip.maps.catalogue import build_map
from amsip.pretrained import load_card, load_map
from amsip.references.base import Embedding
from amsip.training.runs import train_run
from amsip.training.universal import random_pool

STEPS = (0, 3, 8)
# what the seeds reach alone in so many steps: the yardstick of every row
LONG = 60
TIMED = (10, 32, 9)

Cell = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One row: a design to train, or one of the two rows that need no training.

    Arguments:
        name: A variant's name, `SHIPPED` or `NONE`.
        steps: Training steps.
        held_out: What it is scored on.
        folder: Where cells and weights are kept.

    Example:
        >>> Job(NONE, 5, HeldOut(), Path("x")).path.name
        'no-network.json'
    """

    name: str
    steps: int
    held_out: HeldOut
    folder: Path

    @property
    def path(self) -> Path:
        """The file of the finished cell."""
        return self.folder / f"{Variant(self.name).slug}.json"

    @property
    def variant(self) -> Variant | None:
        """The design to train, if it is one."""
        return next((variant for variant in VARIANTS if variant.name == self.name), None)

    @property
    def stamp(self) -> dict[str, Any]:
        """What a finished cell must share with this job to be taken for it."""
        made: Any = {NONE: LONG, SHIPPED: load_card("universal").sha256}.get(self.name)
        if self.variant is not None:
            made = asdict(self.variant.configuration(self.steps, Path()))
        # through JSON, where tuples are lists
        stamp: dict[str, Any] = json.loads(json.dumps({"held_out": asdict(self.held_out), "made": made}))
        return stamp

    def finished(self) -> Cell | None:
        """The cell, if it is there and still of this job."""
        if not self.path.exists():
            return None
        cell: Cell = json.loads(self.path.read_text())
        return cell if cell["stamp"] == self.stamp else None


def measure(job: Job) -> Cell:
    """The cell of a job, read or made."""
    cell = job.finished()
    if cell is None:
        about, network = _made(job)
        steps = (*STEPS, LONG) if job.name == NONE else STEPS
        scores = [
            {"place": problem.place, "kernel": problem.kernel, "scores": problem.scores(network, steps)}
            for problem in job.held_out.problems()
        ]
        cell = {"name": job.name, "stamp": job.stamp, **about, "scores": scores}
        write_atomically(job.path, json.dumps(cell).encode())
    return cell


def _made(job: Job) -> tuple[Cell, NodeMap]:
    """The map of a job, trained where there is something to train, and what is said about it."""
    if job.name == NONE:
        return {"parameters": 0, "steps": 0, "seconds": 0.0, "skipped": 0, "pass": 0.0}, _still
    if job.variant is None:
        card, network = load_card("universal"), shipped_network(torch.float64)
        about: Cell = {"steps": card.about["steps"], "seconds": None, "skipped": card.about["skipped"]}
        return {**about, "parameters": card.parameters, "pass": pass_ratio(network)}, network
    configuration = job.variant.configuration(job.steps, job.folder)
    started = time.process_time()
    log = train_run(configuration, "amsip bench networks", resume=False)
    seconds = round(time.process_time() - started, 1)
    # as it would be shipped: read from disk, in the precision of the file
    network = load_map(configuration.output).to(torch.float64)
    parameters = sum(p.numel() for p in network.parameters())
    about = {"steps": log.steps, "seconds": seconds, "skipped": log.skipped}
    return {**about, "parameters": parameters, "pass": pass_ratio(network)}, network


def _still(nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> Float[Tensor, "*q m d"]:
    return nodes


def pass_ratio(network: nn.Module) -> float:
    """The time of one pass, as a ratio to the base's: both are timed here and now.

    Example:
        >>> 0.05 < pass_ratio(build_map("unrolled", {"layers": 2, "width": 8}).double()) < 0.95
        True
    """
    base = VARIANTS[0]
    assert base.name == BASE
    settings = {k: v for k, v in base.configuration(1, Path()).map.items() if k not in ("kind", "rng_seed")}
    standard = build_map("unrolled", settings, generator=torch.Generator()).to(torch.float64)
    own, reference = (milliseconds(_pass_of(each), repeats=TIMED[2]) for each in (network, standard))
    return own / reference


def _pass_of(network: nn.Module) -> Callable[[], object]:
    nodes, embedding = _timed()

    def call() -> None:
        with torch.no_grad():
            network(nodes, embedding)

    call()
    return call


@lru_cache(maxsize=1)
def _timed() -> tuple[Float[Tensor, "q m d"], Embedding]:
    dim, m, _ = TIMED
    pool = random_pool(1, dim, torch.Generator().manual_seed(0))
    return pool.atoms[:, :m], pool.embed(whitened_kernel(dim))
