import argparse
import json
from pathlib import Path

import pytest
import torch

from amsip.bench import bandwidths, base, core
from amsip.bench.core import page, sharp
from amsip.bench.core.anchors import ANCHORS
from amsip.maps.levenberg import read

DOCS = Path(__file__).parents[1] / "docs"
QUICK = argparse.Namespace(quick=True, earlier=None, pages=None)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(core, "QUICK_TARGETS", ("gaussian-2", "gaussian-8-whitened"))
    monkeypatch.setattr(core, "QUICK_BUDGETS", (4,))
    monkeypatch.setattr(core, "QUICK_CASES", 2)
    monkeypatch.setattr(sharp, "DRAWS", 257)
    monkeypatch.setattr(sharp, "DESCENT_STEPS", 5)
    monkeypatch.setattr(sharp, "ITERATIONS", 3)
    monkeypatch.setattr(sharp, "LONG_STEPS", 20)


def test_core_runs_is_json_and_names_its_origin(small):
    result = core.run(QUICK)
    again = json.loads(json.dumps(result))
    assert again["command"].endswith("core --quick")
    assert {"seconds", "versions", "commit", "ratios", "descents"} <= set(again)
    assert [(r["target"], r["m"]) for r in again["ratios"]] == [("gaussian-2", 4), ("gaussian-8-whitened", 4)]
    text = core.render(again)
    assert "4 of 4 ratios agree" in text
    assert "descent" in text


def test_a_wrong_value_is_called_apart():
    arm = {"ratio": 0.5, "known": 0.9, "error": 0.01, "z": -28.0}
    fine = {"ratio": 0.9, "known": 0.9, "error": 0.01, "z": 0.1}
    row = {"target": "gaussian-2", "m": 4, "floor": 0.2, "reweight": fine, "optimum": arm, "ridge_decides": False}
    result = {"ratios": [row], "descents": {"note": ""}}
    text = core.render(result)
    assert "1 of 2 ratios agree" in text
    assert "apart: gaussian-2, M = 4, optimum: 0.5 against 0.9" in text
    assert text.splitlines()[2].endswith("no")


def test_committed_results_keep_what_was_promised():
    result = json.loads((DOCS / "results" / "core.json").read_text(encoding="utf-8"))
    assert {row["target"] for row in result["ratios"]} == set(ANCHORS)
    descent = result["descents"]["rows"][0]
    assert descent["method"] == "descent"
    assert result["descents"]["cases"] == 200
    assert descent["above_start"] == 0
    for row in result["ratios"]:
        assert row["reweight"]["ratio"] <= 1.0
        assert row["optimum"]["ratio"] <= row["reweight"]["ratio"]


def test_an_earlier_result_is_shown_and_turned_into_its_page(tmp_path):
    arguments = argparse.Namespace(quick=False, earlier=DOCS / "results" / "core.json", pages=tmp_path)
    result = core.run(arguments)
    assert (tmp_path / "core.md").read_text(encoding="utf-8") == page.page(result)
    assert "ratios agree within 5 standard errors" in core.render(result)


def test_bootstrap_error_is_that_of_a_median_ratio():
    generator = torch.Generator().manual_seed(0)
    floor = 1.0 + 0.0 * torch.randn(400, generator=generator, dtype=torch.float64)
    score = 1.0 + 0.1 * torch.randn(400, generator=generator, dtype=torch.float64)
    # the median of n normals has standard error sigma sqrt(pi / 2n)
    expected = 0.1 * (torch.pi / 800) ** 0.5
    assert core._error_of_ratio(score, floor) == pytest.approx(expected, rel=0.35)


@pytest.mark.parametrize("name", [name for name in ANCHORS if name != "banana" and ANCHORS[name].energy])
def test_every_known_target_has_the_known_self_affinity(name):
    embedding, _, offset = core._target(name)
    assert offset == 0.0
    assert float(embedding.energy) == pytest.approx(ANCHORS[name].energy, rel=2e-3)


@pytest.mark.slow
def test_banana_carries_the_offset_of_its_two_banks():
    embedding, _, offset = core._target("banana")
    assert offset == pytest.approx(1.76e-3, rel=0.02)
    assert float(embedding.energy) == pytest.approx(0.096016, rel=1e-3)


def test_sharp_cases_are_sharp_and_reproducible():
    embedding, starts, ess = sharp.sharp_cases(5)
    again = sharp.sharp_cases(5)[1]
    assert torch.equal(starts, again)
    assert not torch.equal(starts[0], starts[1])
    assert (ess < 60).all()
    assert torch.isfinite(read(starts[0], embedding).loss).all()


def test_paths_know_when_they_first_come_close():
    scores = torch.tensor([[8.0, 4.0], [2.0, 5.0], [1.005, 6.0], [1.0, 7.0]], dtype=torch.float64)
    best = torch.tensor([1.0, 1.0], dtype=torch.float64)
    row = sharp._row(sharp.Path("who", scores, 0.5), best, torch.zeros_like(best))
    assert row["above_start"] == 1
    assert row["share_close"] == 0.5
    assert row["steps_to_close"] == 2
    assert row["milliseconds_to_close"] == 500.0


def test_a_start_that_is_exact_has_nothing_to_gain_and_spoils_no_ratio():
    scores = torch.tensor([[0.0, 4.0], [-1e-16, 1.0]], dtype=torch.float64)
    row = sharp._row(sharp.Path("who", scores, 0.5), scores[1], torch.full((2,), 1e-9, dtype=torch.float64))
    assert row["above_start"] == 0
    assert row["worst_over_start"] == pytest.approx(1.0)
    assert row["share_close"] == 1.0


def test_the_best_of_several_starts_costs_all_of_them():
    paths = [sharp.Path("a", torch.tensor([[3.0], [1.0]]), 0.5), sharp.Path("b", torch.tensor([[2.0], [1.5]]), 0.25)]
    least = sharp._least("best", paths)
    assert least.scores.flatten().tolist() == [2.0, 1.0]
    assert least.seconds == 0.75


@pytest.mark.slow
def test_bandwidth_table_is_the_papers():
    result = bandwidths.run(argparse.Namespace(pages=None))
    assert result["exact"] == 10
    darcy = result["rows"][-1]
    assert abs(darcy["ours"] - darcy["paper"]) < 3 * darcy["sampling_error"]
    assert "10 of 11 agree" in bandwidths.render(result)


def test_record_and_table():
    assert base.record("x", 0.0, {"a": 1})["a"] == 1
    assert base.table(("n", "v"), [("long name", 2)]).splitlines()[2] == "long name  2"
