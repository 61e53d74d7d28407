"""Networks that differ in the budgets they were trained at and in nothing else, and their scores on the same seeds."""

from dataclasses import replace
from functools import cache

import torch
from torch import nn

from amsip.bandwidths import log_bandwidth
from amsip.bench.toys.fitted import BATCH, DTYPE, GAUSSIAN_STEPS, ToyTasks
from amsip.defaults import universal_map
from amsip.maps.attention import AttentionMap
from amsip.maps.base import NodeMap
from amsip.paper import arms
from amsip.paper.arms import FINETUNED, FLOOR, REWEIGHT, UNIVERSAL
from amsip.paper.base import Data, Run
from amsip.paper.toy_cells import QUICK_SETS, SETS
from amsip.paper.trained import QUICK_BATCH, QUICK_STEPS, trained_map
from amsip.problems.toys import (
    BANDWIDTH_DRAWS,
    BANDWIDTH_SEED,
    BASE_SEED,
    EVALUATION_SEED,
    Toy,
    five_modes,
    gaussian_toy,
)
from amsip.training.config import FitConfig

GAUSSIAN, MODES = "gaussian-2", "five-modes"
# what the paper's runs add to every seed of a target
SALTS = {GAUSSIAN: 7000, MODES: 14000}
TASK_SEED = BASE_SEED + 101
FULL, SUBSET, SINGLE = "full", "subset", "single-16"
# the two other single budgets tell how much of the paper's contrast is its choice of budget
NETS = {FULL: arms.BUDGETS, SUBSET: (4, 16, 64), SINGLE: (16,), "single-32": (32,), "single-64": (64,)}


@cache
def salted(name: str) -> Toy:
    """A target of this figure, its bandwidth from 4000 draws of its own seed.

    Example:
        >>> round(salted("five-modes").bandwidth, 1)
        5.0
    """
    toy = gaussian_toy(2) if name == GAUSSIAN else five_modes()
    bandwidth = float(log_bandwidth(toy.draws(BANDWIDTH_DRAWS, BANDWIDTH_SEED + SALTS[name])))
    return replace(toy, name=name, fixed_bandwidth=bandwidth)


def config_of(run: Run) -> FitConfig:
    """The same training for every network: the paper's, in single precision but for the solves."""
    if run.quick:
        return FitConfig(steps=QUICK_STEPS, lr=2e-3, dtype=DTYPE)
    return FitConfig(steps=GAUSSIAN_STEPS, dtype=DTYPE)


def sets_of(run: Run) -> int:
    """How many seed sets a cell has."""
    return QUICK_SETS if run.quick else SETS


def file_of(name: str, net: str) -> str:
    """What the weights of a network are called.

    Example:
        >>> file_of("gaussian-2", "subset")
        'resolution-gaussian-2-subset'
    """
    return f"resolution-{name}-{net}"


def network(run: Run, name: str, net: str) -> nn.Module:
    """One network: they differ in the budgets they see and in nothing else."""
    toy = salted(name)
    batch = QUICK_BATCH if run.quick else BATCH
    return trained_map(
        run,
        file_of(name, net),
        lambda: AttentionMap(toy.dim, generator=torch.Generator().manual_seed(SALTS[name])),
        ToyTasks(toy, toy.reference().embed(toy.kernel), batch=batch, budgets=NETS[net]),
        config_of(run),
        rng_seed=TASK_SEED + SALTS[name],
    )


def cell(run: Run, name: str, m: int, nets: dict[str, nn.Module]) -> Data:
    """Every network at one budget of one target, on the same seeds as floor, reweighting and per-set optimum."""
    toy = salted(name)
    seeds = toy.draws(sets_of(run) * m, EVALUATION_SEED + SALTS[name] + 1000 * m).reshape(-1, m, toy.dim)
    maps: dict[str, NodeMap | None] = {FLOOR: None, REWEIGHT: None, FINETUNED: arms.finetune, UNIVERSAL: universal_map}
    found = arms.compare(seeds, toy.reference().embed(toy.kernel), maps | nets)
    rows = []
    for arm, part in found.items():
        row = {"toy": name, **arms.summary(arm, part, found[FLOOR]["scores"])}
        if arm in nets:
            row["over_reweight"] = arms.middle(part["scores"]) / arms.middle(found[REWEIGHT]["scores"])
            row["over_full"] = arms.middle(part["scores"]) / arms.middle(found[FULL]["scores"])
            row["over_full_interval"] = list(arms.ratio_interval(part["scores"], found[FULL]["scores"]))
        rows.append(row)
    return {"rows": rows}
