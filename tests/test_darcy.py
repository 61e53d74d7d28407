import itertools
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from amsip.problems.darcy import Darcy
from amsip.problems.darcy_bank import DarcyBank
from amsip.problems.elliptic import BlockCholesky, Faces, pressure
from amsip.problems.karhunen import KarhunenPrior

SMALL = Darcy(KarhunenPrior(coefficients=37, length=0.3, deviation=0.8), grid=13, sensors=3, drives=5, noise=0.01)


def drawn(problem, n, seed=0):
    return problem.prior.sample(n, generator=torch.Generator().manual_seed(seed))


# the prior


def test_field_is_the_sum_of_its_modes():
    prior = KarhunenPrior(coefficients=11, length=0.2, deviation=0.9)
    xi = prior.sample(1, generator=torch.Generator().manual_seed(0))[0].numpy()
    s = np.linspace(0.0, 1.0, 7)
    expected = np.zeros((7, 7))
    for k, (i, j) in enumerate(prior.modes.tolist()):
        height = math.sqrt(prior.variances[k] * (1 + (i > 0)) * (1 + (j > 0)))
        for row in range(7):
            for column in range(7):
                cosines = math.cos(i * math.pi * s[row]) * math.cos(j * math.pi * s[column])
                expected[row, column] += xi[k] * height * cosines
    assert np.allclose(prior.field(torch.from_numpy(xi), 7).numpy(), expected, atol=1e-13)


def test_modes_are_the_smallest_waves_without_the_constant():
    modes = KarhunenPrior().modes
    kept = {tuple(mode) for mode in modes.tolist()}
    assert len(kept) == 1024
    assert (0, 0) not in kept
    largest = max(i * i + j * j for i, j in kept)
    inside = {(i, j) for i in range(64) for j in range(64) if 0 < i * i + j * j < largest}
    assert inside <= kept


def test_spectrum_has_the_length_and_the_deviation_asked_for():
    prior = KarhunenPrior()
    spectrum = [(1 / 0.26**2 + math.pi**2 * (i * i + j * j)) ** -2 for i, j in prior.modes.tolist()]
    assert np.allclose(prior.variances.numpy(), 0.75**2 * np.array(spectrum) / sum(spectrum), rtol=1e-12)
    assert (prior.variances.diff() <= 0).all()


def test_mean_pointwise_variance_is_the_square_of_the_deviation():
    # the trapezoid rule is exact for products of these cosines
    weights = torch.ones(81, dtype=torch.float64)
    weights[[0, -1]] = 0.5
    weights /= 80
    mean = weights @ KarhunenPrior().pointwise_variance(81) @ weights
    assert abs(mean - 0.75**2) < 1e-12


def test_coefficients_have_unit_variance_in_drawn_fields():
    # projects drawn fields back on the modes: catches a wrong normalisation of the cosines
    prior = KarhunenPrior(coefficients=23)
    fields = prior.field(prior.sample(2000, generator=torch.Generator().manual_seed(1)), 13)
    unit = prior.field(torch.eye(23, dtype=torch.float64), 13) / prior.variances.sqrt()[:, None, None]
    weights = torch.full((13,), 1 / 12, dtype=torch.float64)
    weights[[0, -1]] *= 0.5
    scores = fields.flatten(1) @ (unit * weights[:, None] * weights).flatten(1).T
    relative = scores.square().mean(0) / prior.variances
    assert (relative - 1).abs().max() < 5 * math.sqrt(2 / 2000)


def test_leading_coefficients_give_the_field_without_the_others():
    prior = KarhunenPrior(coefficients=29)
    xi = prior.sample(2, generator=torch.Generator().manual_seed(3))
    cut = xi.clone()
    cut[:, 5:] = 0.0
    assert torch.allclose(prior.field(xi[:, :5], 9), prior.field(cut, 9), atol=1e-14)


# the scheme


def manufactured(n):
    """u, p and f = -div(e^u grad p) by hand, p = sin(pi x) exp(y) + x y^2, u = sin(2x) cos(y) + x."""
    s = torch.linspace(0.0, 1.0, n, dtype=torch.float64)
    x, y = s[:, None].expand(n, n), s[None, :].expand(n, n)
    u = torch.sin(2 * x) * torch.cos(y) + x
    ux, uy = 2 * torch.cos(2 * x) * torch.cos(y) + 1, -torch.sin(2 * x) * torch.sin(y)
    p = torch.sin(math.pi * x) * y.exp() + x * y**2
    px, py = math.pi * torch.cos(math.pi * x) * y.exp() + y**2, torch.sin(math.pi * x) * y.exp() + 2 * x * y
    laplacian = (1 - math.pi**2) * torch.sin(math.pi * x) * y.exp() + 2 * x
    return u, p, -u.exp() * (ux * px + uy * py + laplacian)


