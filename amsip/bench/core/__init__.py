"""What the mathematics alone reaches: floor, reweighting and per-query optimum against known values, and two descents.

    amsip bench core
    amsip bench core --quick
    amsip bench core --json core.json --pages docs
    amsip bench core --from core.json --pages docs

First table: on every target the ratios to the Monte Carlo floor, beside values measured beforehand and independently.
Second table: the descent that cannot climb against the paper's iteration, on a sharp Nadaraya-Watson reference.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from amsip._disk import write_atomically
from amsip.bench.base import record
from amsip.bench.core import page, sharp
from amsip.bench.core.anchors import ANCHORS, Anchor
from amsip.bench.core.page import render as render
from amsip.discrepancy import mmd2
from amsip.maps.optimum import AdamDescent
from amsip.problems import toys
from amsip.references.base import Embedding
from amsip.weights import optimal_weights, uniform_weights

RESAMPLES = 400
# above this the ridge of the weight solve, not the kernel, decides the smallest scores
CONDITION_LIMIT = 1e12
QUICK_TARGETS = ("gaussian-2", "gaussian-8", "mixture-10")
QUICK_BUDGETS, QUICK_SETS, QUICK_CASES = (4, 8), 32, 10
CASES = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> add_arguments(parser)
        >>> parser.parse_args(["--quick"]).quick
        True
    """
    parser.description = "Floor, reweight and optimum against known values; the two descents on a sharp reference."
    parser.add_argument("--quick", action="store_true", help="three targets, two budgets, ten descents")
    parser.add_argument("--from", dest="earlier", type=Path, metavar="FILE", help="show an earlier result instead")
    parser.add_argument("--pages", type=Path, metavar="DIR", help="write core.md here")


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Both measurements, or those of an earlier run, and the page where asked."""
    result = _measured(bool(arguments.quick)) if arguments.earlier is None else _read(arguments.earlier)
    if arguments.pages is not None:
        write_atomically(arguments.pages / "core.md", page.page(result).encode())
    return result


def _read(path: Path) -> dict[str, object]:
    result: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return result


def _measured(quick: bool) -> dict[str, object]:
    started = time.perf_counter()
    ratios = [row for name in (QUICK_TARGETS if quick else ANCHORS) for row in _ratios(name, quick)]
    body = {"ratios": ratios, "descents": sharp.compare(QUICK_CASES if quick else CASES)}
    return record(f"python -m amsip bench core{' --quick' if quick else ''}", started, body)


def _ratios(name: str, quick: bool) -> Iterator[dict]:
    anchor = ANCHORS[name]
    embedding, toy, offset = _target(name)
    for m in anchor.medians:
        if quick and m not in QUICK_BUDGETS:
            continue
        seeds = toy.seed_sets(m, QUICK_SETS if quick else anchor.sets)
        scores = offset + _scores(seeds, embedding)
        sys.stderr.write(f"{name}, M = {m}\n")
        yield _row(name, m, anchor, float(embedding.energy) + offset, scores)


def _target(name: str) -> tuple[Embedding, toys.Toy, float]:
    """The embedding, the seeds' toy, and what the known values add to every score."""
    if name == "banana":
        # the known values take the kernel mean from 4000 rows and the self-affinity from all 20000
        full, part = toys.banana(), toys.banana(toys.BANANA_TRAINING_BANK)
        embedding = part.reference().embed(part.kernel)
        return embedding, part, float(full.reference().embed(full.kernel).energy - embedding.energy)
    plain = name.removesuffix("-whitened")
    toy = next(t for t in (*toys.paper_toys(), toys.tomography_latent(), toys.five_modes()) if t.name == plain)
    toy = toy.whitened() if plain != name else toy
    return toy.reference().embed(toy.kernel), toy, 0.0


def _scores(seeds: Float[Tensor, "r m d"], embedding: Embedding) -> Float[Tensor, "3 r"]:
    """Floor, reweight and optimum of every seed set."""
    moved = AdamDescent(steps=150, rate=0.05)(seeds, embedding)
    rules = [(seeds, uniform_weights(seeds)), *((z, optimal_weights(z, embedding)) for z in (seeds, moved))]
    return torch.stack([mmd2(z, w, embedding) for z, w in rules])


def _row(name: str, m: int, anchor: Anchor, energy: float, scores: Float[Tensor, "3 r"]) -> dict:
    floor, *known = anchor.medians[m]
    medians = scores.quantile(0.5, -1)
    row = {"target": name, "m": m, "sets": scores.shape[-1], "energy": energy, "known_energy": anchor.energy}
    row |= {"floor": float(medians[0]), "floor_mean": float(scores[0].mean())}
    row["floor_mean_in_theory"] = (1.0 - energy) / m
    for arm, value, score in zip(page.ARMS, known, scores[1:], strict=True):
        error = _error_of_ratio(score, scores[0])
        # both sides are medians of samples: the known one over its own number of sets
        both = error * math.sqrt(1.0 + scores.shape[-1] / anchor.sets)
        ratio = float(score.quantile(0.5) / medians[0])
        row[arm] = {"ratio": ratio, "known": value / floor, "error": error, "z": (ratio - value / floor) / both}
    row["ridge_decides"] = anchor.condition.get(m, 1.0) > CONDITION_LIMIT
    return row


def _error_of_ratio(score: Float[Tensor, "r"], floor: Float[Tensor, "r"]) -> float:
    """The bootstrap standard error of a ratio of medians, sets resampled in pairs."""
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(len(score), (RESAMPLES, len(score)), generator=generator)
    return float((score[index].quantile(0.5, -1) / floor[index].quantile(0.5, -1)).std())
