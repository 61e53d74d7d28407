"""One toy, one arm, one budget: the cell that several figures share, kept on disk once it is measured."""

import dataclasses
from collections.abc import Sequence
from functools import lru_cache, partial

from jaxtyping import Float
from torch import Tensor

from amsip.bandwidths import median_bandwidth
from amsip.bench.toys.measure import bench_toys
from amsip.maps.base import NodeMap
from amsip.paper import arms
from amsip.paper.base import Data, Run
from amsip.paper.parts import kept
from amsip.paper.trained import toy_digest, toy_map
from amsip.pretrained import load_card
from amsip.problems.toys import BANANA_BANK, BANDWIDTH_DRAWS, BANDWIDTH_SEED, Toy, banana
from amsip.references.base import Embedding
from amsip.rules import Rule

SETS, QUICK_SETS = 256, 16
QUICK_BUDGETS = (4, 16)
# on a bank of 20,000 atoms and in many dimensions, the arms that iterate are scored on the first of the sets
FEW_SETS, DEAR_DIM = 64, 16
DEAR = (arms.FINETUNED, arms.UNIVERSAL, arms.DESCENT)
MEDIAN = "-median"
# what every margin of the toys is relative to
MEANS = f"Kernel means exact (banana: one bank of {BANANA_BANK:,} draws for mean, self-affinity and score)."
POOL = (
    f"{MEANS} {SETS} seed sets, {FEW_SETS} for the dear arms of the banana and beyond d = {DEAR_DIM}; one training, "
    "seed 0 as in the table."
)
BANANA, QUICK_BANANA, QUICK_BANK = "banana", "banana-quick", 1000


@lru_cache
def paper_toy(name: str) -> Toy:
    """A toy as the figures score it: the banana with its whole bank; `NAME-median` has the plain median as bandwidth.

    Example:
        >>> paper_toy("gaussian-2-median").bandwidth > 4 * paper_toy("gaussian-2").bandwidth
        True
    """
    if name in (BANANA, QUICK_BANANA):
        return banana(BANANA_BANK if name == BANANA else QUICK_BANK)
    if name.endswith(MEDIAN):
        toy = paper_toy(name.removesuffix(MEDIAN))
        draws = toy.draws(BANDWIDTH_DRAWS, BANDWIDTH_SEED)
        return dataclasses.replace(toy, name=name, fixed_bandwidth=float(median_bandwidth(draws)))
    return bench_toys()[name]


@lru_cache(maxsize=4)
def embedding_of(name: str) -> Embedding:
    """The embedding of a toy, with its constant worked out once."""
    toy = paper_toy(name)
    embedding = toy.reference().embed(toy.kernel)
    # for atoms it is costly, and every arm is scored with it
    _ = embedding.energy
    return embedding


def target(run: Run, name: str) -> tuple[Toy, Embedding]:
    """A toy and its embedding; in a quick run the banana is a small bank."""
    own = QUICK_BANANA if run.quick and name == BANANA else name
    return paper_toy(own), embedding_of(own)


def budgets_of(run: Run) -> tuple[int, ...]:
    """The values of M."""
    return QUICK_BUDGETS if run.quick else arms.BUDGETS


def toy_rows(run: Run, name: str, names: Sequence[str], budgets: Sequence[int] = ()) -> list[Data]:
    """A row for each arm at each budget.

    Arguments:
        run: Where cells and maps are kept.
        name: The toy, see `paper_toy`.
        names: Arms.
        budgets: The values of M; `budgets_of(run)` when empty.

    Returns:
        Rows as `amsip.paper.arms.summary` gives them, with the toy's name and the share of variance that is kept.
    """
    rows = []
    for m in budgets or budgets_of(run):
        for arm in names:
            compute = partial(_cell, run, name, arm, m)
            rows.append(kept(run, f"{name}-{m:03d}-{arm}", _stamp(run, name, arm), compute))
        run.report(f"{name}, M = {m}: done")
    return rows


def node_map_of(run: Run, name: str, arm: str) -> NodeMap | None:
    """The map of an arm on a toy; None where nodes are not moved."""
    if arm == arms.WARM:
        return toy_map(run, name)
    return arms.BESIDE.get(arm)


def sets_of(run: Run, name: str, arm: str) -> int:
    """How many seed sets an arm is scored on."""
    if run.quick:
        return QUICK_SETS
    return FEW_SETS if arm in DEAR and (name == BANANA or paper_toy(name).dim > DEAR_DIM) else SETS


def variance_share(
    nodes: Float[Tensor, "r m d"], weights: Float[Tensor, "r m"], cov: Float[Tensor, "d d"]
) -> Float[Tensor, "r"]:
    """The trace of a rule's covariance over that of its reference; 1 where the spread is right.

    Example:
        >>> variance_share(torch.tensor([[[-1.0], [1.0]]]), torch.tensor([[0.5, 0.5]]), torch.eye(1)).item()
        1.0
    """
    return Rule(nodes, weights).cov().diagonal(dim1=-2, dim2=-1).sum(-1) / cov.trace()


def _cell(run: Run, name: str, arm: str, m: int) -> Data:
    toy, embedding = target(run, name)
    seeds = toy.seed_sets(m, SETS)[: sets_of(run, name, arm)]
    found = arms.compare(seeds, embedding, {arms.FLOOR: None, arm: node_map_of(run, name, arm)})
    share = variance_share(found[arm]["nodes"], found[arm]["weights"], toy.reference().moments()[1])
    row = arms.summary(arm, found[arm], found[arms.FLOOR]["scores"])
    return {"toy": name, **row, "variance": share.median()}


def _stamp(run: Run, name: str, arm: str) -> Data:
    stamp: Data = {"sets": sets_of(run, name, arm), "bandwidth": paper_toy(name).bandwidth}
    if arm == arms.WARM:
        toy_map(run, name)
        stamp["map"] = toy_digest(run, name)
    if arm == arms.UNIVERSAL:
        stamp["map"] = load_card("universal").sha256
    return stamp
