"""The tomography experiments of the paper: what they measure is what they say, and what is committed follows."""

import json
import math

import numpy as np
import pytest
import torch

from amsip.paper import arms, frontier, tomography_integrals, tomography_pixels
from amsip.paper.base import Run, Verdict
from amsip.paper.dq_downstream_integral import EXPERIMENT as INTEGRALS
from amsip.paper.finetune_frontier import EXPERIMENT as FRONTIER
from amsip.paper.produce import produce
from amsip.paper.registry import experiment
from amsip.paper.results import COMMITTED
from amsip.paper.tomography import MEDIAN, TABULATED, latents, problem
from amsip.problems.toys import gaussian_toy

LABELS = ("dq-tomography-mmd", "dq-tomography-calibration", "dq-downstream-integral", "finetune-frontier")


def silent(line: str) -> None:
    pass


def sigma_points(repeats: int):
    """A rule whose mean and covariance are exactly those of the latent posterior."""
    std = problem().latent_cov.diagonal().sqrt()
    steps = math.sqrt(len(std)) * torch.diag(std)
    nodes = torch.cat([steps, -steps]).expand(2, repeats, -1, -1)
    return nodes, torch.full(nodes.shape[:-1], 0.5 / len(std), dtype=torch.float64)


def test_a_rule_with_the_exact_covariance_is_calibrated():
    found = tomography_pixels.calibration(*sigma_points(3))
    assert float(found["ratio"]) == pytest.approx(1.0, abs=1e-12)
    assert float(found["trace"]) == pytest.approx(1.0, abs=1e-12)
    assert found["correlation"] == pytest.approx(1.0, abs=1e-12)


def test_a_contracted_rule_shows_by_its_factor():
    nodes, weights = sigma_points(3)
    found = tomography_pixels.calibration(0.8 * nodes, weights)
    assert float(found["ratio"]) == pytest.approx(0.8, abs=1e-12)
    assert float(found["trace"]) == pytest.approx(0.64, abs=1e-12)


def test_pooling_is_the_covariance_of_the_mixture():
    generator = np.random.default_rng(0)
    nodes, weights = generator.normal(size=(3, 5, 2)), generator.dirichlet(np.ones(5), size=3)
    flat, mass = nodes.reshape(15, 2), weights.reshape(15) / 3.0
    mean = mass @ flat
    expected = sum(w * np.outer(x - mean, x - mean) for x, w in zip(flat, mass, strict=True))
    first = torch.tensor(np.einsum("km,kmi->ki", weights, nodes))
    second = torch.tensor(np.einsum("km,kmi,kmj->kij", weights, nodes, nodes))
    assert np.allclose(tomography_pixels.pooled_cov(first, second).numpy(), expected, atol=1e-12)


def test_truths_of_the_integrands_are_their_gaussian_expectations():
    places = np.linspace(-12.0, 12.0, 2_000_001)
    density = np.exp(-0.5 * places**2) / math.sqrt(2.0 * math.pi)
    for name, integrand in tomography_integrals.INTEGRANDS.items():
        values = integrand.f(torch.tensor(places)).numpy()
        assert np.sum(values * density) * (places[1] - places[0]) == pytest.approx(integrand.truth, rel=2e-4), name


def test_errors_of_a_known_rule():
    values = torch.tensor([[[3.0], [0.0]], [[0.0], [0.0]]], dtype=torch.float64)
    weights = torch.full((2, 2, 1), 0.5, dtype=torch.float64)
    row = next(r for r in tomography_integrals.errors(values, weights) if r["integrand"] == "beyond 2")
    truth = 0.5 * math.erfc(2.0 / math.sqrt(2.0))
    assert row["median"] == pytest.approx(0.25)
    assert float(row["bias"]) == pytest.approx(0.25 - truth)
    assert float(row["rmse"]) == pytest.approx(math.sqrt(0.5 * ((0.5 - truth) ** 2 + truth**2)))
    assert float(row["nothing"]) == 0.5


def test_quantities_are_standardised():
    draws = latents()[TABULATED].draws(20000, rng_seed=3)[None]
    for values in tomography_integrals.quantities(draws).values():
        assert (values.std(-2) - 1.0).abs().max() < 5.0 / math.sqrt(40000)


def test_a_lone_point_contracts_as_the_smoothed_gaussian_says():
    toy = gaussian_toy(2)
    largest = torch.linalg.eigvalsh(toy.reference().cov).max().item()
    for factor, kept in zip((0.5, 3.0), frontier.contraction(toy, (0.5, 3.0)), strict=True):
        assert kept == pytest.approx(largest / (largest + (factor * toy.bandwidth) ** 2), abs=1e-10)


