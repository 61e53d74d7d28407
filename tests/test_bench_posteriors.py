import argparse
import bz2
import hashlib
import json
import subprocess
import zipfile

import numpy as np
import oracles
import pytest
import torch

from amsip import quadrature
from amsip.bench import posteriors
from amsip.bench.posteriors import caution, data, measure, pages, summary, yardstick
from amsip.bench.posteriors.arms import DEFAULT, PLAIN, Arm, Outcome, all_arms
from amsip.bench.posteriors.integrands import FAMILIES, Integrands, multipliers, unit_vectors
from amsip.bench.posteriors.measure import Plan
from amsip.bench.posteriors.stated import stated_errors
from amsip.bench.posteriors.yardstick import Split, score_rules, seed_sets

TASK, DRAWS = "sir", 300


def draws(n=DRAWS, d=2, seed=5):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).exp()


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """A cache with a small wheel of the same layout."""
    monkeypatch.setenv("AMSIP_CACHE", str(tmp_path))
    folder = tmp_path / "sbibm"
    folder.mkdir()
    with zipfile.ZipFile(folder / data.WHEEL, "w") as archive:
        for observation in (1, 2):
            rows = "\n".join(",".join(f"{v:.17g}" for v in row) for row in draws(seed=observation).tolist())
            member = data.MEMBER.format(task=TASK, observation=observation)
            archive.writestr(member, bz2.compress(f"a,b\n{rows}\n".encode()))
    digest = hashlib.sha256((folder / data.WHEEL).read_bytes()).hexdigest()
    monkeypatch.setattr(data, "SHA256", digest)
    yardstick.split_posterior.cache_clear()
    yield folder
    yardstick.split_posterior.cache_clear()


def test_draws_are_read_from_the_wheel_and_then_from_the_cache(cache):
    assert torch.equal(data.load_posterior(TASK, 2), draws(seed=2))
    (cache / data.WHEEL).unlink()
    assert torch.equal(data.load_posterior(TASK, 2), draws(seed=2))


def test_a_changed_wheel_is_refused(cache, monkeypatch):
    monkeypatch.setattr(data, "SHA256", "0" * 64)
    with pytest.raises(ValueError, match=r"must have SHA-256 000000000000\.\.\."):
        data.load_posterior(TASK, 1)


def test_offline_says_what_to_do(cache, monkeypatch):
    (cache / data.WHEEL).unlink()
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: no route to host")
    monkeypatch.setattr(data.subprocess, "run", lambda *args, **settings: failed)
    with pytest.raises(ConnectionError, match=r"no route to host.*pip download --no-deps sbibm==1\.1\.0"):
        data.load_posterior(TASK, 1)


def test_unknown_posteriors_are_named(cache):
    with pytest.raises(ValueError, match="`task` must be one of"):
        data.load_posterior("nothing", 1)
    with pytest.raises(ValueError, match="`observation` must be one of"):
        data.load_posterior(TASK, 11)


def test_development_and_final_observations_do_not_meet():
    assert not set(data.DEVELOPMENT) & set(data.FINAL)
    assert set(Plan().observations) == set(data.DEVELOPMENT)


def test_integrands_are_those_of_the_yardstick():
    # no quantile of 103 draws is one of the draws, on which an indicator would be decided by rounding
    pool = draws(103, 3)
    integrands = Integrands.of_pool(pool)
    values = integrands(pool[:7])
    assert tuple(integrands.families) == FAMILIES
    for x, row in zip(pool[:7].numpy(), values, strict=True):
        expected = oracles.integrand_families(pool.numpy(), x, unit_vectors(3).numpy())
        for family, columns in integrands.families.items():
            assert np.allclose(row[columns].numpy(), expected[family], atol=1e-9), family


def test_directions_are_fixed_unit_vectors():
    assert torch.equal(unit_vectors(5), unit_vectors(5))
    assert torch.allclose(unit_vectors(5).norm(dim=0), torch.ones(8, dtype=torch.float64))


def test_multiplier_averages_error_over_variance_before_it_inverts():
    generator = torch.Generator().manual_seed(1)
    estimates = torch.randn(11, 5, generator=generator, dtype=torch.float64)
    truth, variance = torch.zeros(5, dtype=torch.float64), torch.tensor([1.0, 2.0, 3.0, 50.0, 700.0]).double()
    worth = multipliers(estimates, truth, variance, {"a": slice(0, 2), "b": slice(2, 5)}, 7, 1000)
    for family, columns in (("a", slice(0, 2)), ("b", slice(2, 5))):
        expected = oracles.family_multiplier(
            estimates[:, columns].numpy(), truth[columns].numpy(), variance[columns].numpy(), 7
        )
        assert np.isclose(worth.raw[family][0], expected)
    assert np.isclose(worth.capped[0], np.sqrt(worth.raw["a"][0] * worth.raw["b"][0]))
    assert worth.minimum[0] == min(worth.raw["a"][0], worth.raw["b"][0])
    assert worth.raw["b"][1] < worth.raw["b"][0] < worth.raw["b"][2]


