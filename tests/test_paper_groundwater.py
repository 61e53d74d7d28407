"""The groundwater figures, on a small problem: queries, cells, fields, regressions and what is said about them."""

import json
import math

import numpy as np
import pytest
import torch
from oracles import median_squared_distance, responsibilities, weighted_moments

from amsip import Samples, mmd2, optimal_weights, uniform_weights
from amsip.paper import arms, dq_darcy_mmd, dq_darcy_recon
from amsip.paper.arms import FINETUNED, FLOOR, REWEIGHT, UNIVERSAL, WARM
from amsip.paper.base import Run, Verdict, plain
from amsip.paper.groundwater import BROAD, SHARP, SHOWN, Groundwater, QueryTasks, Sizes, seed_sets
from amsip.paper.groundwater_cells import cell, query_interval, ratios, repeated_share
from amsip.paper.groundwater_controls import PLAIN, PRINTED, drives, refinements, regression
from amsip.paper.groundwater_fields import Fields, accuracy, agreement, coverage, explained, regressed
from amsip.paper.produce import produce
from amsip.paper.registry import experiment
from amsip.paper.style import drawn
from amsip.problems.darcy import Darcy
from amsip.problems.karhunen import KarhunenPrior
from amsip.rules import Rule

LABELS = ("dq-darcy-mmd", "dq-darcy-recon")
DTYPE = torch.float64
SIZES = Sizes(150, 11, 5)