def row(arm: str, m: int, median: float, integrand: str = "beyond 2.5", **more: float) -> dict:
    return {
        "arm": arm,
        "m": m,
        "integrand": integrand,
        "directions": "leading",
        "median": median,
        "rmse": median,
        "bias": 0.0,
        "nothing": 0.0,
        **more,
    }


def test_tails_returned_as_zero_do_not_count_as_integrated():
    claim = next(c for c in INTEGRALS.claims if c.name == "downstream-tails-are-estimated")
    every = ("iid", "warm", "finetuned", "warm-median", "default")
    for share, verdict in ((0.9, Verdict.FAILS), (0.1, Verdict.HOLDS)):
        rows = [row(arm, m, 0.006, nothing=share if arm == "warm" else 0.0) for arm in every for m in (4, 8)]
        found = claim.check({"rows": rows, "truths": {"beyond 2.5": 0.0062}})
        assert (found.verdict, found.number) == (verdict, share)


def test_a_tie_with_draws_is_no_win():
    claim = next(c for c in INTEGRALS.claims if c.name == "downstream-tails-beat-draws")
    rows = [
        {**row(arm, m, 0.02 if arm == "iid" or m == 4 else 0.01, name), "directions": kind}
        for arm in ("iid", "warm", "default")
        for m in (4, 8)
        for name in ("beyond 2", "beyond 2.5")
        for kind in ("leading", "random")
    ]
    found = claim.check({"rows": rows})
    assert (found.verdict, found.number) == (Verdict.CONDITION, 1.0)


def part(name: str, seeds: str, warm: list[float], cold: list[float], emission: float) -> dict:
    lines = [
        {"reading": reading, "start": start, "median": median}
        for reading in ("closed form", "score")
        for start, median in (("warm", warm), ("cold", cold))
    ]
    quartiles = [emission] * 3
    return {"case": name, "seeds": seeds, "floor": 1.0, "emission": quartiles, "descent": quartiles, "lines": lines}


def frontier_data(tomography: list[float]) -> dict:
    cases = {"gaussian-2": [0.5, 0.2, 0.1], "tomography-7": tomography, "tomography-7-median": [0.1, 0.05, 0.02]}
    parts = [
        part(name, seeds, warm, [2.0, 1.0, 0.95], warm[0] if seeds == "exact" else 1.5)
        for name, warm in cases.items()
        for seeds in ("exact", "dataset")
    ]
    return {"parts": parts, "kept": {"gaussian-2": [0.9], "tomography-7": [0.8]}}


def test_the_frontier_notices_a_climb():
    climbs, falls = frontier_data([0.6, 0.9, 0.93]), frontier_data([0.6, 0.5, 0.4])
    claim = next(c for c in FRONTIER.claims if c.name == "frontier-below-emission")
    assert claim.check(falls).verdict == Verdict.HOLDS
    found = claim.check(climbs)
    assert found.verdict == Verdict.CONDITION
    assert found.number == pytest.approx(0.93 / 0.6)
    toward = next(c for c in FRONTIER.claims if c.name == "frontier-toward-floor")
    assert toward.check(falls).number == pytest.approx(0.6)


@pytest.mark.parametrize("name", [TABULATED, MEDIAN])
def test_committed_scores_come_out_again(name):
    path = COMMITTED / "dq-tomography-mmd.json"
    if not path.exists():
        pytest.skip("no committed result")
    data, toy = json.loads(path.read_text())["data"], latents()[name]
    maps = {arms.FLOOR: None, arms.REWEIGHT: None}
    found = arms.compare(toy.seed_sets(8, 256), toy.reference().embed(toy.kernel), maps)
    for arm in maps:
        committed = arms.row_of(data["rows"][name], arm, 8)
        assert committed["median"] == pytest.approx(float(arms.middle(found[arm]["scores"])), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_quick_runs_write_figures_and_judge_their_claims(label, tmp_path, monkeypatch):
    monkeypatch.setenv("AMSIP_CACHE", str(tmp_path / "cache"))
    given = experiment(label)
    result, fresh = produce(given, tmp_path, quick=True, again=False, report=silent)
    assert fresh
    assert (tmp_path / f"{label}.png").stat().st_size > 10_000
    verdicts = {claim.name: claim.check(result["data"]).verdict for claim in given.claims}
    assert len(verdicts) >= 6


@pytest.mark.slow
def test_a_frontier_starts_at_its_emission_and_resumes_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("AMSIP_CACHE", str(tmp_path / "cache"))
    found = frontier.frontier(Run(True, tmp_path, silent), frontier.GAUSSIAN, frontier.EXACT_SEEDS)
    warm = next(line for line in found["lines"] if (line["reading"], line["start"]) == ("closed form", "warm"))
    assert float(warm["median"][0]) == pytest.approx(float(found["emission"][1]), rel=1e-6)
    assert warm["evaluations"][:3] == [0, 32, 64]
