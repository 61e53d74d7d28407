"""What the runs on the flow's posteriors decide: one finding a sentence of the paper."""

import itertools
import statistics

from amsip.paper.arms import FINETUNED, REWEIGHT, UNIVERSAL, WARM
from amsip.paper.base import Data, Finding, Verdict
from amsip.paper.flow_cells import LONGER, OTHER
from amsip.paper.flow_score import SAMPLES, SCORE
from amsip.paper.judge import below_floor, several, verdict_of

STEADY, DRIFTING = 1.5, 3.0
NEAR = 2.0
CLEAR, VISIBLE = 10.0, 3.0
AGREE = 1.1
SAME = 0.1


def _of(data: Data, arm: str) -> list[Data]:
    return [row for row in data["rows"] if row["arm"] == arm]


def budgets(data: Data) -> list[int]:
    """The values of M.

    Example:
        >>> budgets({"rows": [{"m": 8}, {"m": 4}, {"m": 8}]})
        [4, 8]
    """
    return sorted({row["m"] for row in data["rows"]})


def ratios(data: Data, arm: str, key: str = "ratio") -> list[float]:
    """Relative to the floor by M; the median where there are several trainings.

    Example:
        >>> ratios({"rows": [{"arm": "warm", "m": 4, "ratio": r} for r in (0.2, 0.3, 0.9)]}, "warm")
        [0.3]
    """
    return [statistics.median(row[key] for row in _of(data, arm) if row["m"] == m) for m in budgets(data)]


def _pool(data: Data) -> str:
    sizes = data["sizes"]
    return (
        f"{sizes['held_out']} held-out observations, the measure being {sizes['bank']} draws of our flow for each; our "
        f"flow is smaller than the paper's."
    )


def warm_below_floor(data: Data) -> Finding:
    """One pass against the floor, every training and budget."""
    late = data["curves"][0]["held_out"]
    note = (
        f"By M, median of three trainings: {several(ratios(data, WARM))}; reweighting alone "
        f"{several(ratios(data, REWEIGHT))}; the universal map {several(ratios(data, UNIVERSAL))}. "
        f"{data['curves'][0]['steps']} steps, over the last half of which the validation ratio went from "
        f"{late[len(late) // 2 - 1]:.3f} to {late[-1]:.3f}; the paper's schedule gives "
        f"{several(ratios(data, LONGER))}. {_pool(data)}"
    )
    return below_floor(data["rows"], WARM, note)


def against_the_flow(data: Data) -> Finding:
    """The same against the flow itself, on draws that no arm has read."""
    worst = max(_of(data, WARM), key=lambda row: row["fresh_ratio"])
    low, high = worst["fresh_interval"]
    own, fresh = ratios(data, FINETUNED)[-1], ratios(data, FINETUNED, "fresh_ratio")[-1]
    note = (
        f"Ratio of means on a second bank that no arm has read, the bank's own error taken off; by M: "
        f"{several(ratios(data, WARM, 'fresh_ratio'))}, against {several(ratios(data, WARM))} (medians) on the bank "
        f"that gave the weights. What a large M gains on the first bank is partly that bank: per-set descent at "
        f"M = {budgets(data)[-1]} has {own:.2g} there and {fresh:.2g} here."
    )
    return Finding(verdict_of(high < 1.0, low < 1.0), worst["fresh_ratio"], (low, high), note)


def steady(data: Data) -> Finding:
    """How much the margin changes over the budgets."""
    values = ratios(data, WARM)
    swing = max(values) / min(values)
    falls = all(b < a for a, b in itertools.pairwise(values))
    note = (
        f"Largest over smallest ratio to the floor across budgets, steady meaning under {STEADY:g}; by M: "
        f"{several(values)}{', deeper at every step' if falls else ''}. On the second bank "
        f"{several(ratios(data, WARM, 'fresh_ratio'))}."
    )
    return Finding(verdict_of(swing < STEADY, swing < DRIFTING), swing, None, note)


def from_above(data: Data) -> Finding:
    """One pass against the per-set descent."""
    tuned = ratios(data, FINETUNED)
    pairs = [[row["ratio"] for row in _of(data, WARM) if row["m"] == m] for m in budgets(data)]
    gaps = [[value / base for value in values] for values, base in zip(pairs, tuned, strict=True)]
    least, largest = min(min(values) for values in gaps), max(max(values) for values in gaps)
    note = (
        f"Largest ratio of one pass to 150 steps of Adam a set, over three trainings; the least is {least:.2f}. Above "
        f"is at least 1, following is under {NEAR:g}. The median training by M: "
        f"{several([statistics.median(values) for values in gaps])}. The universal map over the same: "
        f"{several([a / b for a, b in zip(ratios(data, UNIVERSAL), tuned, strict=True)])}."
    )
    return Finding(verdict_of(least >= 1.0 and largest < NEAR, least >= 1.0), largest, None, note)


def trainings_agree(data: Data) -> Finding:
    """How far three trainings differ."""
    spreads = []
    for m in budgets(data):
        values = [row["ratio"] for row in _of(data, WARM) if row["m"] == m]
        spreads.append(max(values) / min(values))
    note = f"Largest over smallest ratio to the floor among three trainings, by M: {_fine(spreads)}."
    return Finding(verdict_of(max(spreads) < AGREE, max(spreads) < STEADY), max(spreads), None, note)


