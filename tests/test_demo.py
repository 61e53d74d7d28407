"""The demo: the posterior is what its script makes, the model solves its equation, the page says what was measured."""

import json
import re

import numpy as np
import pytest
import torch

from amsip import Rule, load_rule
from amsip.demo import aquifer, write_demo
from amsip.demo.draws import CHAINS, KEPT, make_draws, metropolis, split_rhat
from amsip.demo.experiment import Comparison, compare, shipped_draws
from amsip.demo.wellfield import (
    BASE_RATES,
    DAYS,
    HALF_HEIGHT,
    QUANTITIES,
    WELLS,
    WEST,
    WETLAND,
    predict,
    season,
    wetland_drawdown,
)

scipy_special = pytest.importorskip("scipy.special")


def test_the_shipped_draws_have_mixed():
    with np.load("amsip/data/pumping.npz") as file:
        assert file["samples"].shape == (CHAINS * KEPT, 4)
        assert np.all(file["split_rhat"] < 1.01)
        assert np.all(np.abs(file["truth"] - file["samples"].mean(0)) < 3.0 * file["samples"].std(0))


@pytest.mark.slow
def test_the_script_makes_the_shipped_draws():
    with np.load("amsip/data/pumping.npz") as file:
        assert np.allclose(make_draws()["samples"], file["samples"])


def test_the_draws_are_skewed():
    """The demo should not be a Gaussian in disguise."""
    values = shipped_draws().values
    standard = (values - values.mean(0)) / values.std(0)
    assert (standard**3).mean(0).abs().max() > 0.5


def test_drawdown_near_the_well_follows_theis():
    """Far from the river the image well adds nothing, and one well function is left."""
    parameters, times = np.array([2.5, -3.0, 6.0, 0.0]), np.array([0.01, 0.1])
    expected = np.empty((2, 2))
    for i, (x, y) in enumerate(aquifer.OBSERVATION_WELLS):
        for j, t in enumerate(times):
            u = (x**2 + y**2) * 1e-3 / (4 * 10**2.5 * t)
            expected[i, j] = aquifer.PUMPING_RATE / (4 * np.pi * 10**2.5) * scipy_special.exp1(u)
    assert np.allclose(aquifer.predicted_drawdown(parameters, times), expected, rtol=1e-12)


def test_metropolis_samples_the_prior_when_there_are_no_readings():
    nothing = aquifer.PumpingTest(np.empty(0), np.empty((2, 0)))
    rng = np.random.default_rng(3)
    start = np.tile(aquifer.PRIOR_MEAN, (64, 1))
    path, accepted = metropolis(start, 1.1 * np.diag(aquifer.PRIOR_SD), 3000, nothing, rng)
    kept = path[500:].reshape(-1, 4)
    assert 0.15 < accepted < 0.6
    assert np.allclose(kept.mean(0), aquifer.PRIOR_MEAN, atol=0.03)
    assert np.allclose(kept.std(0), aquifer.PRIOR_SD, rtol=0.06)


def test_split_rhat_is_one_for_equal_chains_and_large_for_a_drift():
    chains = np.random.default_rng(1).standard_normal((4, 500, 2))
    chains[..., 1] += np.linspace(0.0, 5.0, 500)
    still, drifting = split_rhat(chains)
    assert still == pytest.approx(1.0, abs=0.01)
    assert drifting > 1.4


def naive_drawdown(parameters, modes):
    """The same series with loops over modes and months, from its formulas alone."""
    transmissivity, storativity, distance = 10.0 ** np.asarray(parameters[:3], dtype=float)
    width, total = WEST + distance, np.zeros(len(season()))
    for i in range(modes[0]):
        for j in range(modes[1]):
            a, b = (i + 0.5) * np.pi / width, j * np.pi / (2 * HALF_HEIGHT)

            def mode(x, y, a=a, b=b):
                return np.cos(a * (x + WEST)) * np.cos(b * (y + HALF_HEIGHT))

            norm = width / 2 * (2 * HALF_HEIGHT if j == 0 else HALF_HEIGHT)
            rate = transmissivity / storativity * (a**2 + b**2)
            push = sum(float(q) * mode(*xy) for q, xy in zip(BASE_RATES, WELLS.tolist(), strict=True))
            amplitude = 0.0
            for month, factor in enumerate(season().tolist()):
                forcing = factor * push / (storativity * norm)
                amplitude = amplitude * np.exp(-rate * DAYS) + forcing / rate * (1 - np.exp(-rate * DAYS))
                total[month] += amplitude * mode(*WETLAND.tolist())
    return total


