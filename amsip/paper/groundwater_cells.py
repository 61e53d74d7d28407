"""The arms on the held-out groundwater queries: one cell a reading and a budget, kept on disk once it is measured."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.maps.base import NodeMap
from amsip.maps.descent import Descent
from amsip.paper import arms
from amsip.paper.base import Data, Run
from amsip.paper.groundwater import Groundwater, groundwater_map, seed_sets
from amsip.paper.parts import kept
from amsip.paper.trained import weights_file
from amsip.pretrained import load_card
from amsip.references.base import Embedding
from amsip.references.samples import Samples

SETS, QUICK_SETS = 8, 2
QUICK_BUDGETS = (4, 16)
# Newton's model sums a Hessian over twenty thousand atoms for every node; twice the steps without it cost a tenth
BESIDE: Mapping[str, NodeMap] = {**arms.BESIDE, arms.DESCENT: Descent(steps=60, newton=False)}


def reading_rows(run: Run, ground: Groundwater, reading: str) -> list[Data]:
    """A row for each arm at each budget, under one reading of the observation bandwidth.

    Every query has its seed sets; the arms that iterate are scored on the first set of each.

    Arguments:
        run: Quick or not, and where parts are kept.
        ground: The bank.
        reading: Which conditional.
    """
    net = groundwater_map(run, ground, reading)
    sets = QUICK_SETS if run.quick else SETS
    digest = load_card(weights_file(run, f"darcy-{reading}")).sha256
    posterior = ground.posterior(reading)
    embedding = posterior.embed(ground.kernel)
    rows: list[Data] = []
    for m in QUICK_BUDGETS if run.quick else arms.BUDGETS:
        stamp = {"m": m, "sets": sets, "queries": ground.sizes.held_out, "atoms": ground.sizes.atoms, "map": digest}

        def compute(m: int = m) -> Data:
            run.report(f"groundwater, {reading} reading, M = {m}")
            return {"rows": cell(posterior, embedding, seed_sets(posterior, m, sets), {arms.WARM: net})}

        rows += kept(run, f"darcy-{reading}-{m}", stamp, compute)["rows"]
    return rows


def cell(
    posterior: Samples,
    embedding: Embedding,
    seeds: Float[Tensor, "q sets m r"],
    maps: Mapping[str, NodeMap],
    beside: Mapping[str, NodeMap] = BESIDE,
) -> list[Data]:
    """All arms on the same seeds, a batch of queries at a time; intervals resample queries, not sets.

    Arguments:
        posterior: The measure of every query.
        embedding: Its embedding.
        seeds: The seed sets of every query.
        maps: Arms of one pass, scored on all sets.
        beside: Arms that iterate, scored on the first set.
    """
    queries = len(seeds)
    passes: dict[str, NodeMap | None] = {arms.FLOOR: None, arms.REWEIGHT: None, **maps}
    parts = [_compared(column, embedding, passes) for column in seeds.unbind(1)]
    # set by set, so that the first entries of every arm are the same sets
    found = {
        arm: {key: torch.cat([part[arm][key] for part in parts]) for key in ("scores", "weights")} for arm in passes
    }
    found |= _compared(seeds[:, 0], embedding, beside)
    floor = found[arms.FLOOR]["scores"]
    rows = []
    for arm, part in found.items():
        row = arms.summary(arm, part, floor)
        row["ratio_interval"] = list(query_interval(part["scores"], floor[: len(part["scores"])], queries))
        rows.append(row | {"sets": len(part["scores"]), "queries": queries})
    rows[0]["repeated"] = repeated_share(seeds)
    return rows


def query_interval(above: Float[Tensor, "r"], below: Float[Tensor, "r"], queries: int) -> tuple[float, float]:
    """A 95% interval for the ratio of medians when queries are drawn anew, with all their sets.

    Example:
        >>> scores = torch.linspace(1.0, 2.0, 60)
        >>> [round(value, 3) for value in query_interval(0.5 * scores, scores, 20)]
        [0.5, 0.5]
    """
    rows = torch.randint(queries, (arms.RESAMPLES, queries), generator=torch.Generator().manual_seed(0))
    medians = [arms.middle(scores.reshape(-1, queries).mT[rows].flatten(1)) for scores in (above, below)]
    tails = torch.tensor([(1.0 - arms.LEVEL) / 2.0, (1.0 + arms.LEVEL) / 2.0], dtype=above.dtype)
    low, high = (medians[0] / medians[1]).quantile(tails).tolist()
    return low, high


def repeated_share(seeds: Float[Tensor, "*q m r"]) -> float:
    """The share of seeds that repeat an earlier one of their set: drawing with replacement makes the Gram singular.

    Example:
        >>> repeated_share(torch.tensor([[[0.0], [1.0], [0.0], [2.0]]]))
        0.25
    """
    same = (seeds[..., :, None, 0] == seeds[..., None, :, 0]).tril(-1)
    return float(same.any(-1).double().mean())


def ratios(rows: Sequence[Data], arm: str) -> list[float]:
    """The ratios to the floor of an arm, budget by budget.

    Example:
        >>> ratios([{"arm": "warm", "m": 8, "ratio": 0.5}, {"arm": "warm", "m": 4, "ratio": 0.9}], "warm")
        [0.9, 0.5]
    """
    return [row["ratio"] for row in sorted(rows, key=lambda row: row["m"]) if row["arm"] == arm]


def _compared(
    seeds: Float[Tensor, "q m r"], embedding: Embedding, maps: Mapping[str, NodeMap | None]
) -> dict[str, Data]:
    """`arms.compare`, which splits sets of one query but must not split queries."""
    if len(seeds) > arms.CHUNK:
        raise ValueError(f"At most {arms.CHUNK} queries are compared at once: got {len(seeds)}.")
    return arms.compare(seeds, embedding, maps)
