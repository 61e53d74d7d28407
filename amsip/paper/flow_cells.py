"""The arms on the held-out observations of the flow: the paper's, the networks of three seeds, and their controls."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.discrepancy import loss
from amsip.maps.base import NodeMap
from amsip.paper import arms
from amsip.paper.base import Data, Run
from amsip.paper.flow_maps import PAPER, flow_map, map_file
from amsip.paper.flow_posterior import KERNEL, SEEDS, SHOWN, Latent, Observed, chart_of, sizes_of
from amsip.paper.groundwater_cells import query_interval
from amsip.paper.parts import kept
from amsip.pretrained import load_card
from amsip.problems.toys import EVALUATION_SEED
from amsip.references.base import Embedding
from amsip.references.samples import Samples
from amsip.weights import gram_and_mean
from amsip.whitening import Whitening

SETS, QUICK_SETS = 4, 1
QUICK_BUDGETS = (4, 16)
OTHER, LONGER = "other observation", "paper's schedule"
BESIDE: Mapping[str, NodeMap | None] = {
    arms.FLOOR: None,
    arms.REWEIGHT: None,
    arms.FINETUNED: arms.finetune,
    arms.UNIVERSAL: arms.BESIDE[arms.UNIVERSAL],
}


@dataclass(frozen=True, eq=False)
class Charted:
    """Observations with two banks of draws of each, in the chart of the first bank.

    Arguments:
        found: The observations.
        chart: The coordinates in which every first bank has mean zero and unit covariance.
        bank: The draws that are integrated.
        again: As many more, which no arm reads.
    """

    found: Observed
    chart: Whitening
    bank: Float[Tensor, "q n r"]
    again: Float[Tensor, "q n r"]

    @classmethod
    def of(cls, found: Observed, space: Latent) -> "Charted":
        """Every bank in the latent, seen through its own first half."""
        points = space.points(found.coefficients)
        half = points.shape[-2] // 2
        chart = chart_of(points[:, :half])
        return cls(found, chart, chart.forward(points[:, :half]), chart.forward(points[:, half:]))

    def at(self, rows: slice) -> "Charted":
        """Some of the observations."""
        found = Observed(**{name: value[rows] for name, value in vars(self.found).items()})
        chart = Whitening(self.chart.centre[rows], self.chart.root[rows], self.chart.inverse_root[rows])
        return Charted(found, chart, self.bank[rows], self.again[rows])

    @cached_property
    def embedding(self) -> Embedding:
        """Of the first banks, their constants worked out once."""
        return _embedding(self.bank)

    @cached_property
    def fresh(self) -> Embedding:
        """Of the second banks."""
        return _embedding(self.again)

    def seeds(self, m: int, sets: int, *, replacement: bool = False) -> Float[Tensor, "sets q m r"]:
        """Rows of every bank, `sets` times; distinct ones unless `replacement` is asked for."""
        index = torch.stack([_rows(m, sets, o, self.bank.shape[1], replacement) for o in range(len(self.bank))], 1)
        return self.bank.expand(sets, *self.bank.shape).take_along_dim(index[..., None], -2)


def held_out(run: Run, charted: Charted) -> Charted:
    """Those of the evaluation, without the ones that are reconstructed."""
    return charted.at(slice(0, sizes_of(run).held_out))


def shown(run: Run, charted: Charted) -> Charted:
    """Those that are reconstructed."""
    return charted.at(slice(sizes_of(run).held_out, sizes_of(run).held_out + SHOWN))


def budgets_of(run: Run) -> tuple[int, ...]:
    """The values of M."""
    return QUICK_BUDGETS if run.quick else arms.BUDGETS


def rows_of(run: Run, charted: Charted) -> list[Data]:
    """A row for each arm at each budget; the networks' rows carry their training seed.

    Arguments:
        run: Quick or not, and where parts are kept.
        charted: The observations of the evaluation.
    """
    nets = {seed: flow_map(run, seed) for seed in SEEDS}
    longer = flow_map(run, SEEDS[0], PAPER)
    files = [*(map_file(run, seed) for seed in SEEDS), map_file(run, SEEDS[0], PAPER)]
    digests = [load_card(file).sha256 for file in files]
    beside_of = [files[0].name, load_card("universal").sha256]
    sets = QUICK_SETS if run.quick else SETS
    rows: list[Data] = []
    for m in budgets_of(run):
        seeds = charted.seeds(m, sets)

        def beside(seeds: Tensor = seeds) -> Data:
            return {"rows": cell(charted, seeds, BESIDE)}

        def ours(seeds: Tensor = seeds) -> Data:
            maps: dict[str, NodeMap | None] = {arms.FLOOR: None}
            maps[f"{LONGER} {SEEDS[0]}"] = longer.given(charted.found.image)
            for seed, net in nets.items():
                maps[f"{arms.WARM} {seed}"] = net.given(charted.found.image)
                maps[f"{OTHER} {seed}"] = net.given(charted.found.image.roll(1, 0))
            return {"rows": cell(charted, seeds, maps)[1:]}

        run.report(f"flow, M = {m}")
        stamp = {"m": m, "sets": sets, "bank": charted.bank.shape[1], "queries": len(charted.bank), "maps": digests}
        rows += kept(run, f"flow-beside-{m}", stamp | {"maps": beside_of}, beside)["rows"]
        rows += [_seeded(row) for row in kept(run, f"flow-ours-{m}", stamp, ours)["rows"]]
    return rows


def cell(charted: Charted, seeds: Float[Tensor, "sets q m r"], maps: Mapping[str, NodeMap | None]) -> list[Data]:
    """All arms on the same seeds, intervals by resampling observations; the first arm is the floor.

    Beside the score on the bank whose kernel mean gives the weights, the `fresh` one: an unbiased estimate of the
    discrepancy to the flow itself, from draws that no arm has read.

    Arguments:
        charted: The observations.
        seeds: The seed sets.
        maps: From names to maps; None leaves the seeds where they are.
    """
    queries = seeds.shape[1]
    rows: list[Data] = []
    floor: dict[str, Tensor] = {}
    for arm, node_map in maps.items():
        parts = [arms.compare(part, charted.embedding, {arm: node_map})[arm] for part in seeds]
        # set by set, so that observations can be resampled with all their sets
        found = {key: torch.cat([part[key] for part in parts]) for key in ("scores", "weights")}
        fresh = torch.stack([fresh_scores(part["nodes"], part["weights"], charted.fresh) for part in parts])
        floor = floor or {"scores": found["scores"], "fresh": fresh}
        row = arms.summary(arm, found, floor["scores"])
        row["ratio_interval"] = list(query_interval(found["scores"], floor["scores"], queries))
        row |= {"queries": queries, "fresh": fresh.mean(), "fresh_ratio": fresh.mean() / floor["fresh"].mean()}
        rows.append(row | {"fresh_interval": list(mean_ratio_interval(fresh, floor["fresh"]))})
    return rows


def mean_ratio_interval(above: Float[Tensor, "sets q"], below: Float[Tensor, "sets q"]) -> tuple[float, float]:
    """A 95% interval for a ratio of means when observations are drawn anew, with all their sets.

    Example:
        >>> mean_ratio_interval(torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 4.0]]))
        (0.5, 0.5)
    """
    count = above.shape[-1]
    picked = torch.randint(count, (arms.RESAMPLES, count), generator=torch.Generator().manual_seed(0))
    means = [scores.mean(0)[picked].mean(-1) for scores in (above, below)]
    tails = torch.tensor([(1.0 - arms.LEVEL) / 2.0, (1.0 + arms.LEVEL) / 2.0], dtype=above.dtype)
    low, high = (means[0] / means[1]).quantile(tails).tolist()
    return low, high


def fresh_scores(nodes: Float[Tensor, "q m r"], weights: Float[Tensor, "q m"], fresh: Embedding) -> Float[Tensor, "q"]:
    """Unbiased for the squared discrepancy to what the fresh draws are of: no draw is paired with itself.

    Example:
        >>> draws = torch.randn(40, 600, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> rule = torch.zeros(40, 1, 1, dtype=torch.float64), torch.ones(40, 1, dtype=torch.float64)
        >>> truth = 1.0 - 2.0 * (33 / 32) ** -0.5 + (34 / 32) ** -0.5
        >>> abs(fresh_scores(*rule, _embedding(draws)).mean().item() - truth) < 1e-4
        True
    """
    n = float(torch.as_tensor(fresh.effective_draws).flatten()[0])
    energy = (n * fresh.energy - 1.0) / (n - 1.0)
    return loss(*gram_and_mean(nodes, fresh), weights.double()) + energy


def _embedding(draws: Tensor) -> Embedding:
    embedding = Samples(draws).embed(KERNEL)
    _ = embedding.energy
    return embedding


def _rows(m: int, sets: int, observation: int, count: int, replacement: bool) -> Tensor:
    generator = torch.Generator().manual_seed(EVALUATION_SEED + 1000 * m + observation)
    if replacement:
        return torch.randint(count, (sets, m), generator=generator)
    return torch.rand(sets, count, generator=generator).topk(m, -1).indices


def _seeded(row: Data) -> Data:
    name, _, seed = row["arm"].rpartition(" ")
    return row | {"arm": name, "seed": int(seed)}
