"""What several verbs print about a rule."""

from collections.abc import Sequence

from amsip.bench.base import table
from amsip.references.samples import Samples
from amsip.rules import Rule

SCORED_DRAWS = 20_000


def moments_table(rule: Rule, reference: Samples, names: Sequence[str]) -> str:
    """Mean and standard deviation of each parameter, by the rule and by the draws."""
    mean, cov = reference.moments()
    columns = (rule.mean(), mean, rule.cov().diagonal().clamp_min(0.0).sqrt(), cov.diagonal().sqrt())
    rows = [(name, *(f"{float(c[i]):.5g}" for c in columns)) for i, name in enumerate(names)]
    return table(("parameter", "mean, rule", "mean, draws", "sd, rule", "sd, draws"), rows)


def discrepancy_lines(rule: Rule, reference: Samples) -> list[str]:
    """The rule's squared discrepancy beside the average one of as many plain draws."""
    if rule.embedding is None or reference.atoms.shape[-2] > SCORED_DRAWS:
        return [f"discrepancy       not computed for more than {SCORED_DRAWS} draws"]
    energy = rule.embedding.energy
    spread = (reference.normalised_weights * rule.embedding.kernel.diagonal(reference.atoms)).sum(-1) - energy
    floor = spread / rule.nodes.shape[-2]
    ratio = (rule.mmd2 / floor).mean()
    return [f"discrepancy       MMD^2 {rule.mmd2.mean():.3g}, {ratio:.3g} of what as many plain draws have on average"]