def shape_moves(data: Data) -> Finding:
    """Whether the posterior changes shape with the observation."""
    found = data["shape"]
    determinant, leading = found["log_determinant"], found["leading_variance"]
    signal = determinant["std"] / determinant["noise"]
    inside = data["coverage"]["inside"]
    note = (
        f"Spread over observations of the log-determinant of the latent covariance ({determinant['std']:.2g}) over the "
        f"noise of measuring it ({determinant['noise']:.2g}). The leading variance differs by a factor of "
        f"{leading['ratio_of_extremes']:.2g} between observations (noise {leading['noise']:.2g} in its logarithm). "
        f"The flow's central 50% and 90% intervals hold {inside['0.5']:.0%} and {inside['0.9']:.0%} of the truth."
    )
    return Finding(verdict_of(signal > CLEAR, signal > VISIBLE), signal, None, note)


def discrepancy_moves(data: Data) -> Finding:
    """Whether what is left after whitening still does."""
    found = data["shape"]
    floor = found["floor"]
    signal = floor["std"] / floor["noise"]
    note = (
        f"Relative spread over observations of the expected floor, (1 - c) / M, each posterior whitened by its own "
        f"covariance; noise {floor['noise']:.2g}. Whitening takes away most of what moves: c is {found['energy']:.4f} "
        f"on average, {found['gaussian_energy']:.4f} for any Gaussian."
    )
    return Finding(verdict_of(floor["std"] > SAME and signal > VISIBLE, signal > VISIBLE), floor["std"], None, note)


def reads_the_observation(data: Data) -> Finding:
    """Whether the network needs the observation it is shown."""
    losses = []
    for m in budgets(data):
        own, other = ([row["ratio"] for row in _of(data, arm) if row["m"] == m] for arm in (WARM, OTHER))
        losses.append(statistics.median(b / a for a, b in zip(own, other, strict=True)))
    note = (
        f"Median discrepancy of a pass shown another observation's image, over that with its own, by M: "
        f"{_fine(losses)}; 1 would mean that seeds and whitening carry all the conditioning. The universal map, "
        f"which is shown no image at all, is at {several(ratios(data, UNIVERSAL))} of the floor, this one at "
        f"{several(ratios(data, WARM))}."
    )
    return Finding(verdict_of(min(losses) > AGREE, max(losses) > 1.0 + SAME / 5.0), max(losses), None, note)


def floor_is_deflated(data: Data) -> Finding:
    """What seeds without replacement do to the floor."""
    rows = data["deflation"]
    worst = max(abs(row["distinct"] - row["predicted"]) / row["distinct_error"] for row in rows)
    last = rows[-1]
    plain = max(abs(row["independent"] - 1.0) / row["independent_error"] for row in rows)
    note = (
        f"Mean over (1 - c)/M of seeds that are distinct rows of the bank, at M = {last['m']}; (L - M)/(L - 1) is "
        f"{last['predicted']:.4f} and independent rows give {last['independent']:.4f}. Largest departure over all M: "
        f"{worst:.1f} standard errors from that factor, {plain:.1f} from 1. Margins here are over the lowered floor."
    )
    holds = abs(last["distinct"] - 1.0) < 2.0 * last["distinct_error"]
    return Finding(verdict_of(holds, last["distinct"] > 1.0 - SAME), last["distinct"], None, note)


def few_rejected(data: Data) -> Finding:
    """How many draws the filter rejects."""
    found = data["coverage"]
    note = (
        f"Share of draws rejected as not finite or above 10,000, on average over observations; at most "
        f"{found['worst']:.2g} in one. Our flow has splines with linear tails, which cannot blow up."
    )
    verdict = Verdict.UNTESTABLE if found["rejected"] == 0.0 else verdict_of(found["worst"] < 0.1)
    return Finding(verdict, found["rejected"], None, note)


def coupling(data: Data) -> Finding:
    """What the bandwidth rule gives in whitened coordinates."""
    found = data["shape"]
    low, high = found["coupling_extremes"]
    note = (
        f"Median of the kernel over pairs of whitened draws, against 1/e = 0.368; over observations {low:.3f} to "
        f"{high:.3f}. Latent of {data['rank']} directions, {data['latent']['retained']:.0%} of the images' variance."
    )
    near = abs(found["coupling"] / 0.367879 - 1.0)
    return Finding(verdict_of(near < SAME, near < 3.0 * SAME), found["coupling"], (low, high), note)


def score_refines(data: Data) -> Finding:
    """Whether the flow's own score refines the nodes."""
    found = data["score"]
    ends = {name: line[-1] / line[0] for name, line in found["lines"].items()}
    base = found["arms"]
    note = (
        f"Discrepancy after {len(found['lines'][SCORE]) - 1} steps over that of the reweighted seeds, "
        f"{found['observations']} observations, M = {found['m']}, all {found['dim']} coefficients whitened: through "
        f"the flow's score {ends[SCORE]:.3g}, through draws {ends[SAMPLES]:.3g}; per-set descent "
        f"{base[FINETUNED] / base[REWEIGHT]:.3g}. Of {found['inner']} points about a node {found['effective']:.2g} "
        f"carry the estimate: at this bandwidth even a Gaussian needs 10^{found['needed']:.0f} of them."
    )
    return Finding(verdict_of(ends[SCORE] < 1.0, ends[SCORE] < 1.0 + SAME), ends[SCORE], None, note)


def _fine(values: list[float]) -> str:
    return ", ".join(f"{value:.4f}" for value in values)
