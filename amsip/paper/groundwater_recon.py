"""The rules of the groundwater figure: one emission of every query, pools of three, and the images that are shown."""

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.maps.base import NodeMap
from amsip.paper import arms
from amsip.paper.arms import FINETUNED, FLOOR, REWEIGHT, UNIVERSAL, WARM
from amsip.paper.base import Data, Run
from amsip.paper.groundwater import BROAD, SHARP, SHOWN, Groundwater, seed_sets
from amsip.paper.groundwater_fields import (
    COMPONENTS,
    Fields,
    accuracy,
    agreement,
    coverage,
    estimates,
    median_over,
    regression_name,
)
from amsip.references.base import Embedding
from amsip.rules import Rule

M, QUICK_M = 64, 16
POOL, QUICK_POOL = 64, 4
SINGLE: dict[str, NodeMap | None] = {
    FLOOR: None,
    REWEIGHT: None,
    FINETUNED: arms.finetune,
    UNIVERSAL: arms.BESIDE[UNIVERSAL],
}
POOLED: dict[str, NodeMap | None] = {FLOOR: None, UNIVERSAL: arms.BESIDE[UNIVERSAL]}
BEST = regression_name(COMPONENTS[-1])
COLUMNS = ("true field", "regression", "conditional mean", "quadrature mean", "pooled deviation")


def nodes_of(run: Run) -> int:
    """How many nodes a rule has."""
    return QUICK_M if run.quick else M


def pool_of(run: Run) -> int:
    """How many emissions are pooled."""
    return QUICK_POOL if run.quick else POOL


def single(run: Run, ground: Groundwater, fields: Fields, net: NodeMap) -> Data:
    """Every arm once on every held-out query: its mean and its spread against the conditional's own."""
    posterior = ground.posterior(SHARP)
    run.report("groundwater, one emission a query")
    found = _rules(ground, posterior.embed(ground.kernel), seed_sets(posterior, nodes_of(run), 1)[:, 0], SINGLE, net)
    rows: Data = {
        arm: {key: median_over(values) for key, values in agreement(fields, rule, posterior.moments()).items()}
        for arm, rule in found.items()
    }
    truth = ground.latent[ground.queries]
    stated = {arm: (found[arm].mean(), found[arm].cov()) for arm in (FLOOR, WARM, UNIVERSAL)}
    stated["conditional"] = posterior.moments()
    rows["coverage"] = {name: coverage(fields, *moments, truth) for name, moments in stated.items()}
    return rows


def pooled(run: Run, ground: Groundwater, fields: Fields, net: NodeMap) -> Data:
    """Many emissions of the shown queries, pooled; and the images of the figure."""
    posterior, count = ground.posterior(SHARP, ground.shown), pool_of(run)
    run.report(f"groundwater, {count} emissions of {SHOWN} queries")
    embedding = posterior.embed(ground.kernel)
    sets = seed_sets(posterior, nodes_of(run), count).unbind(1)
    parts = [_rules(ground, embedding, seeds, POOLED, net) for seeds in sets]
    found = {arm: _stacked([part[arm] for part in parts]).pool() for arm in parts[0]}
    rows = {
        arm: {key: values.tolist() for key, values in agreement(fields, rule, posterior.moments()).items()}
        for arm, rule in found.items()
    }
    return {"rows": rows, "images": _images(ground, fields, posterior.moments()[0], found[WARM])}


def _rules(
    ground: Groundwater,
    embedding: Embedding,
    seeds: Float[Tensor, "q m r"],
    maps: dict[str, NodeMap | None],
    net: NodeMap,
) -> dict[str, Rule]:
    found = arms.compare(seeds, embedding, {**maps, WARM: net})
    return {arm: Rule(part["nodes"], part["weights"]) for arm, part in found.items()}


def _stacked(rules: list[Rule]) -> Rule:
    return Rule(torch.stack([rule.nodes for rule in rules]), torch.stack([rule.weights for rule in rules]))


def _images(ground: Groundwater, fields: Fields, mean: Float[Tensor, "q r"], rule: Rule) -> list[Data]:
    """The pictures of every shown query, to three decimals."""
    truth = ground.problem.permeability(ground.coefficients[ground.shown].double()).flatten(-2)
    linear = estimates(ground)[BEST][-SHOWN:]
    columns = (truth, fields.mean(linear), fields.mean(mean), fields.mean(rule.mean()), fields.std(rule.cov()))
    rounded = [values.mul(1e3).round() / 1e3 for values in columns]
    return [{name: values[query] for name, values in zip(COLUMNS, rounded, strict=True)} for query in range(SHOWN)]


def point_estimates(ground: Groundwater, fields: Fields) -> Data:
    """Point estimates beyond the atoms, and how much deviation is left by the best of them and stated by the others."""
    found = estimates(ground)
    truth = ground.latent[ground.sizes.atoms :]
    rest = slice(ground.sizes.atoms, ground.sizes.rows)
    left = (fields.mean(found[BEST]) - fields.mean(truth)).square().mean().sqrt()
    stated = {
        reading: fields.std(ground.posterior(reading, rest).moments()[1]).square().mean().sqrt()
        for reading in (SHARP, BROAD)
    }
    return {**accuracy(ground, fields, found), "left": left, "stated": stated}