def test_the_model_is_the_modal_series():
    parameters = torch.tensor([[2.6, -2.5, 2.6, -1.3], [2.7, -2.4, 3.1, -1.2]], dtype=torch.float64)
    ours = wetland_drawdown(parameters, (7, 5)).numpy()
    for row, values in zip(ours, parameters.tolist(), strict=True):
        assert np.allclose(row, naive_drawdown(values, (7, 5)), rtol=1e-10)


def images_potential(x, y, width, transmissivity, orders):
    """Logarithms of the wells and their images: in the river with the other sign, in the closed sides with the same."""
    total = 0.0
    for rate, (east, north) in zip((BASE_RATES * season()[11]).tolist(), WELLS.tolist(), strict=True):
        for n in range(-orders, orders + 1):
            for k in range(-orders, orders + 1):
                for side, turn in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
                    image_x = 2 * n * width + side * (east + WEST)
                    image_y = 4 * k * HALF_HEIGHT + turn * (north + HALF_HEIGHT)
                    apart = np.hypot(x + WEST - image_x, y + HALF_HEIGHT - image_y)
                    total -= (-1) ** n * rate / (2 * np.pi * transmissivity) * np.log(apart)
    return total


def test_the_model_tends_to_wells_and_their_images():
    """A month is long where little is stored: the drawdown is the steady one of the latest rates."""
    parameters = torch.tensor([[2.9, -6.0, 2.3, 0.0]], dtype=torch.float64)
    width, (east, north) = WEST + 10**2.3, WETLAND.tolist()
    # a finite number of images leaves a constant, which is zero at the river; the signs alternate, so two sums bracket
    sums = [
        images_potential(east, north, width, 10**2.9, orders) - images_potential(10**2.3, north, width, 10**2.9, orders)
        for orders in (8, 9)
    ]
    assert wetland_drawdown(parameters, (160, 120))[0, 11].item() == pytest.approx(np.mean(sums), rel=0.005)


def test_more_modes_change_little():
    values = shipped_draws().values[::400]
    assert (wetland_drawdown(values) - wetland_drawdown(values, (90, 70))).abs().max() < 0.05


def test_the_quantities_follow_from_the_drawdown():
    values = shipped_draws().values[:200]
    deepest = wetland_drawdown(values).amax(-1)
    out = predict(values)
    assert out.shape == (200, len(QUANTITIES))
    assert torch.allclose(out[:, 0], deepest)
    assert torch.equal(out[:, 3], (out[:, 2] > 0).to(out))
    assert torch.all((out[:, 1] > 0) == (out[:, 2] > 0))


def test_rules_and_draws_start_from_the_same_points():
    """The rule of one draw set is compared with that very set: otherwise luck would be measured."""
    values = shipped_draws().values[:300]
    comparison = compare(values, lambda x: x[:, :2], 5, 3)
    assert comparison.by_rules.shape == comparison.by_draws.shape == (3, 2)


def test_equivalent_draws_of_plain_draws_are_their_number():
    """The definition, checked where the answer is known: plain draws are worth themselves."""
    generator = torch.Generator().manual_seed(2)
    pool = torch.randn(5000, 1, generator=generator, dtype=torch.float64)
    answers = pool[torch.randint(5000, (4000, 7), generator=generator)].mean(1)
    comparison = Comparison(7, Rule(torch.zeros(1, 1), torch.ones(1)), answers, answers, 0.0)
    worth = comparison.equivalent_draws(pool).item()
    low, high = comparison.equivalent_interval(pool, generator=generator)[:, 0].tolist()
    assert worth == pytest.approx(7.0, rel=0.1)
    assert low < worth < high


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return folder, write_demo(folder, repeats=6)


def test_the_demo_writes_its_three_files_and_says_where(demo):
    folder, said = demo
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "results.json", "rule.npz"]
    assert said.splitlines()[-1] == str((folder / "report.html").resolve())
    assert load_rule(folder / "rule.npz").nodes.shape == (32, 4)


def test_the_numbers_on_the_page_are_the_measured_ones(demo):
    folder, _ = demo
    results = json.loads((folder / "results.json").read_text())
    text = (folder / "report.html").read_text()
    last = results["budgets"][-1]["quantities"]
    worth = np.exp(np.mean([np.log(min(q["equivalent draws"], 4000)) for q in last.values()]))
    title = re.search(r"<h1>(.*?)</h1>", text).group(1)
    assert title.startswith("32 runs")
    assert float(title.split()[-1].replace(",", "")) == pytest.approx(worth, rel=0.06)
    for name in QUANTITIES:
        assert text.count(name) >= 4
    assert not re.search(r"(src|href)=|https?://", text)


def test_rules_err_less_than_draws_on_the_smooth_question(demo):
    folder, _ = demo
    for budget in json.loads((folder / "results.json").read_text())["budgets"]:
        smooth = budget["quantities"][QUANTITIES[0]]
        assert smooth["error of rules"] < smooth["error of plain draws"]
