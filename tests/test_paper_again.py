"""Committed numbers come out again: a few cells of each figure, chosen anew at every commit, on fresh draws."""

import json
import math
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from amsip.bench.base import commit
from amsip.paper import arms, settings, svgd_cells
from amsip.paper.architecture import compute as compute_architecture
from amsip.paper.arms import DESCENT, FINETUNED, FLOOR, REWEIGHT, UNIVERSAL
from amsip.paper.base import Data, Run, plain
from amsip.paper.line import line_toy
from amsip.paper.registry import labels
from amsip.paper.resolution import salted
from amsip.paper.results import COMMITTED
from amsip.paper.score_checks import cross_check
from amsip.paper.tomography import latents
from amsip.paper.toy_cells import BANANA, paper_toy
from amsip.problems.toys import BASE_SEED, Toy, gaussian_toy
from amsip.references.base import Embedding

FRESH_SEED, SETS, CELLS, ERRORS = BASE_SEED + 7_000_000, 64, 2, 5.0
CHEAP, ITERATING = (FLOOR, REWEIGHT), (UNIVERSAL, FINETUNED, DESCENT)
LARGEST_M, LARGEST_DIM = 16, 10
CONVERGED = 0.005
# the root of pi / 2, over the quartile distance of a standard normal
MEDIAN_ERROR = math.sqrt(math.pi / 2.0) / 1.349


class Cell(NamedTuple):
    """A committed row, and what draws and scores it."""

    row: Data
    dim: int
    draw: Callable[[int, int], Tensor]
    embedding: Callable[[], Embedding]


def toy_cell(row: Data, toy: Toy) -> Cell:
    return Cell(row, toy.dim, toy.draws, lambda: toy.reference().embed(toy.kernel))


def grouped(data: Data, toy_of: Callable[[str], Toy]) -> Iterator[Cell]:
    return (toy_cell(row, toy_of(name)) for name, rows in data["rows"].items() if name != BANANA for row in rows)


def listed(data: Data, toy_of: Callable[[str], Toy]) -> Iterator[Cell]:
    return (toy_cell(row, toy_of(row["toy"])) for row in data["rows"] if row["toy"] != BANANA)


def sampler_cells(data: Data) -> Iterator[Cell]:
    for name, rows in data["rows"].items():
        target = svgd_cells.targets()[name]

        def draw(n: int, seed: int, target: svgd_cells.Target = target) -> Tensor:
            return target.inside(target.toy.draws(n, seed))

        yield from (Cell(row, target.toy.dim, draw, target.ruler) for row in rows)


# how the rows of a figure name their target; the banana's bank of 20,000 is not cheap
ROWS: dict[str, Callable[[Data], Iterator[Cell]]] = {
    "ped-levers": lambda data: (toy_cell(row, line_toy()) for row in data["rows"]),
    "lever-split": lambda data: grouped(data, paper_toy),
    "dq-mmd": lambda data: grouped(data, paper_toy),
    "dimension-sweep": lambda data: listed(data, paper_toy),
    "dq-vs-svgd": sampler_cells,
    "dq-tomography-mmd": lambda data: grouped(data, latents().__getitem__),
    "weight-ess": lambda data: listed(data, paper_toy),
    "weight-dist": lambda data: listed(data, paper_toy),
    "dq-resolution-ablation": lambda data: listed(data, salted),
}


def committed(label: str) -> Data:
    path = COMMITTED / f"{label}.json"
    if not path.exists():
        pytest.skip(f"no committed result for {label}")
    data: Data = json.loads(path.read_text())["data"]
    return data


def affordable(cell: Cell) -> bool:
    if cell.row["arm"] in CHEAP:
        return True
    return cell.row["arm"] in ITERATING and cell.row["m"] <= LARGEST_M and cell.dim <= LARGEST_DIM


def again(cell: Cell, rng_seed: int) -> Tensor:
    """The scores of a cell on draws that no figure uses."""
    m, arm = cell.row["m"], cell.row["arm"]
    seeds = cell.draw(SETS * m, rng_seed)
    found = arms.compare(seeds.reshape(SETS, m, -1), cell.embedding(), {arm: arms.BESIDE.get(arm)})
    return found[arm]["scores"]


def standard_errors_apart(row: Data, scores: Tensor) -> float:
    """The distance of two medians over its standard error, as quartiles and numbers of sets give it."""
    low, high = row["quartiles"]
    first, third = scores.quantile(torch.tensor([0.25, 0.75], dtype=scores.dtype)).tolist()
    # a descent that always ends in one optimum has no spread but that of its last steps
    error = math.hypot(
        CONVERGED * row["median"], (high - low) / math.sqrt(row["sets"]), (third - first) / math.sqrt(len(scores))
    )
    return abs(float(arms.middle(scores)) - row["median"]) / (MEDIAN_ERROR * error)


@pytest.mark.parametrize("label", labels())
def test_a_few_cells_come_out_again(label):
    if label not in ROWS:
        pytest.skip(f"nothing in {label} is both cheap and random")
    cells = [cell for cell in ROWS[label](committed(label)) if affordable(cell)]
    chosen = random.Random(f"{commit()} {label}")
    for cell in chosen.sample(cells, min(CELLS, len(cells))):
        apart = standard_errors_apart(cell.row, again(cell, FRESH_SEED + chosen.randrange(10**6)))
        assert apart < ERRORS, f"{label}: {cell.row['arm']} at M = {cell.row['m']} is {apart:.1f} standard errors off"


def test_a_cell_that_is_wrong_is_noticed():
    toy = gaussian_toy(2)
    cell = toy_cell({"arm": FLOOR, "m": 16}, toy)
    scores = again(cell, FRESH_SEED)
    quartiles = scores.quantile(torch.tensor([0.25, 0.75], dtype=scores.dtype)).tolist()
    row = {"median": float(arms.middle(scores)), "quartiles": quartiles, "sets": 256}
    assert standard_errors_apart(row, again(cell, FRESH_SEED + 1)) < ERRORS
    assert standard_errors_apart({**row, "median": 1.4 * row["median"]}, scores) > ERRORS


def test_the_settings_are_those_of_the_code():
    data = committed("repro")
    assert data["rows"] == plain(settings.setting_rows())
    assert data["parameters"] == {line.name: settings.parameters(line) for line in settings.TABLE}
    name = random.Random(f"{commit()}").choice(sorted(set(data["cross_check"]) - {"tomography-7"}))
    assert cross_check(paper_toy(name)) < 1e-12


def test_the_network_does_what_it_did(tmp_path):
    data = committed("architecture")
    found = plain(compute_architecture(Run(False, tmp_path, lambda line: None)))
    assert found["parameters"] == data["parameters"]
    assert [row["untrained"] for row in found["rows"]] == [row["untrained"] for row in data["rows"]]
    moved = [(new["moved"], old["moved"]) for new, old in zip(found["rows"], data["rows"], strict=True)]
    assert all(new == pytest.approx(old, rel=1e-3) for new, old in moved)