def test_families_are_capped_before_they_are_averaged():
    estimates = torch.tensor([[1e-12, 1.0], [-1e-12, -1.0]], dtype=torch.float64)
    one = torch.ones(2, dtype=torch.float64)
    worth = multipliers(estimates, 0 * one, one, {"exact": slice(0, 1), "poor": slice(1, 2)}, 10, 90)
    assert worth.raw["exact"][0] > 1e9
    assert np.isclose(worth.capped[0], np.sqrt(9.0 * 0.1))


def test_rules_that_are_not_finite_are_worth_nothing_known():
    estimates = torch.full((3, 1), torch.nan, dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    assert np.isnan(multipliers(estimates, one, one, {"a": slice(0, 1)}, 2, 9).capped[0])


def test_split_parts_are_disjoint_and_the_pool_is_white():
    split = Split.of_draws(draws(90), 60)
    rows = torch.cat([split.pool, split.held_out])
    assert torch.equal(rows.sort(0).values, draws(90).sort(0).values)
    assert torch.allclose(torch.cov(split.white.T, correction=0), torch.eye(2).double(), atol=1e-9)


def test_plain_draws_are_worth_one():
    split = Split.of_draws(draws(6000), 5000)
    seeds = seed_sets(split, 10, 600, rng_seed=0)
    equal = torch.full((600, 10), 0.1, dtype=torch.float64)
    worth = score_rules(split, seeds, equal).pool
    for family, (value, low, high) in worth.raw.items():
        assert abs(np.log(value)) < 5 * np.log(high / low) / 3.3, family


def test_without_a_size_every_draw_is_in_the_pool():
    split = Split.of_draws(draws(90))
    assert torch.equal(split.pool.sort(0).values, draws(90).sort(0).values)
    assert score_rules(split, split.pool[None], torch.full((1, 90), 1 / 90, dtype=torch.float64)).held_out is None


def test_stated_errors_are_counted_against_the_errors_made():
    split = Split.of_draws(draws(400))
    rule = quadrature(split.pool.expand(5, 400, 2), 12, generator=torch.Generator().manual_seed(0))
    found = stated_errors(split, rule.nodes, rule.weights)
    values = split.integrands(rule.nodes)
    stated = torch.stack([rule.query(q).expect(values[q]) for q in range(5)])
    claims = rule.estimate(values).quadrature_error
    columns = split.integrands.families["shortfall"]
    within = ((stated - split.truth["pool"]).abs() <= claims)[:, columns].double().mean().item()
    assert found["shortfall"]["within 1"] == within
    assert set(found) == set(FAMILIES)


def test_stated_errors_against_unseen_draws_include_both_noises():
    split = Split.of_draws(draws(400).log(), 200)
    rule = quadrature(split.pool.expand(5, 200, 2), 12, generator=torch.Generator().manual_seed(0))
    values = split.integrands(rule.nodes)
    found = rule.estimate(values)
    unseen = split.integrands(split.held_out)
    bound = (found.standard_error**2 + unseen.var(0, correction=0) / 200).sqrt()
    stated = stated_errors(split, rule.nodes, rule.weights)["indicator"]
    columns = split.integrands.families["indicator"]
    error = (found.value - unseen.mean(0)).abs()[:, columns]
    assert stated["within 1"] == (error <= bound[:, columns]).double().mean().item()
    assert stated["within 2"] == (error <= 2 * bound[:, columns]).double().mean().item()
    # without either noise fewer errors would be within
    assert stated["within 1"] > (error <= found.standard_error[:, columns]).double().mean().item()
    assert stated["within 1"] > (error <= found.quadrature_error[:, columns]).double().mean().item()


def test_the_mean_of_the_pool_is_only_wrong_against_other_draws():
    split = Split.of_draws(draws(200), 100)
    whole = split.pool.expand(2, 100, 2)
    score = score_rules(split, whole, torch.full((2, 100), 0.01, dtype=torch.float64))
    assert min(value[0] for value in score.pool.raw.values()) > 1e6
    assert score.pool.capped[0] == 1.0
    assert score.held_out.minimum[0] < 5.0


def counted(calls):
    def make(split, m, sets, generator):
        calls.append(m)
        nodes = seed_sets(split, m, sets, rng_seed=m)
        return Outcome(nodes, {"equal": torch.full((sets, m), 1.0 / m, dtype=torch.float64)}, 1.0)

    return make


def test_a_run_goes_on_where_it_stopped(cache, monkeypatch, tmp_path):
    calls, lines = [], []
    monkeypatch.setattr(measure, "all_arms", lambda: iter([Arm(PLAIN, "", counted(calls))]))
    plan = Plan((TASK,), (1, 2), ((4,), (8,)), sets=3)
    measure.fill(plan, tmp_path / "cells", 1, lines.append)
    assert sorted(calls) == [4, 4, 8, 8]
    assert lines[-1] == "4 of 4: sir 2, M = (8,)"
    (tmp_path / "cells" / "sir-02-008-plain-draws.json").unlink()
    measure.fill(plan, tmp_path / "cells", 1, lines.append)
    assert len(calls) == 5
    measure.fill(Plan((TASK,), (1, 2), ((4,), (8,)), sets=3, again=(PLAIN,)), tmp_path / "cells", 1, lines.append)
    assert len(calls) == 9
    measure.fill(Plan((TASK,), (1,), ((4,),), sets=5), tmp_path / "cells", 1, lines.append)
    assert len(calls) == 10, "a cell of other settings is not the same cell"


def test_a_failure_is_written_down(cache, monkeypatch, tmp_path):
    def fails(split, m, sets, generator):
        raise RuntimeError("no nodes today")

    monkeypatch.setattr(measure, "all_arms", lambda: iter([Arm("unlucky", "", fails)]))
    measure.fill(Plan((TASK,), (1,), ((4,), (8,)), rival_nodes=(4,), sets=3), tmp_path, 1, lambda line: None)
    rows = summary.read_cells(tmp_path, (1,))
    assert [row["failed"] for row in rows] == ["RuntimeError: no nodes today"]


def test_arms_have_distinct_file_names():
    slugs = [arm.slug for arm in all_arms()]
    assert len(slugs) == len(set(slugs))
    assert {"plain-draws", "amsip-default-default"} <= set(slugs)


def row(method, value, task="slcp", observation=1, setting="own weights", m=32):
    interval = [value, 0.9 * value, 1.1 * value]
    score = {"raw": dict.fromkeys(FAMILIES, interval), "capped": interval, "minimum": interval}
    known = {"task": task, "observation": observation, "m": m, "method": method, "setting": setting}
    stated = {"within 1": 0.7, "within 2": 0.95, "stated over true draws": 1.5}
    unseen = {**stated, "within 1": 0.6}
    coverage = {"stated": dict.fromkeys(FAMILIES, stated), "stated held-out": dict.fromkeys(FAMILIES, unseen)}
    return {**known, "ms": 3.0, "pool": score, "held_out": score, "commit": "0123456789ab", **coverage}


def result(cells):
    return {
        "cells": cells,
        "plan": {"sets": 24},
        "command": "python -m amsip bench posteriors",
        "commit": "abc",
        "date": "2026-01-01T00:00:00",
        "versions": {"torch": "2"},
        "rivals": {},
        "missing": {"kernel thinning": "not installed"},
        "limits": {},
    }


def test_standings_average_over_observations_and_keep_the_best_setting():
    cells = [row("a", 2.0), row("a", 8.0, observation=2)]
    cells += [row("a", 5.0, setting="optimal weights"), row("a", 5.0, observation=2, setting="optimal weights")]
    cells += [row("b", 100.0)]
    ranked = summary.standings(cells, "slcp", 32)
    assert [(s.method, s.setting, round(s.capped[0], 9)) for s in ranked] == [
        ("a", "optimal weights", 5.0),
        ("a", "own weights", 4.0),
    ], "b was seen on fewer observations"
    assert summary.best_settings(ranked)["a"].setting == "optimal weights"


def test_rivals_are_compared_on_the_observations_they_were_measured_on():
    cells = [row(DEFAULT, value, observation=o) for o, value in ((6, 2.0), (7, 8.0), (8, 100.0))]
    cells += [row(rival, 5.0, observation=o) for rival in ("greedy", "herding") for o in (6, 7)]
    ranked = {s.method: round(s.capped[0], 9) for s in summary.standings(cells, "slcp", 32)}
    assert ranked == {DEFAULT: 4.0, "greedy": 5.0, "herding": 5.0}
    assert summary.compared_on(cells, 32) == [6, 7]
    page = pages.page(result(cells))
    alone = page.split("measured on observations 6, 7 alone")[1].split("##")[0]
    assert "on observations 6, 7, 8:" in alone
    assert "| slcp (5) | 12 [" in alone, "the geometric mean of 2, 8 and 100"
    assert "alone" not in pages.page(result(cells[:2] + cells[3:])).split("## The family")[0]


def test_interval_of_a_geometric_mean_narrows_with_observations():
    one = summary.geometric([(4.0, 2.0, 8.0)])
    four = summary.geometric([(4.0, 2.0, 8.0)] * 4)
    assert np.isclose(one[1], 2.0)
    assert np.isclose(four[1], 4.0 / 2**0.5)
    assert np.isnan(summary.geometric([(4.0, 2.0, 8.0), (float("nan"),) * 3])[0])


def test_page_prints_in_bold_what_beats_the_default():
    page = pages.page(result([row(DEFAULT, 20.0), row("greedy", 30.0), row("herding", 10.0), row(PLAIN, 1.0)]))
    worth = page.split("## Worth")[1].split("##")[0]
    assert "| greedy | **30 [27, 33]** |" in worth
    assert "| herding | 10 [9, 11] |" in worth
    assert f"| `{DEFAULT}` | 20 [18, 22] |" in worth
    assert "Not measured: kernel thinning (not installed)." in page


def test_page_says_how_often_stated_errors_hold():
    stated = pages.page(result([row(DEFAULT, 20.0), row(DEFAULT, 20.0, observation=2)])).split("## Stated")[1]
    pool, unseen = stated.split("draws that no rule saw")
    assert "| indicator | 70% | 95% | 1.5 1.5 1.5 |" in pool
    assert "| indicator | 60% | 95% | 1.5 1.5 1.5 |" in unseen


def test_page_shows_growth_only_where_there_are_several_budgets():
    assert "## Growth" not in pages.page(result([row(DEFAULT, 20.0)]))
    assert (
        "| slcp (5) | 20" in pages.page(result([row(DEFAULT, 20.0), row(DEFAULT, 60.0, m=128)])).split("## Growth")[1]
    )


def test_pages_are_written_with_their_figure(tmp_path):
    pytest.importorskip("matplotlib")
    posteriors.write_pages(result([row(DEFAULT, 20.0), row("greedy", 30.0)]), tmp_path)
    assert (tmp_path / "posteriors.md").read_text().startswith("# What a node is worth")
    assert "<svg" in (tmp_path / "posteriors.svg").read_text()
    assert not (tmp_path / "when-not-to-use.md").exists()


def test_cautions_are_rendered_from_limits():
    three = (2.0, 1.0, 3.0)
    cheap = {"task": TASK, "d": 2, "method": DEFAULT, "ms": 6.0, "worth": 9.0, "even_ms": 0.02, "even_pool_ms": 0.001}
    small = {"task": TASK, "d": 2, "draws": 64, "whole pool": three, "reweighted draws": three, DEFAULT: three}
    limits = {
        "cheap": [{**cheap, "average_ms": 0.01}],
        "rough": [{"task": TASK, "d": 2, "method": DEFAULT, "worth": {"half the mass": three}}],
        "wide": [{"d": 100, "method": DEFAULT, "capped": three, "raw": dict.fromkeys(FAMILIES, three)}],
        "wild": [{"d": 2, "pool": "one draw at 1000", "method": DEFAULT, "worth": {"shortfall": three}}],
        "small": [small],
    }
    page = caution.page({**result([]), "limits": limits})
    assert page.count("\n## ") == 5
    assert "met here is 0.02 ms" in page
    assert "| sir (2) | 64 | 2 | 2 [1, 3] |" in page
    assert "| 2 | one draw at 1000 | amsip default | 2 [1, 3] |" in page


def test_options_become_a_plan():
    parser = argparse.ArgumentParser()
    posteriors.add_arguments(parser)
    plan = posteriors.plan_of(parser.parse_args(["--final", "--nodes", "8,16", "--tasks", "slcp", "--sets", "30"]))
    assert (plan.observations, plan.nodes, plan.tasks, plan.sets) == (data.FINAL, ((8, 16),), ("slcp",), 30)
    with pytest.raises(ValueError, match="`--methods` must be among"):
        posteriors.plan_of(parser.parse_args(["--methods", "magic"]))


def test_gathering_measures_nothing(cache, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(measure, "all_arms", lambda: iter([Arm(PLAIN, "", counted(calls))]))
    measure.fill(Plan((TASK,), (1,), ((8,),), sets=3), tmp_path, 1, lambda line: None)
    assert calls == [8]
    parser = argparse.ArgumentParser()
    posteriors.add_arguments(parser)
    found = posteriors.run(parser.parse_args(["--gather", "--observations", "1,2", "--cells", str(tmp_path)]))
    assert calls == [8]
    assert [(row["task"], row["observation"]) for row in found["cells"]] == [(TASK, 1)]


@pytest.mark.slow
def test_a_quick_run_from_end_to_end(cache, monkeypatch, tmp_path):
    monkeypatch.setattr(posteriors, "QUICK_TASKS", (TASK,))
    parser = argparse.ArgumentParser()
    posteriors.add_arguments(parser)
    options = ["--quick", "--processes", "1", "--sets", "2", "--cells", str(tmp_path), "--observations", "1"]
    found = posteriors.run(parser.parse_args(options))
    assert {cell["method"] for cell in found["cells"]} == set(posteriors.QUICK_METHODS)
    assert DEFAULT in posteriors.render(json.loads(json.dumps(found)))