def silent(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def ground() -> Groundwater:
    problem = Darcy(KarhunenPrior(coefficients=40), grid=11, sensors=4)
    generator = torch.Generator().manual_seed(3)
    coefficients = problem.prior.sample(SIZES.rows, generator=generator)
    return Groundwater(problem, coefficients, problem.observe(coefficients, generator=generator), SIZES)


def points(*shape: int, rng_seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=DTYPE, generator=torch.Generator().manual_seed(rng_seed))


def check(label: str, name: str, data):
    return next(claim for claim in experiment(label).claims if claim.name == name).check(data)


def test_rows_serve_one_purpose_each(ground):
    assert (ground.queries.start, ground.queries.stop) == (150, 155)
    assert (ground.shown.start, ground.shown.stop) == (155, 158)
    assert len(ground.latent) == SIZES.rows == 158
    # standardised on the atoms alone
    assert ground.latent[:150].mean(0).abs().max() < 1e-12
    assert (ground.latent[:150].std(0) - 1.0).abs().max() < 1e-12


@pytest.mark.parametrize(("reading", "divided"), [(SHARP, 2.0 * math.log(151)), (BROAD, 1.0)])
def test_both_readings_of_half_the_median_heuristic(ground, reading, divided):
    features = ground.features[:150].numpy()
    expected = 0.5 * math.sqrt(median_squared_distance(features) / divided)
    assert ground.conditional(reading).sigma_y == pytest.approx(expected)


def test_the_conditional_mean_is_that_of_the_responsibilities(ground):
    sigma = ground.conditional(BROAD).sigma_y
    weights = responsibilities(ground.features[:150].numpy(), ground.features[ground.queries].numpy(), sigma)
    exact = weights @ ground.latent[:150].numpy()
    # the atoms beyond 99% of the responsibility are dropped
    assert np.abs(ground.posterior(BROAD).moments()[0].numpy() - exact).max() < 0.05


def test_features_are_unwhitened_scores_of_the_atoms(ground):
    scores = ground.features[:150]
    cov = torch.cov(scores.T)
    assert (cov - torch.diag(ground.components[2][:32])).abs().max() < 1e-10
    assert ground.components[2][0] > 10 * ground.components[2][20]


def test_training_leaves_the_own_atom_out_and_keeps_the_energies(ground):
    tasks = QueryTasks.of(ground, SHARP)
    for query in range(SIZES.training):
        assert not (tasks.posterior.atoms[query] == ground.latent[query]).all(-1).any()
    task = tasks(torch.Generator().manual_seed(0))
    seeds, own = task.seeds[0], torch.cdist(task.seeds[0], tasks.posterior.atoms.flatten(0, 1)).amin(-1)
    assert len(seeds) in arms.BUDGETS
    assert own.max() < 1e-5
    atoms, shares = tasks.posterior.atoms[0], tasks.posterior.normalised_weights[0]
    exact = Samples(atoms, shares).embed(ground.kernel).energy
    assert float(tasks.energy[0]) == pytest.approx(float(exact), rel=1e-10)


def test_seeds_are_atoms_that_carry_weight(ground):
    posterior = ground.posterior(SHARP)
    seeds = seed_sets(posterior, 6, 3)
    assert seeds.shape == (5, 3, 6, 32)
    for query in range(5):
        carrying = posterior.atoms[query][posterior.normalised_weights[query] > 0]
        nearest = torch.cdist(seeds[query].flatten(0, 1), carrying).amin(-1)
        assert nearest.max() < 1e-5


def test_a_cell_scores_every_set_against_its_own_query(ground):
    posterior = ground.posterior(SHARP)
    seeds = seed_sets(posterior, 4, 3)
    rows = cell(posterior, posterior.embed(ground.kernel), seeds, {WARM: lambda nodes, embedding: nodes}, {})
    scores = []
    for query in range(5):
        own = Samples(posterior.atoms[query], posterior.normalised_weights[query]).embed(ground.kernel)
        scores += [float(mmd2(part, uniform_weights(part), own)) for part in seeds[query]]
    assert rows[0]["arm"] == FLOOR
    assert rows[0]["median"] == pytest.approx(float(np.median(scores)), rel=1e-9)
    assert (rows[0]["sets"], rows[0]["queries"], rows[0]["ratio"]) == (15, 5, 1.0)
    # a map that moves nothing is reweighting
    found = {row["arm"]: row["median"] for row in rows}
    assert found[WARM] == found[REWEIGHT] < found[FLOOR]
    assert ratios(rows, WARM) == [pytest.approx(found[WARM] / found[FLOOR])]


def test_intervals_resample_queries_with_all_their_sets():
    generator = torch.Generator().manual_seed(0)
    by_query = torch.rand(20, generator=generator, dtype=DTYPE) + 0.5
    # 50 sets of a query agree: they are no more evidence than one
    many, one = (
        query_interval(by_query.repeat(50), torch.ones(1000, dtype=DTYPE), 20),
        query_interval(by_query, torch.ones(20, dtype=DTYPE), 20),
    )
    assert many[1] - many[0] == pytest.approx(one[1] - one[0], rel=0.15)
    assert many[1] - many[0] > 0.1


def test_repeats_are_counted_once_each():
    seeds = torch.tensor([[[1.0], [1.0], [1.0], [2.0], [3.0]]])
    assert repeated_share(seeds) == pytest.approx(2.0 / 5.0)


def test_two_drives_tell_what_eight_tell(ground):
    found = drives(ground)
    assert (found["readings"], found["rank"]) == (128, 32)
    clean = Groundwater(ground.problem, ground.coefficients, ground.problem.forward(ground.coefficients), SIZES)
    two, eight = regression(clean, [0, 4])["predicted"], regression(clean, list(range(8)))["predicted"]
    assert (two - eight).abs().max() < 1e-6


def test_means_and_deviations_of_fields(ground):
    fields, latent = Fields(ground), ground.latent[:20]
    assert (fields.mean(latent) - ground.field(latent).flatten(-2)).abs().max() < 1e-12
    weights = torch.rand(20, generator=torch.Generator().manual_seed(1), dtype=DTYPE)
    weights /= weights.sum()
    _, cov = weighted_moments(latent.numpy(), weights.numpy())
    _, pixels = weighted_moments(ground.field(latent).flatten(-2).numpy(), weights.numpy())
    assert np.allclose(fields.std(torch.tensor(cov)).numpy(), np.sqrt(np.diag(pixels)))


def test_a_rule_that_is_its_reference_agrees_with_it(ground):
    posterior = ground.posterior(SHARP)
    rule = Rule(posterior.atoms, posterior.normalised_weights)
    found = agreement(Fields(ground), rule, posterior.moments())
    assert found["error"].max() < 1e-10
    assert (found["ratio"] - 1.0).abs().max() < 1e-10
    assert (found["correlation"] - 1.0).abs().max() < 1e-10
    half = agreement(Fields(ground), Rule(0.5 * posterior.atoms, posterior.normalised_weights), posterior.moments())
    assert (half["ratio"] - 0.5).abs().max() < 1e-10
    # a field that is nowhere near zero would hide an error in the mean
    assert half["error"].min() > 0.2


def test_a_regression_does_not_see_what_it_predicts():
    inputs, noise = points(40, 20), points(40, 3, rng_seed=1)
    assert explained(regressed(inputs, noise, 25), noise[25:]) < 0.0
    truth = inputs[:, :3] @ points(3, 3, rng_seed=2) + 1.0
    assert (regressed(inputs, truth, 25) - truth[25:]).abs().max() < 1e-10


def test_point_estimates_are_measured_in_the_latent_and_on_the_field(ground):
    truth = ground.latent[SIZES.atoms :]
    rows = accuracy(ground, Fields(ground), {"truth": truth, "nothing": 0.0 * truth + 1e-9})
    right, nothing = rows["rows"]["truth"], rows["rows"]["nothing"]
    assert (right["r2"], float(right["amplitude"])) == (1.0, pytest.approx(1.0))
    assert nothing["r2"] == pytest.approx(0.0, abs=1e-6)
    # with the truth itself all that is missing is what the truncated modes held
    assert right["field_r2"] == pytest.approx(rows["kept"])
    assert 0.8 < rows["kept"] < 1.0


def test_coverage_is_of_errors_in_deviations(ground):
    fields, truth = Fields(ground), points(200, 32)
    exact = coverage(fields, torch.zeros(200, 32, dtype=DTYPE), torch.eye(32, dtype=DTYPE).expand(200, 32, 32), truth)
    assert float(exact["z"]) == pytest.approx(1.0, abs=0.1)
    assert float(exact["inside"]) == pytest.approx(0.9, abs=0.04)


def recon_data(**changes) -> dict:
    interval = {"median": 0.05, "interval": [0.04, 0.06]}
    wide = {"median": 0.2, "interval": [0.18, 0.22]}
    single = {
        arm: {"error": wide if arm == FLOOR else interval, "ratio": interval, "correlation": interval}
        for arm in (FLOOR, REWEIGHT, WARM, FINETUNED, UNIVERSAL)
    }
    single["coverage"] = {name: {"inside": 0.9, "z": 1.0} for name in ("conditional", WARM, FLOOR, UNIVERSAL)}
    pooled = {
        arm: {"error": [error] * SHOWN, "ratio": [1.0] * SHOWN, "correlation": [0.99] * SHOWN}
        for arm, error in ((FLOOR, changes.get("draws", 0.02)), (WARM, 0.015), (UNIVERSAL, 0.01))
    }
    known = {"r2_coarse": 0.7, "field_r2": 0.7, "correlation": 0.8, "correlation_kept": 0.8, "amplitude": 0.4}
    r2 = {SHARP: 0.24, BROAD: 0.08, dq_darcy_recon.READING: 0.8, dq_darcy_recon.BEST: changes.get("regression", 0.9)}
    estimates = {"rows": {name: {**known, "r2": value} for name, value in r2.items()}, "kept": 0.96, "fields": 67}
    estimates |= {"left": changes.get("left", 0.15), "stated": {SHARP: 0.5, BROAD: 0.6}}
    sizes = {"m": 64, "pool": 64, "queries": 64, "atoms": 20000}
    return {"single": single, "pooled": {"rows": pooled}, "estimates": estimates, **sizes}


def test_the_fields_are_judged_against_regression_and_draws():
    label = "dq-darcy-recon"
    assert check(label, "darcy-mean-matches", recon_data()).verdict == Verdict.HOLDS
    assert check(label, "darcy-pooling-pays", recon_data()).verdict == Verdict.HOLDS
    assert check(label, "darcy-pooling-pays", recon_data(draws=0.01)).verdict == Verdict.CONDITION
    assert check(label, "darcy-forward-map-uninformative", recon_data()).verdict == Verdict.FAILS
    assert check(label, "darcy-forward-map-uninformative", recon_data(regression=0.26)).verdict == Verdict.HOLDS
    assert check(label, "darcy-uncertainty-of-the-field", recon_data()).verdict == Verdict.CONDITION
    assert check(label, "darcy-uncertainty-of-the-field", recon_data(left=0.5)).verdict == Verdict.HOLDS
    assert check(label, "darcy-truncation-floor", recon_data()).verdict == Verdict.FAILS


def test_moving_is_measured_against_reweighting_in_all_coordinates():
    spaces = [
        {"space": space, "rule": rule, REWEIGHT: 0.2, FINETUNED: 0.199 if space == "ambient" else 0.05}
        for space in ("informed", "ambient")
        for rule in ("log rule", "plain median")
    ]
    assert check("dq-darcy-mmd", "darcy-ambient-wall", {"ambient": spaces}).verdict == Verdict.HOLDS
    spaces[-1][FINETUNED] = 0.01
    found = check("dq-darcy-mmd", "darcy-ambient-wall", {"ambient": spaces})
    assert (found.verdict, found.number) == (Verdict.CONDITION, pytest.approx(0.995))


def test_a_refinement_starts_at_the_emission(ground, tmp_path):
    rows = refinements(Run(True, tmp_path, silent), ground, lambda nodes, embedding: nodes)
    own = next(row for row in rows if row["variation"] == PRINTED)
    posterior = ground.posterior(SHARP)
    seeds, embedding = seed_sets(posterior, own["m"], 1)[:, 0], posterior.embed(ground.kernel)
    exact = mmd2(seeds, optimal_weights(seeds, embedding), embedding)
    assert float(own["scores"][0]) == pytest.approx(float(exact.median()), rel=1e-6)
    assert float(own["ratio"]) == pytest.approx(float(own["scores"][-1] / own["scores"][0]))
    assert len(own["scores"]) == len(own["rank"]) == own["steps"] + 1
    assert {row["m"] for row in rows} == {8, 16}


def refined(ratio: float, rank: float) -> dict:
    row = {"m": 32, "steps": 60, "scores": [1.0, ratio], "rank": [1.0, rank], "ess": [0.9, 0.8], "ratio": ratio}
    row["ratio_interval"] = [0.95 * ratio, 1.05 * ratio]
    plain_median = {**row, "variation": PLAIN, "ratio": 0.1, "ratio_interval": [0.05, 0.2]}
    return {"refined": [{**row, "variation": PRINTED}, plain_median]}


def test_a_descent_below_the_emission_refutes_the_stall():
    stalls, collapses = "darcy-refinement-stalls", "darcy-refinement-collapses"
    for name, good, bad in ((stalls, (1.3, 1.0), (0.3, 1.0)), (collapses, (1.0, 0.1), (1.0, 0.9))):
        assert check("dq-darcy-mmd", name, refined(*good)).verdict == Verdict.HOLDS
        assert check("dq-darcy-mmd", name, refined(*bad)).verdict == Verdict.FAILS


@pytest.mark.parametrize("module", [dq_darcy_mmd, dq_darcy_recon], ids=LABELS)
@pytest.mark.slow
def test_figures_of_a_small_problem(module, ground, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "groundwater", lambda run: ground)
    data = plain(module.EXPERIMENT.compute(Run(True, tmp_path, silent)))
    data = json.loads(json.dumps(data, allow_nan=False))
    assert len(drawn(module.EXPERIMENT.draw, data, "png")) > 10_000
    assert all(claim.check(data).note for claim in module.EXPERIMENT.claims)
    assert module.EXPERIMENT.headline(data)


@pytest.mark.slow
def test_quick_run_from_an_empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AMSIP_CACHE", str(tmp_path / "cache"))
    result, fresh = produce(experiment("dq-darcy-recon"), tmp_path, quick=True, again=False, report=silent)
    assert fresh
    assert result["data"]["m"] == 16
