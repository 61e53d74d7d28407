"""The toys' figures: what they measure is what they say, and their verdicts change when the numbers do."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from oracles import mixture_log_density, squared_exponential, weighted_moments
from oracles import mmd2 as mmd2_by_pairs

from amsip import Gaussian, Samples, optimal_weights
from amsip.paper import (
    arms,
    dimension_findings,
    dimension_sweep,
    lever_split,
    node_weight,
    resolution,
    settings,
    teaser,
    toy_weights,
)
from amsip.paper.arms import FINETUNED, FLOOR, REWEIGHT, UNIVERSAL, WARM
from amsip.paper.base import Run, Verdict
from amsip.paper.judge import below_floor, surely_below
from amsip.paper.produce import produce
from amsip.paper.registry import experiment
from amsip.paper.resolution import FULL, GAUSSIAN, MODES, NETS, SINGLE, SUBSET
from amsip.paper.score_checks import by_densities, cross_check, ridge_effect
from amsip.paper.toy_cells import MEDIAN, variance_share
from amsip.problems.toys import BANDWIDTH_DRAWS, EVALUATION_SEED, gaussian_toy, mixture_toy

LABELS = (
    "bandwidth-sensitivity",
    "dimension-sweep",
    "dq-resolution-ablation",
    "lever-split",
    "node-weight",
    "repro",
    "teaser",
    "weight-dist",
    "weight-ess",
)
DTYPE = torch.float64
NOWHERE = Path("nowhere")


def silent(line: str) -> None:
    pass


def points(*shape: int, rng_seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=DTYPE, generator=torch.Generator().manual_seed(rng_seed))


def check(label: str, name: str, data):
    return next(claim for claim in experiment(label).claims if claim.name == name).check(data)


def test_a_ratio_is_of_two_medians_of_one_kind():
    floor = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=DTYPE)
    found = {"scores": 0.5 * floor, "weights": torch.full((4, 2), 0.5, dtype=DTYPE)}
    row = arms.summary(WARM, found, floor)
    assert row["median"] == pytest.approx(1.5)
    assert row["ratio"] == pytest.approx(0.5, rel=1e-12)
    assert row["ratio_interval"] == pytest.approx([0.5, 0.5])


def test_one_doubtful_cell_makes_a_verdict_conditional():
    deep = {"arm": WARM, "m": 4, "ratio": 0.9, "ratio_interval": [0.8, 0.95]}
    doubtful = {"arm": WARM, "m": 8, "ratio": 0.85, "ratio_interval": [0.7, 1.02]}
    above = {"arm": WARM, "m": 16, "ratio": 1.2, "ratio_interval": [1.1, 1.3]}
    assert below_floor([deep], WARM, "").verdict == Verdict.HOLDS
    found = below_floor([deep, doubtful], WARM, "")
    assert (found.verdict, found.number) == (Verdict.CONDITION, 0.9)
    assert surely_below([deep, doubtful, above], WARM) == Verdict.FAILS
    assert surely_below([deep], WARM, 0.9) == Verdict.CONDITION


def test_weights_are_counted_in_their_bins_and_those_outside_in_the_last_ones():
    scaled = torch.tensor([[-7.0, -0.95, 0.0, 0.05], [1.0, 1.05, 3.95, 9.0]], dtype=DTYPE)
    expected = np.zeros(50)
    for value in scaled.flatten().tolist():
        expected[min(49, max(0, math.floor((value + 1.0) / 0.1 + 1e-6)))] += 1.0 / 8.0
    assert np.allclose(toy_weights.histogram(scaled), expected)


def test_fresh_seeds_are_no_evaluation_seeds():
    fresh = {toy_weights.FRESH_SEED + 1000 * m for m in arms.BUDGETS}
    assert fresh.isdisjoint(EVALUATION_SEED + 1000 * m for m in arms.BUDGETS)
    toy = gaussian_toy(2)
    assert not torch.equal(toy_weights.fresh_seeds(toy, 4, 3), toy.seed_sets(4, 3))


def test_kept_variance_is_that_of_a_signed_rule():
    nodes, cov = points(2, 5, 3), torch.diag(torch.tensor([1.0, 2.0, 4.0], dtype=DTYPE))
    weights = torch.tensor([[0.5, 0.4, -0.2, 0.1, 0.2], [0.2] * 5], dtype=DTYPE)
    shares = variance_share(nodes, weights, cov)
    for share, z, w in zip(shares, nodes.numpy(), weights.numpy(), strict=True):
        assert float(share) == pytest.approx(np.trace(weighted_moments(z, w)[1]) / 7.0)


def test_rank_correlation_is_spearmans():
    first, second = points(3, 11), points(3, 11, rng_seed=1)
    expected = [scipy.stats.spearmanr(a, b).statistic for a, b in zip(first.numpy(), second.numpy(), strict=True)]
    assert node_weight.rank_correlation(first, second).tolist() == pytest.approx(expected)


def test_the_banana_density_is_that_of_its_draws():
    at = points(7, 2) * 3.0
    x, y = at.numpy().T
    expected = scipy.stats.norm(0, 3).logpdf(x) + scipy.stats.norm(0.1 * (x**2 - 9), 1).logpdf(y)
    found = teaser.banana_log_density(at).numpy() - expected
    assert np.ptp(found) < 1e-12


def test_the_mixture_backdrop_is_its_marginal():
    grid = node_weight._mixture_grid()
    target = mixture_toy(10).target
    shares, means, covs = (part.numpy() for part in (target.shares, target.means, target.covs))
    picked = [(40, 20), (44, 18), (45, 63), (50, 66)]
    values = [float(grid["values"][row, column]) for row, column in picked]
    exact = [
        math.exp(
            mixture_log_density(
                np.array([float(grid["x"][column]), float(grid["y"][row])]), shares, means[:, :2], covs[:, :2, :2]
            )
        )
        for row, column in picked
    ]
    assert np.array(values) / values[0] == pytest.approx(np.array(exact) / exact[0], rel=2e-3)


@pytest.mark.parametrize("name", ["gaussian-2", "gaussian-16", "mixture-64"])
def test_two_draws_are_coupled_as_the_rules_say(name):
    run = Run(True, NOWHERE, silent)
    log_rule = dimension_sweep._coupling(run, name)["coupling"]
    plain = dimension_sweep._coupling(run, name + MEDIAN)["coupling"]
    assert 0.3 < log_rule * (BANDWIDTH_DRAWS + 1) < 3.0
    assert plain == pytest.approx(math.exp(-0.5), rel=0.06)
    # coupling by another bandwidth is a power: catches h where h^2 is meant
    assert math.log(log_rule) / math.log(plain) == pytest.approx(2.0 * math.log(BANDWIDTH_DRAWS + 1), rel=0.03)


def sweep_row(family: str, d: int, kernel: str, arm: str, ratio: float, **more) -> dict:
    interval = [0.9 * ratio, 1.05 * ratio]
    row = {"family": family, "d": d, "kernel": kernel, "arm": arm, "ratio": ratio, "ratio_interval": interval}
    return {
        "toy": f"{family}-{d}",
        "m": 64,
        "below_floor": 1.0,
        "coupling": 0.37,
        "inequality": 100.0 / d,
        **row,
        **more,
    }


def sweep_data(isotropic: list[float], **more) -> dict:
    rows = []
    for family, dims in (("Gaussian", (2, 4, 8)), ("mixture", (10, 32, 64))):
        for d, ratio in zip(dims, isotropic, strict=True):
            for kernel in dimension_findings.KERNELS:
                rows += [
                    sweep_row(family, d, kernel, arm, ratio if kernel == "" else 0.1 * ratio, **more)
                    for arm in (FLOOR, WARM, FINETUNED, UNIVERSAL)
                ]
    return {"rows": rows}


def test_the_dimension_sweep_notices_a_margin_that_opens():
    closing, opening = sweep_data([0.2, 0.5, 0.9]), sweep_data([0.2, 0.9, 0.5])
    assert check("dimension-sweep", "dimension-wall", closing).verdict == Verdict.HOLDS
    assert check("dimension-sweep", "dimension-wall", opening).verdict == Verdict.FAILS
    assert check("dimension-sweep", "dimension-whitened-open", closing).verdict == Verdict.HOLDS
    assert check("dimension-sweep", "dimension-below-floor", sweep_data([0.2, 0.5, 0.97])).verdict == Verdict.CONDITION


def test_entries_are_near_equal_when_their_quartiles_are():
    name = "dimension-mechanism"
    assert check("dimension-sweep", name, sweep_data([0.2, 0.5, 0.9])).verdict == Verdict.CONDITION
    assert check("dimension-sweep", name, sweep_data([0.2, 0.5, 0.9], inequality=3.0)).verdict == Verdict.FAILS
    near = sweep_data([0.2, 0.5, 0.9])
    for row in near["rows"]:
        row["inequality"] = 1.0 + 1.0 / row["d"]
    assert check("dimension-sweep", name, near).verdict == Verdict.HOLDS
    constant = "dimension-constant-coupling"
    fixed = sweep_data([0.2, 0.5, 0.9], coupling=1.0 / (BANDWIDTH_DRAWS + 1))
    assert check("dimension-sweep", constant, fixed).verdict == Verdict.HOLDS
    assert check("dimension-sweep", constant, sweep_data([0.2, 0.5, 0.9])).verdict == Verdict.FAILS
    rule = "dimension-sqrt-rule"
    assert check("dimension-sweep", rule, sweep_data([0.2, 0.5, 0.9])).verdict == Verdict.HOLDS
    assert check("dimension-sweep", rule, sweep_data([0.2, 0.5, 0.9], coupling=0.5)).verdict == Verdict.FAILS


def bandwidth_data(ratios: list[float], ess: list[float]) -> dict:
    factors = (0.25, 0.5, 1.0, 2.0, 4.0)
    rows = [
        {
            "toy": "t",
            "arm": WARM,
            "m": 32,
            "sets": 9,
            "factor": f,
            "ratio": r,
            "ratio_interval": [0.9 * r, 1.1 * r],
            "ess": e,
            UNIVERSAL: 0.5 * r,
        }
        for f, r, e in zip(factors, ratios, ess, strict=True)
    ]
    shares = {"floor, paper": 0.95, "finetuned, paper": 0.6, "finetuned, median": 0.99}
    return {"rows": rows, "spread": [{"toy": "t", "shares": shares, "default": 1.0}]}


def test_the_bandwidth_sweep_judges_margin_plateau_and_spread():
    good = bandwidth_data([0.8, 0.6, 0.4, 0.2, 0.1], [0.99, 0.98, 0.97, 0.5, 0.1])
    bad = bandwidth_data([0.1, 0.2, 0.6, 0.8, 0.95], [0.9, 0.5, 0.3, 0.3, 0.3])
    verdicts = {
        name: [check("bandwidth-sensitivity", f"bandwidth-{name}", data).verdict for data in (good, bad)]
        for name in ("below-floor", "deepens", "plateau", "margin-and-health", "sweet-spot")
    }
    assert verdicts == {
        "below-floor": [Verdict.HOLDS, Verdict.CONDITION],
        "deepens": [Verdict.HOLDS, Verdict.FAILS],
        "plateau": [Verdict.HOLDS, Verdict.FAILS],
        "margin-and-health": [Verdict.HOLDS, Verdict.FAILS],
        "sweet-spot": [Verdict.FAILS, Verdict.FAILS],
    }


def test_algorithm_one_as_written_gives_equal_weights():
    toy = gaussian_toy(2)
    seeds = toy.seed_sets(7, 1)[0]
    literal = optimal_weights(seeds, Samples(seeds).embed(toy.kernel))
    assert (7 * literal - 1).abs().max() < 1e-8
    assert lever_split.own_seeds() < 1e-6
    exact = optimal_weights(seeds, toy.reference().embed(toy.kernel))
    assert (7 * exact - 1).abs().max() > 0.1


def test_the_networks_of_the_ablation_differ_in_the_budgets_they_see_alone(monkeypatch):
    asked = []

    def capture(run, name, make_net, tasks, config, *, rng_seed):
        asked.append((make_net().state_dict(), tasks, config, rng_seed))
        return make_net()

    monkeypatch.setattr(resolution, "trained_map", capture)
    for net in NETS:
        resolution.network(Run(True, NOWHERE, silent), GAUSSIAN, net)
    first = asked[0]
    for (state, tasks, config, rng_seed), seen in zip(asked, NETS.values(), strict=True):
        assert all(torch.equal(state[key], first[0][key]) for key in state)
        assert (config, rng_seed, tasks.batch) == (first[2], first[3], first[1].batch)
        drawn = {tasks(torch.Generator().manual_seed(seed)).seeds.shape[1] for seed in range(40)}
        assert drawn == set(seen)


def test_the_salted_targets_have_their_own_draws_and_the_papers_rule():
    gaussian, modes = resolution.salted(GAUSSIAN), resolution.salted(MODES)
    assert gaussian.bandwidth != gaussian_toy(2).bandwidth
    assert gaussian.bandwidth == pytest.approx(0.1648, rel=0.03)
    assert modes.bandwidth == pytest.approx(4.98, abs=0.02)


def net_row(toy: str, net: str, m: int, ratio: float, over_full: float) -> dict:
    row = {"toy": toy, "arm": net, "m": m, "ratio": ratio, "ratio_interval": [0.97 * ratio, 1.03 * ratio]}
    over = {"over_full": over_full, "over_full_interval": [0.97 * over_full, 1.03 * over_full], "over_reweight": 0.5}
    return {**row, **over, "median": ratio}


def ablation(single: dict[int, float], subset: float = 1.02) -> dict:
    rows = []
    for toy in (GAUSSIAN, MODES):
        for m in (*arms.BUDGETS, 24, 96):
            rows += [
                net_row(toy, arm, m, ratio, 1.0) for arm, ratio in ((FLOOR, 1.0), (FINETUNED, 0.1), (UNIVERSAL, 0.2))
            ]
            for net, seen in NETS.items():
                worse = 1.0 if net == FULL or m in seen else subset if net == SUBSET else single.get(m, 1.5)
                above = net == SINGLE and toy == GAUSSIAN and m == 4
                rows.append(net_row(toy, net, m, 1.2 if above else 0.3 * worse, worse))
    return {"rows": rows}


def test_the_ablation_is_judged_at_the_unseen_budgets():
    label = "dq-resolution-ablation"
    papers, memorised = ablation({}), ablation({8: 0.9, 32: 0.9, 4: 0.9, 64: 0.9}, subset=3.0)
    for name in ("unseen-below-floor", "subset-tracks-full", "single-degrades", "single-above-floor"):
        assert check(label, f"resolution-{name}", papers).verdict == Verdict.HOLDS
    assert check(label, "resolution-subset-tracks-full", memorised).verdict == Verdict.FAILS
    assert check(label, "resolution-single-degrades", memorised).verdict == Verdict.FAILS
    assert check(label, "resolution-range-not-architecture", papers).verdict == Verdict.HOLDS
    assert check(label, "resolution-range-not-architecture", memorised).verdict == Verdict.FAILS
    assert "24 and 96" in check(label, "resolution-beyond-the-grid", papers).note


def test_settings_are_compared_as_they_are_printed():
    rows = settings.setting_rows()
    assert all(isinstance(value, str) for row in rows for value in row.values())
    assert {row["agrees"] for row in rows if row["paper"] == settings.NOT_STATED} == {settings.NOT_STATED}
    unlike = {row["setting"] for row in rows if row["agrees"] not in (settings.YES, settings.NOT_STATED)}
    assert {"precision of the network", "learning rate of Adam"} <= unlike
    assert len(unlike) < 8
    assert settings.row("a", "b", 3e-4, 1e-3)["agrees"] == "no"


def test_the_printed_parameter_counts_are_those_of_the_networks():
    found = {line.name: settings.parameters(line) for line in settings.TABLE}
    assert found["Gaussian d=2"] == 114_690
    assert found["tomography"] == 115_335
    assert found["Gaussian d=16"] == 116_496
    assert found["mixture d=64"] == 122_688
    assert found["groundwater"] == 250_976


def test_bandwidths_agree_whatever_rounding_does_to_a_fifth_digit():
    rows = [{"paper": 3.9294, "ours": 3.92935, "agrees": settings.FOUR_DIGITS, "plain_median": 4.07286 * 3.9294}]
    data = {"bandwidths": rows}
    assert check("repro", "repro-bandwidths", data).verdict == Verdict.HOLDS
    assert check("repro", "repro-bandwidth-rule", data).verdict == Verdict.FAILS
    off = {"paper": 1.0, "ours": 1.1, "agrees": "off", "sampling_error": 0.01, "plain_median": 1.0}
    assert check("repro", "repro-bandwidths", {"bandwidths": [*rows, off]}).verdict == Verdict.FAILS


@pytest.mark.parametrize("toy", [gaussian_toy(4), mixture_toy(10)], ids=lambda toy: toy.name)
def test_the_score_by_densities_is_the_score(toy):
    assert cross_check(toy) < 1e-12
    wider = dataclasses.replace(toy, fixed_bandwidth=1.01 * toy.bandwidth)
    nodes = toy.draws(11, EVALUATION_SEED)
    weights = optimal_weights(nodes, toy.reference().embed(toy.kernel))
    values = [by_densities(nodes, weights, toy.target, t.bandwidth) for t in (toy, wider)]
    assert abs(values[1] / values[0] - 1.0) > 1e-4


def test_the_score_by_densities_against_many_atoms():
    target = Gaussian(torch.zeros(1, dtype=DTYPE), torch.eye(1, dtype=DTYPE))
    quantiles = scipy.stats.norm.ppf((np.arange(400) + 0.5) / 400)[:, None]
    nodes, weights = np.array([[-1.0], [0.3], [1.4]]), np.array([0.4, 0.7, -0.1])

    def kernel(x, z):
        return squared_exponential(x, z, 0.8)

    expected = mmd2_by_pairs(kernel, nodes, weights, quantiles, np.full(400, 1 / 400))
    found = by_densities(torch.tensor(nodes), torch.tensor(weights), target, 0.8)
    assert found == pytest.approx(expected, abs=2e-3)


def test_more_ridge_is_never_better():
    assert float(ridge_effect(gaussian_toy(2), 3)["ratio"]) >= 1.0 - 1e-9


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.slow
def test_quick_runs_write_figures_and_judge_their_claims(label, tmp_path, monkeypatch):
    monkeypatch.setenv("AMSIP_CACHE", str(tmp_path / "cache"))
    given = experiment(label)
    result, fresh = produce(given, tmp_path, quick=True, again=False, report=silent)
    assert fresh
    assert (tmp_path / f"{label}.png").stat().st_size > 10_000
    data = json.loads((tmp_path / f"{label}.json").read_text())["data"]
    assert data == result["data"]
    assert all(claim.check(data).note for claim in given.claims)
    assert given.headline(data)


def test_reweighting_against_the_floor_needs_no_network():
    # the arms that every figure shares: equal weights on the seeds, then optimal ones on the same seeds
    toy = gaussian_toy(2)
    seeds, embedding = toy.seed_sets(5, 3), toy.reference().embed(toy.kernel)
    found = arms.compare(seeds, embedding, {FLOOR: None, REWEIGHT: None})
    assert torch.equal(found[FLOOR]["nodes"], found[REWEIGHT]["nodes"])
    assert (found[FLOOR]["weights"] == 0.2).all()
    assert (found[REWEIGHT]["scores"] < found[FLOOR]["scores"]).all()
