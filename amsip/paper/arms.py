"""The arms of the paper's figures on the same seeds: scores with their quartiles, and how the weights behave."""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.defaults import universal_map
from amsip.discrepancy import mmd2
from amsip.maps.base import NodeMap
from amsip.maps.descent import Descent
from amsip.maps.optimum import AdamDescent
from amsip.paper.base import Data
from amsip.references.base import Embedding
from amsip.weights import optimal_weights, uniform_weights

FLOOR, REWEIGHT, WARM, FINETUNED = "floor", "reweight", "warm", "finetuned"
UNIVERSAL, DESCENT = "universal", "descent"
BUDGETS = (4, 8, 16, 32, 64)
CHUNK = 64
QUARTILES = (0.25, 0.5, 0.75)
RESAMPLES = 1000
LEVEL = 0.95

# the paper's per-set optimum, and what stands beside it here: no training, no rate to choose
finetune = AdamDescent(steps=150, rate=0.05)
descend = Descent(steps=30)
BESIDE: Mapping[str, NodeMap] = {FINETUNED: finetune, UNIVERSAL: universal_map, DESCENT: descend}

Seeds = Callable[[int], Float[Tensor, "r m d"]]


def moved(
    node_map: NodeMap, seeds: Float[Tensor, "r m d"], embedding: Embedding, chunk: int = CHUNK
) -> Float[Tensor, "r m d"]:
    """A map on many seed sets, some at a time; the embedding serves all of them.

    Example:
        >>> from amsip import Gaussian, SquaredExponential
        >>> embedding = Gaussian(torch.zeros(1), torch.eye(1)).embed(SquaredExponential(1.0))
        >>> moved(lambda nodes, embedding: nodes + 1.0, torch.zeros(3, 2, 1), embedding).sum().item()
        6.0
    """
    with torch.no_grad():
        return torch.cat([node_map(part, embedding) for part in seeds.split(chunk)])


def weights_of(arm: str, nodes: Float[Tensor, "r m d"], embedding: Embedding) -> Float[Tensor, "r m"]:
    """Equal weights for the floor, optimal ones for every other arm."""
    if arm == FLOOR:
        return uniform_weights(nodes)
    return torch.cat([optimal_weights(part, embedding) for part in nodes.split(CHUNK)])


def scores_of(nodes: Float[Tensor, "r m d"], weights: Float[Tensor, "r m"], embedding: Embedding) -> Float[Tensor, "r"]:
    """The squared discrepancy of every set, in bounded memory."""
    pairs = zip(nodes.split(CHUNK), weights.split(CHUNK), strict=True)
    return torch.cat([mmd2(z, w, embedding) for z, w in pairs])


def compare(seeds: Float[Tensor, "r m d"], embedding: Embedding, arms: Mapping[str, NodeMap | None]) -> dict[str, Data]:
    """Every arm on the same seed sets: its scores, set by set, with nodes and weights.

    Arguments:
        seeds: The seed sets.
        embedding: What every arm reads and is scored with.
        arms: From names to maps; None leaves the seeds where they are.

    Returns:
        For each arm `scores`, `nodes` and `weights`, as tensors.

    Example:
        >>> from amsip import Gaussian, SquaredExponential
        >>> posterior = Gaussian(torch.zeros(2), torch.eye(2))
        >>> seeds = posterior.sample(12, generator=torch.Generator().manual_seed(0)).reshape(3, 4, 2)
        >>> found = compare(seeds, posterior.embed(SquaredExponential(1.0)), {FLOOR: None, REWEIGHT: None})
        >>> bool((found[REWEIGHT]["scores"] <= found[FLOOR]["scores"]).all())
        True
    """
    found = {}
    for arm, node_map in arms.items():
        nodes = seeds if node_map is None else moved(node_map, seeds, embedding)
        weights = weights_of(arm, nodes, embedding)
        found[arm] = {"nodes": nodes, "weights": weights, "scores": scores_of(nodes, weights, embedding)}
    return found


def summary(arm: str, found: Data, floor: Float[Tensor, "r"]) -> Data:
    """One row: median and quartiles of the score, its ratio to the floor with an interval, and the weights' health.

    Arguments:
        arm: Its name.
        found: What `compare` says about it.
        floor: The floor's scores on (at least) the same sets.
    """
    scores, weights = found["scores"], found["weights"]
    m, same = weights.shape[-1], floor[: len(scores)]
    low, median, high = scores.quantile(torch.tensor(QUARTILES, dtype=scores.dtype)).tolist()
    return {
        "arm": arm,
        "m": m,
        "sets": len(scores),
        "median": median,
        "quartiles": [low, high],
        "mean": float(scores.mean()),
        "ratio": median / float(middle(same)),
        "ratio_interval": list(ratio_interval(scores, same)),
        "below_floor": float((scores < same).double().mean()),
        "ess": float(middle(1.0 / (m * weights.square().sum(-1)))),
        "negative": float((weights < 0).double().mean()),
    }


def sweep(
    seeds: Seeds, embedding: Embedding, arms: Mapping[str, NodeMap | None], budgets: Sequence[int] = BUDGETS
) -> list[Data]:
    """A row for each arm at each budget; floor and reweight are always there.

    Arguments:
        seeds: From M to the seed sets.
        embedding: What every arm reads and is scored with.
        arms: From names to maps.
        budgets: The values of M.
    """
    rows = []
    for m in budgets:
        found = compare(seeds(m), embedding, {FLOOR: None, REWEIGHT: None, **arms})
        rows += [summary(arm, part, found[FLOOR]["scores"]) for arm, part in found.items()]
    return rows


def ratio_interval(
    above: Float[Tensor, "r"], below: Float[Tensor, "r"], *, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """A 95% interval for the ratio of two medians over paired sets, by resampling the sets.

    Example:
        >>> scores = torch.linspace(1.0, 2.0, 101)
        >>> [round(value, 3) for value in ratio_interval(0.5 * scores, scores)]
        [0.5, 0.5]
    """
    rows = torch.randint(len(above), (resamples, len(above)), generator=torch.Generator().manual_seed(0))
    ratios = middle(above[rows]) / middle(below[rows])
    tails = torch.tensor([(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0], dtype=ratios.dtype)
    low, high = ratios.quantile(tails).tolist()
    return low, high


def middle(values: Float[Tensor, "*q r"]) -> Float[Tensor, "*q"]:
    """The median along the last axis; of an even count, half-way between the two in the middle.

    Example:
        >>> middle(torch.tensor([1.0, 4.0, 2.0, 9.0])).item()
        3.0
    """
    return values.quantile(0.5, dim=-1)


def row_of(rows: Sequence[Data], arm: str, m: int) -> Data:
    """The row of an arm at a budget.

    Example:
        >>> row_of([{"arm": "floor", "m": 4, "median": 0.5}], "floor", 4)["median"]
        0.5
    """
    return next(row for row in rows if row["arm"] == arm and row["m"] == m)