def test_order_of_convergence_on_a_manufactured_solution():
    errors = []
    for n in (11, 21, 41, 81):
        u, p, f = manufactured(n)
        errors.append((pressure(u, p[None], f[None])[0] - p).abs().max().item())
    orders = [math.log2(a / b) for a, b in itertools.pairwise(errors)]
    assert min(orders) >= 1.9


def test_matrix_is_the_five_point_scheme_solved_by_a_general_sparse_solver():
    sparse = pytest.importorskip("scipy.sparse")
    linalg = pytest.importorskip("scipy.sparse.linalg")
    n = 9
    u = torch.randn(n, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    g = torch.randn(1, n, n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    a, held = np.exp(u.numpy()), g[0].numpy()
    rows, columns, entries, right = [], [], [], np.zeros(n * n)
    for i in range(n):
        for j in range(n):
            here = i * n + j
            if i in (0, n - 1) or j in (0, n - 1):
                rows.append(here), columns.append(here), entries.append(1.0)
                right[here] = held[i, j]
                continue
            for k, m in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
                face = 0.5 * (a[i, j] + a[k, m])
                rows.extend([here, here]), columns.extend([here, k * n + m]), entries.extend([face, -face])
    matrix = sparse.csc_matrix((entries, (rows, columns)), shape=(n * n, n * n))
    expected = linalg.splu(matrix).solve(right).reshape(n, n)
    assert np.allclose(pressure(u, g)[0].numpy(), expected, rtol=1e-11, atol=1e-11)


def test_flow_is_conserved():
    u = torch.randn(3, 12, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    g = torch.randn(2, 12, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    p = pressure(u, g)
    assert Faces.between(u.exp()).outflow(p).abs().max() < 1e-10


def test_pressure_stays_between_the_extremes_of_its_boundary():
    u = 3.0 * torch.randn(5, 11, 11, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    g = torch.rand(2, 11, 11, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    edge = torch.ones(11, 11, dtype=torch.bool)
    edge[1:-1, 1:-1] = False
    p, low, high = pressure(u, g), g[:, edge].amin(-1), g[:, edge].amax(-1)
    assert (p >= low[:, None, None] - 1e-12).all()
    assert (p <= high[:, None, None] + 1e-12).all()


def test_factors_serve_any_right_hand_side():
    faces = Faces.between(torch.rand(2, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1)
    x = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    right = faces.outflow(torch.nn.functional.pad(x, (1, 1, 1, 1)))
    assert torch.allclose(BlockCholesky.of(faces).solve(right), x, atol=1e-12)


def test_adjoint_of_the_solve_against_differences():
    u = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    g = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda field: pressure(field, g), u)


def test_a_grid_without_interior_is_refused():
    with pytest.raises(ValueError, match="vertices a side"):
        pressure(torch.zeros(2, 2), torch.zeros(1, 2, 2))


# the problem


def test_readings_stand_drive_by_drive_and_well_by_well():
    xi = drawn(SMALL, 2)
    s = torch.linspace(0.0, 1.0, 13, dtype=torch.float64)
    expected = []
    for k in range(5):
        a, b = math.cos(k * math.pi / 5), math.sin(k * math.pi / 5)
        p = pressure(SMALL.prior.field(xi, 13), (a * s[:, None] + b * s[None, :])[None])
        expected += [p[:, 0, i, j] for i in (3, 6, 9) for j in (3, 6, 9)]
    assert torch.allclose(SMALL.forward(xi), torch.stack(expected, -1), atol=1e-12)


def test_pressure_is_linear_in_the_drive():
    problem = Darcy()
    u = problem.permeability(drawn(problem, 2))
    s = torch.linspace(0.0, 1.0, 41, dtype=torch.float64)
    first, second = s[:, None].expand(41, 41), s[None, :].expand(41, 41)
    p = pressure(u, torch.stack([first, second, 0.3 * first - 1.7 * second]))
    assert torch.allclose(p[:, 2], 0.3 * p[:, 0] - 1.7 * p[:, 1], atol=1e-12)


def test_constant_permeability_gives_a_linear_pressure():
    problem = Darcy()
    s = torch.arange(1, 10, dtype=torch.float64) / 10
    unit = problem.unit_readings(torch.zeros(1024, dtype=torch.float64))
    assert torch.allclose(unit[0], s.repeat_interleave(9), atol=1e-12)
    assert torch.allclose(unit[1], s.repeat(9), atol=1e-12)


def test_eight_drives_have_the_rank_of_two():
    problem = Darcy(KarhunenPrior(coefficients=60), grid=11, sensors=4)
    readings = problem.forward(drawn(problem, 200))
    spectrum = torch.linalg.svdvals(readings - readings.mean(0))
    assert int((spectrum > 1e-10 * spectrum[0]).sum()) == 2 * 16


def test_score_has_taylor_slope_two():
    problem = Darcy()
    xi, direction = drawn(problem, 2)
    readings = problem.observe(xi, generator=torch.Generator().manual_seed(4))
    start, slope = problem.log_posterior(xi, readings), problem.score(xi, readings) @ direction
    steps = [0.02, 0.01, 0.005, 0.0025]
    rests = [abs(problem.log_posterior(xi + h * direction, readings) - start - h * slope).item() for h in steps]
    slopes = [math.log2(a / b) for a, b in itertools.pairwise(rests)]
    assert all(abs(slope - 2.0) < 0.1 for slope in slopes)


def test_score_of_a_batch_is_that_of_each():
    xi = drawn(SMALL, 3)
    readings = SMALL.observe(xi, generator=torch.Generator().manual_seed(0))
    each = torch.stack([SMALL.posterior_score(y)(x) for x, y in zip(xi, readings, strict=True)])
    assert torch.allclose(SMALL.score(xi, readings), each, rtol=1e-9)


def test_noise_has_the_stated_deviation():
    xi = drawn(SMALL, 1).expand(1, 37)
    many = SMALL.observe(xi.expand(400, 37), generator=torch.Generator().manual_seed(1)) - SMALL.forward(xi)
    assert abs(many.std() / 0.01 - 1) < 5 / math.sqrt(2 * many.numel())


def test_wells_off_the_grid_are_refused():
    with pytest.raises(ValueError, match="every well at a vertex"):
        Darcy(grid=40)


# the bank


def bank(folder, fields=23, **changes):
    return DarcyBank(folder, **{"fields": fields, "problem": SMALL, "chunk": 5, **changes})


def test_bank_holds_joint_draws_of_the_problem(tmp_path):
    full = bank(tmp_path, fields=400, chunk=100)
    full.simulate(workers=1)
    xi, readings = full.read()
    noise = readings - SMALL.forward(xi.double())
    assert abs(noise.std() / SMALL.noise - 1) < 5 / math.sqrt(2 * noise.numel())
    assert (xi.mean(0).abs() < 5 / math.sqrt(400)).all()


def test_a_resumed_bank_is_the_same_and_simulates_only_what_is_missing(tmp_path):
    whole, broken = bank(tmp_path / "a"), bank(tmp_path / "b")
    whole.simulate(workers=1)
    broken.simulate(workers=1)
    broken.file(1).unlink()
    kept = broken.file(2).stat().st_mtime_ns
    broken.simulate(workers=1)
    assert broken.file(2).stat().st_mtime_ns == kept
    assert all(torch.equal(a, b) for a, b in zip(whole.read(), broken.read(), strict=True))


def test_a_longer_bank_begins_with_the_shorter_one(tmp_path):
    bank(tmp_path, fields=7).simulate(workers=1)
    short = bank(tmp_path, fields=7).read()
    bank(tmp_path, fields=13).simulate(workers=1)
    assert all(torch.equal(a, b[:7]) for a, b in zip(short, bank(tmp_path, fields=13).read(), strict=True))


def test_progress_counts_to_the_end(tmp_path):
    lines = []
    bank(tmp_path).simulate(workers=1, report=lines.append)
    assert len(lines) == 5
    assert lines[-1].startswith("23 of 23 fields")


def test_a_bank_of_another_problem_is_refused(tmp_path):
    bank(tmp_path).simulate(workers=1)
    with pytest.raises(ValueError, match="this very bank"):
        bank(tmp_path, rng_seed=1).simulate(workers=1)


@pytest.mark.slow
def test_processes_simulate_what_one_would(tmp_path):
    bank(tmp_path / "a").simulate(workers=1)
    bank(tmp_path / "b").simulate(workers=2)
    assert all(
        torch.equal(*pair) for pair in zip(bank(tmp_path / "a").read(), bank(tmp_path / "b").read(), strict=True)
    )


KILLED = """
import pathlib, sys
from amsip.problems.darcy_bank import DarcyBank
if __name__ == "__main__":
    DarcyBank(pathlib.Path(sys.argv[1]), 100_000, chunk=20).simulate(workers=2)
"""


@pytest.mark.slow
def test_a_kill_at_any_time_leaves_whole_chunks_and_no_workers(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(KILLED)
    folder = tmp_path / "bank"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = subprocess.Popen([sys.executable, str(script), str(folder)], env=environment, start_new_session=True)
    deadline = time.monotonic() + 120
    while len(list(folder.glob("chunk-*.npz"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    while _session_alive(running.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _session_alive(running.pid)
    found = sorted(folder.glob("chunk-*.npz"))
    assert len(found) >= 4
    for file in found:
        with np.load(file) as stored:
            assert stored["readings"].shape == (20, 648)


def _session_alive(session):
    try:
        os.killpg(session, 0)
    except ProcessLookupError:
        return False
    return True
