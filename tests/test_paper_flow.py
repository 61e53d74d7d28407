"""The experiments on the flow's posteriors: charts, tasks, floors and images are what they are said to be."""

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from amsip.paper import flow_score, style
from amsip.paper.base import Run, Verdict
from amsip.paper.registry import experiment
from amsip.pretrained import SHIPPED
from amsip.problems.projector import RayProjector
from amsip.references.samples import Samples
from amsip.weights import uniform_weights

pytest.importorskip("zuko")

from amsip.paper import flow_cells, flow_controls, flow_findings, flow_images, flow_maps, flow_posterior
from amsip.paper.flow_cells import Charted
from amsip.paper.flow_posterior import KERNEL, Latent, Observed
from amsip.paper.produce import produce
from amsip.problems.conditional_flow import ConditionalFlow

DTYPE = torch.float64
needs_weights = pytest.mark.skipif(not (SHIPPED / "flow_tomography.safetensors").exists(), reason="no weights yet")


def seeded(number: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def silent(line: str) -> None:
    pass


def toy_observed(queries: int = 3, draws: int = 40, features: int = 7) -> Observed:
    """Banks of draws with scales of their own, images that tell which observation they are of."""
    scales = torch.rand(queries, 1, features, generator=seeded()) + 0.5
    coefficients = scales * torch.randn(queries, draws, features, generator=seeded(1)) + torch.arange(features)
    image = torch.arange(float(queries))[:, None, None, None].expand(queries, 1, 4, 4)
    flat = torch.zeros(queries, 16)
    return Observed(flat, image, flat, coefficients, torch.zeros(queries))


def toy_latent(features: int = 7, rank: int = 5) -> Latent:
    basis = torch.linalg.qr(torch.randn(features, features, generator=seeded(2), dtype=DTYPE))[0]
    return Latent(torch.randn(features, generator=seeded(3), dtype=DTYPE), basis[:, :rank], torch.tensor(0.9))


def test_the_latent_holds_the_leading_directions_of_all_draws_together():
    """Catches directions of the smallest variance, of one observation alone, and a mean that is not removed."""
    coefficients = toy_observed().coefficients
    found = flow_posterior.principal(coefficients, torch.tensor(2.0), 5)
    rows = coefficients.numpy().reshape(-1, 7).astype(float)
    values, vectors = np.linalg.eigh(np.cov(rows.T))
    assert np.allclose(np.abs(np.sum(vectors[:, ::-1][:, :5] * found.basis.numpy(), 0)), 1.0)
    assert np.allclose(found.mean.numpy(), rows.mean(0))
    assert math.isclose(found.retained.item(), values[::-1][:5].sum() / (values.sum() + 2.0))
    points = found.points(coefficients)
    assert torch.allclose(found.points(found.coefficients(points)), points)


def test_the_lift_of_the_covariance_is_relative():
    """Catches 1e-6 added as it stands: then whitened draws would depend on the unit of the images."""
    points = torch.randn(2, 30, 4, generator=seeded(), dtype=DTYPE)
    plain = flow_posterior.chart_of(points).forward(points)
    scaled = flow_posterior.chart_of(1e-4 * points).forward(1e-4 * points)
    assert torch.allclose(plain, scaled, atol=1e-9)
    assert torch.allclose(plain.mT @ plain / 30, torch.eye(4, dtype=DTYPE).expand(2, 4, 4), atol=1e-5)


def test_tasks_take_the_mean_from_the_first_half_and_seeds_from_all():
    found = toy_observed()
    tasks = flow_maps.FlowTasks.of(found, toy_latent(), 2)
    task = tasks.task(36, torch.tensor([2, 0]), seeded(4))
    atoms = tasks.draws[[2, 0]]
    half = Samples(atoms[:, :20]).embed(KERNEL)
    assert torch.allclose(task.embedding.mean(task.seeds), half.mean(task.seeds))
    assert torch.allclose(task.embedding.energy, half.energy)
    assert task.observation is not None
    assert task.observation[:, 0, 0, 0].tolist() == [2.0, 0.0]
    same = (task.seeds[:, :, None] == atoms[:, None]).all(-1)
    assert bool(same.any(-1).all()), "seeds are draws of their own observation"
    assert bool((same.sum(-2) <= 1).all()), "and distinct ones"
    assert bool(same[:, :, 20:].any()), "the second half among them"


def test_only_held_out_tasks_are_relative_to_the_floor():
    tasks = flow_maps.FlowTasks.of(toy_observed(draws=140), toy_latent(), 2)
    gauge = tasks.gauges(seeded())[0]
    plain = tasks.task(4, torch.arange(3), seeded())
    assert torch.equal(gauge.seeds, plain.seeds)
    score = flow_maps.relative_loss(plain.seeds, plain)
    assert torch.allclose(flow_maps.relative_loss(gauge.seeds, gauge), score / gauge.floor)
    floor = flow_cells.arms.scores_of(plain.seeds, uniform_weights(plain.seeds), plain.embedding)
    assert math.isclose(gauge.floor, floor.mean().item())


def test_fresh_scores_leave_out_pairs_of_a_draw_with_itself():
    charted = Charted.of(toy_observed(draws=26), toy_latent())
    nodes, weights = charted.seeds(4, 1)[0], torch.tensor([[0.5, 0.9, -0.6, 0.2]]).double().expand(3, 4)
    found = flow_cells.fresh_scores(nodes, weights, charted.fresh)

    def kernel(a, b):
        return math.exp(-float(np.sum((a - b) ** 2)) / 64.0)

    for query, value in enumerate(found):
        z, w, x = nodes[query].numpy(), weights[query].numpy(), charted.again[query].numpy()
        expected = sum(w[i] * w[j] * kernel(z[i], z[j]) for i in range(4) for j in range(4))
        expected -= 2.0 * sum(w[i] * kernel(z[i], row) for i in range(4) for row in x) / 13
        expected += sum(kernel(x[i], x[j]) for i in range(13) for j in range(13) if i != j) / (13 * 12)
        assert math.isclose(value.item(), expected, abs_tol=1e-12)


def test_the_second_bank_is_seen_through_the_chart_of_the_first():
    found, space = toy_observed(), toy_latent()
    charted = Charted.of(found, space)
    assert torch.allclose(charted.bank.mean(-2), torch.zeros(3, 5, dtype=DTYPE), atol=1e-10)
    whole = charted.chart.inverse(torch.cat([charted.bank, charted.again], -2))
    assert torch.allclose(whole, space.points(found.coefficients))
    assert torch.equal(charted.at(slice(1, 3)).again, charted.again[1:])


def test_seeds_are_distinct_rows_and_depend_on_observation_and_budget_alone():
    charted = Charted.of(toy_observed(draws=80), toy_latent())
    seeds = charted.seeds(16, 2)
    assert torch.equal(seeds, charted.seeds(16, 2))
    assert torch.equal(charted.at(slice(0, 2)).seeds(16, 2), seeds[:, :2])
    for observation in range(3):
        for one in seeds[:, observation]:
            assert len(torch.unique(one, dim=0)) == 16
    assert len(torch.unique(charted.seeds(40, 1, replacement=True)[0, 0], dim=0)) < 40


def test_distinct_rows_lower_the_floor_by_the_finite_population_factor():
    charted = Charted.of(toy_observed(queries=5, draws=48), toy_latent())
    row = flow_controls.deflation(charted, (4, 12))[1]
    assert row["predicted"] == pytest.approx(12.0 / 23.0)
    assert abs(row["distinct"] - row["predicted"]) < 5.0 * row["distinct_error"] + 5e-3
    assert abs(row["independent"] - 1.0) < 5.0 * row["independent_error"] + 5e-3


def test_how_many_points_the_estimate_needs_by_quadrature():
    x = np.linspace(-40.0, 40.0, 400_001)
    noise = np.exp(-0.5 * x**2 / 3.0) / math.sqrt(2.0 * math.pi * 3.0)
    density = np.exp(-0.5 * x**2)
    first, second = ((noise * density**power).sum() * (x[1] - x[0]) for power in (1, 2))
    assert flow_score.needed(3) == pytest.approx(3.0 * math.log10(second / first**2), rel=1e-6)


def test_the_score_in_the_chart_is_the_gradient_there(monkeypatch):
    """Catches a score that is pulled back the wrong way: by the inverse root, or not at all."""
    flow = ConditionalFlow(3, 2, transforms=1, width=8, bins=4, generator=seeded())
    with torch.no_grad():
        flow.slope.copy_(torch.randn(3, 2, generator=seeded(1)))
        flow.root.copy_(torch.eye(3) + torch.randn(3, 3, generator=seeded(3)).tril(-1))
    monkeypatch.setattr(flow_score, "trained_flow", lambda: SimpleNamespace(flow=flow))
    chart = flow_posterior.chart_of(
        torch.randn(2, 30, 3, generator=seeded(5), dtype=DTYPE) * torch.tensor([4.0, 1.0, 0.3])
    )
    target = flow_score.FlowTarget(chart, torch.randn(2, 2, generator=seeded(6)))
    points = torch.randn(2, 5, 3, generator=seeded(7), dtype=DTYPE)
    found, step = target.score(points), 1e-2
    for axis in range(3):
        move = torch.zeros(3, dtype=DTYPE)
        move[axis] = step
        slope = (target.log_prob(points + move) - target.log_prob(points - move)) / (2.0 * step)
        assert torch.allclose(found[..., axis], slope, rtol=1e-2, atol=2e-2)


def test_edges_that_no_ray_follows_are_those_the_projector_hardly_sees():
    """Catches axes swapped: stripes that vary along x have edges along y, where no ray runs."""
    projector = RayProjector(32, 30, 45, 64, 60.0)
    x, y = projector.centres.mT
    window = torch.exp(-4.0 * (x.square() + y.square()))
    upright, level = (torch.cos(18.0 * axis) * window for axis in (x, y))
    assert projector.project(upright).norm() < 0.3 * projector.project(level).norm()
    for image, dominant in ((upright, 0), (level, 1)):
        sets = flow_images.edge_sets(image, 60.0)
        assert sets[dominant].sum() > 4 * sets[1 - dominant].sum()


def test_a_packed_image_is_within_half_a_level():
    image = torch.randn(64, generator=seeded(), dtype=DTYPE)
    back = flow_images.unpacked(flow_images.packed(image)).flatten()
    assert (back - image).abs().max() <= (image.max() - image.min()) / 510 + 1e-12


@needs_weights
def test_the_whole_bank_with_equal_weights_has_the_flows_own_mean_and_spread():
    """Catches weights that are not applied, moments about another mean, and a basis that is not orthonormal."""
    coefficients = flow_posterior.trained_flow().images.variance.sqrt() * torch.randn(2, 160, 128, generator=seeded())
    found = dataclasses.replace(toy_observed(2), coefficients=coefficients)
    space = flow_posterior.principal(coefficients, torch.tensor(0.0))
    charted = Charted.of(found, space)
    nodes, weights = charted.bank[:, None], torch.full((2, 1, 80), 1.0 / 80, dtype=DTYPE)
    measured = flow_images.against_the_flow(charted, space, *flow_images.moments(charted, nodes, weights))
    assert float(measured["error"]) < 1e-6
    assert float(measured["std"]) == pytest.approx(1.0, abs=1e-4)
    assert float(measured["trace"]) == pytest.approx(1.0, abs=1e-4)
    moved = flow_images.moments(charted, nodes + 0.1, weights)
    off = flow_images.against_the_flow(charted, space, *moved)
    own, whole = flow_images.flow_means(charted, space)
    shift = charted.chart.inverse(charted.bank + 0.1).mean(-2) - space.points(coefficients[:, :80]).mean(-2)
    expected = (shift.norm(dim=-1) / whole.norm(dim=-1)).median()
    assert float(off["error"]) == pytest.approx(float(expected), rel=1e-4)
    assert (own - whole).norm() > 0


def test_a_filter_that_never_acts_decides_nothing():
    claims = {claim.name: claim for claim in experiment("dq-cnf-mmd").claims}
    for share, verdict in ((0.0, Verdict.UNTESTABLE), (0.01, Verdict.HOLDS)):
        data = {"coverage": {"rejected": share, "worst": 2.0 * share}}
        assert claims["cnf-few-rejected"].check(data).verdict == verdict


def test_a_floor_that_hardly_moves_is_no_moving_discrepancy():
    for std, noise, verdict in (
        (0.2, 0.01, Verdict.HOLDS),
        (0.02, 0.001, Verdict.CONDITION),
        (0.002, 0.001, Verdict.FAILS),
    ):
        data = {"shape": {"floor": {"std": std, "noise": noise}, "energy": 0.38, "gaussian_energy": 0.38}}
        assert flow_findings.discrepancy_moves(data).verdict == verdict


@needs_weights
@pytest.mark.slow
@pytest.mark.parametrize("label", ["dq-cnf-mmd", "dq-cnf-recon"])
def test_a_quick_run_of_each_is_drawn_and_judged(label, tmp_path, monkeypatch):
    monkeypatch.setenv("AMSIP_CACHE", str(tmp_path / "cache"))
    given = experiment(label)
    result, _ = produce(given, tmp_path, quick=True, again=False, report=silent)
    assert len(given.headline(result["data"])) > 10
    assert all(claim.check(result["data"]).note for claim in given.claims)
    assert style.drawn(given.draw, json.loads((tmp_path / f"{label}.json").read_text())["data"], "pdf")
    assert (tmp_path / f"{label}.json").stat().st_size < 300_000


@needs_weights
def test_a_network_is_fitted_once_with_its_curve(tmp_path, monkeypatch):
    monkeypatch.setattr(flow_posterior, "QUICK", flow_posterior.Sizes(6, 80, 2, 80, 3))
    monkeypatch.setattr(flow_maps, "QUICK_CHECKED", 2)
    run = Run(True, tmp_path, silent)
    first = flow_maps.flow_map(run, 1)
    digest = flow_maps.map_file(run, 1).read_bytes()
    again = flow_maps.flow_map(run, 1)
    assert flow_maps.map_file(run, 1).read_bytes() == digest
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    found = flow_maps.curve(run, 1)
    assert len(found["held_out"]) * found["every"] == found["steps"]
    assert found["schedule"] == flow_maps.SHORT


def test_spread_on_blind_edges_must_show_in_the_whole_image_too():
    claim = next(c for c in experiment("dq-cnf-recon").claims if c.name == "cnf-recon-geometry")
    sharp, even = {"blind": 3.0, "seen": 2.0, "elsewhere": 1.0}, {"blind": 2.0, "seen": 2.0, "elsewhere": 1.0}
    for inside, whole, verdict in (
        (sharp, sharp, Verdict.HOLDS),
        (sharp, even, Verdict.CONDITION),
        (even, sharp, Verdict.FAILS),
    ):
        assert claim.check({"cases": [{"edges": inside, "full_edges": whole}]}).verdict == verdict


def test_a_pass_far_above_the_optimum_does_not_follow_it():
    for warm, verdict in ((0.15, Verdict.HOLDS), (0.5, Verdict.CONDITION), (0.08, Verdict.FAILS)):
        shares = {"warm": warm, "finetuned": 0.1, "universal": 0.1}
        rows = [{"arm": arm, "m": 4, "ratio": ratio} for arm, ratio in shares.items()]
        assert flow_findings.from_above({"rows": rows}).verdict == verdict
