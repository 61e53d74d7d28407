import argparse
import json

import pytest
import torch

from amsip.bench import toys as bench
from amsip.bench.toys import arms, fitted, measure, page
from amsip.discrepancy import mmd2
from amsip.pretrained import load_card
from amsip.weights import optimal_weights

QUICK_ARMS = (arms.FLOOR, arms.REWEIGHT, arms.GREEDY)


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(list(words))


def work(m: int = 5, sets: int = 3, name: str = "gaussian-2") -> arms.Work:
    toy = measure.bench_toys()[name]
    return arms.Work(toy, toy.reference().embed(toy.kernel), m, toy.seed_sets(m, sets))


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(bench, "QUICK_TOYS", ("gaussian-2",))
    monkeypatch.setattr(bench, "QUICK_NODES", (4,))
    monkeypatch.setattr(bench, "QUICK_SETS", 5)
    monkeypatch.setattr(arms, "CANDIDATES", 100)


def test_a_run_is_json_and_a_second_run_reads_its_cells(tiny, tmp_path, monkeypatch):
    words = ("--quick", "--cells", str(tmp_path), "--arms", ",".join(QUICK_ARMS))
    first = bench.run(options(*words))
    assert [c["arm"] for c in json.loads(json.dumps(first))["cells"]] == list(QUICK_ARMS)

    def refuse(arm, work):
        raise AssertionError(f"{arm.name} was measured again")

    monkeypatch.setattr(measure, "score_arm", refuse)
    assert bench.run(options(*words))["cells"] == first["cells"]
    with pytest.raises(AssertionError, match="reweight was measured again"):
        bench.run(options(*words, "--again", arms.REWEIGHT))


def test_cells_of_another_plan_are_measured_anew(tiny, tmp_path, monkeypatch):
    words = ("--quick", "--cells", str(tmp_path), "--arms", arms.FLOOR)
    few = bench.run(options(*words))["cells"][0]
    monkeypatch.setattr(bench, "QUICK_SETS", 7)
    assert bench.run(options(*words))["cells"][0]["quartiles"] != few["quartiles"]


def test_what_cannot_run_is_left_out_and_said(tmp_path):
    plan = measure.Plan(toys=("banana",), nodes=(4,), sets=2, names=(arms.PAPER,))
    lines: list[str] = []
    assert measure.measure_plan(plan, tmp_path, lines.append) == []
    assert lines[0].startswith("left out: paper's map on 1 of 1 toys (not fitted yet")


def test_scores_are_medians_of_the_discrepancy_at_the_right_weights(tmp_path):
    known = {arm.name: arm for arm in arms.every_arm(tmp_path)}
    floor, reweight = known[arms.FLOOR], known[arms.REWEIGHT]
    given = work(sets=11)
    uniform = torch.full((11, 5), 0.2, dtype=torch.float64)
    expected = mmd2(given.seeds, uniform, given.embedding).quantile(0.5)
    assert measure.score_arm(floor, given)["median"] == pytest.approx(float(expected))
    best = mmd2(given.seeds, optimal_weights(given.seeds, given.embedding), given.embedding)
    cell = measure.score_arm(reweight, given)
    assert cell["median"] == pytest.approx(float(best.quantile(0.5)))
    assert cell["below_floor"] == 1.0


def test_the_optimum_is_below_every_one_of_its_starts(monkeypatch):
    monkeypatch.setattr(arms, "CANDIDATES", 50)
    monkeypatch.setattr(arms, "_long_descent", lambda nodes, embedding: nodes)
    given = work()
    found = arms.losses(arms._optimum(given), given.embedding)
    for start in (given.seeds, given.other_seeds(1), given.other_seeds(2)):
        assert (found <= arms.losses(start, given.embedding)).all()


def test_gathering_measures_nothing(tmp_path):
    made = measure.Plan(("gaussian-2",), nodes=(4,), sets=3, names=(arms.FLOOR,))
    measured = measure.measure_plan(made, tmp_path, lambda line: None)
    every = measure.Plan(("gaussian-2", "gaussian-4"), nodes=(4, 8), sets=3, gather=True)
    assert measure.measure_plan(every, tmp_path, lambda line: None) == measured
    assert len(measured) == 1


def test_a_failing_arm_is_a_cell():
    def fail(given):
        raise RuntimeError("no")

    assert measure.score_arm(arms.Arm("broken", fail), work())["failed"] == "RuntimeError: no"


def test_every_toy_is_there_plain_and_whitened_and_the_banana_has_one_bank():
    names = list(measure.bench_toys())
    assert len(names) == 16
    assert names[8:] == [f"{name}-whitened" for name in names[:8]]
    assert measure.bench_toys()["banana"].reference().atoms.shape == (4000, 2)


def test_maps_are_fitted_once_kept_and_used(tmp_path, monkeypatch):
    monkeypatch.setattr(fitted, "GAUSSIAN_STEPS", 2)
    monkeypatch.setattr(fitted, "BATCH", 3)
    monkeypatch.setattr(fitted, "UNROLLED_BATCH", 2)
    monkeypatch.setattr(fitted, "TRIAL_STEPS", 1)
    toy = measure.bench_toys()["gaussian-2"]
    lines: list[str] = []
    fitted.fit_missing(toy, tmp_path, lines.append)
    assert len(lines) == 4
    cards = [load_card(fitted.weights_file(tmp_path, slug, toy)) for slug in fitted.SLUGS]
    assert cards[0].parameters == 114690
    fitted.fit_missing(toy, tmp_path, lines.append)
    assert len(lines) == 4
    moved = next(a for a in arms.every_arm(tmp_path) if a.name == arms.PAPER).make(work())
    assert moved.shape == work().seeds.shape
    assert not torch.equal(moved, work().seeds)


def test_page_stars_the_best_arm_and_counts_losses():
    values = {arms.FLOOR: 1.0, arms.REWEIGHT: 0.9, arms.UNIVERSAL: 0.3, arms.GREEDY: 0.2, arms.OPTIMUM: 0.1}
    cells = [{"toy": "gaussian-2", "arm": a, "m": 16, "median": v} for a, v in values.items()]
    text = page.render({"cells": cells, "missing": {"MSIP": {"gaussian-2": "absent"}}, "arms": list(values)})
    assert "0.2*" in text
    assert "0.1*" not in text
    assert "universal below greedy BQ: 0 of 1; not on gaussian-2 16 (1.50)" in text
    assert "universal over optimum at M = 16, d <= 10: at most 3.00" in text
    assert "left out: MSIP on 1 toys: absent" in text
