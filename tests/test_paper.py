"""The paper room: the frame does what it says, and what is committed is what the code makes."""

import dataclasses
import json

import pytest
import torch

from amsip.cli import main
from amsip.paper import arms, results, style
from amsip.paper.base import Claim, Experiment, Finding, Run, Verdict, plain
from amsip.paper.page import page
from amsip.paper.parts import kept
from amsip.paper.produce import produce
from amsip.paper.registry import experiment, labels
from amsip.paper.trained import trained_map
from amsip.problems.toys import gaussian_toy
from amsip.training.config import FitConfig
from amsip.training.tasks import ReferenceTasks

CHEAP = ("architecture",)


def silent(line: str) -> None:
    pass


def toy_experiment(calls: list[bool]) -> Experiment:
    def compute(run: Run) -> dict:
        calls.append(run.quick)
        return {"values": torch.tensor([1.0, 3.0], dtype=torch.float64)}

    def draw(data, figure):
        figure.subplots().plot(data["values"])

    claim = Claim("a", "b", "c", "d", lambda data: Finding(Verdict.HOLDS, data["values"][1], (2.0, 4.0), "e"))
    return Experiment("toy", "Toy", 0.0, compute, draw, lambda data: f"{data['values'][1]:g}", (claim,))


def make(given, tmp_path, *, quick=False, again=False):
    return produce(given, tmp_path, quick=quick, again=again, report=silent)


def test_an_experiment_runs_once_and_again_when_asked(tmp_path):
    calls: list[bool] = []
    given = toy_experiment(calls)
    first, fresh = make(given, tmp_path)
    assert fresh
    assert first["data"] == {"values": [1.0, 3.0]}
    assert {"command", "commit", "versions", "seconds"} <= set(first)
    assert make(given, tmp_path) == (first, False)
    assert make(given, tmp_path, quick=True)[1]
    assert make(given, tmp_path)[1]
    assert make(given, tmp_path, again=True)[1]
    assert calls == [False, True, False, False]


def test_data_figure_and_origin_are_on_disk_and_the_figure_is_drawn_anew(tmp_path):
    given = toy_experiment([])
    make(given, tmp_path)
    image = tmp_path / "toy.png"
    before = image.read_bytes()
    image.unlink()
    make(given, tmp_path)
    assert image.read_bytes() == before
    assert (tmp_path / "toy.pdf").read_bytes().startswith(b"%PDF")
    assert json.loads((tmp_path / "toy.json").read_text())["configuration"]["quick"] is False


def test_a_failed_computation_leaves_the_old_result(tmp_path):
    make(toy_experiment([]), tmp_path)
    before = (tmp_path / "toy.json").read_bytes()
    broken = dataclasses.replace(toy_experiment([]), compute=lambda run: {"value": float("nan")})
    with pytest.raises(ValueError, match="finite"):
        make(broken, tmp_path, again=True)
    assert (tmp_path / "toy.json").read_bytes() == before


def test_numbers_are_rounded_to_six_digits_and_nothing_else_changes():
    assert plain({"a": (1.23456789, 10**9, True, None, "x")}) == {"a": [1.23457, 10**9, True, None, "x"]}


def test_a_part_is_kept_until_what_it_depends_on_changes(tmp_path):
    run = Run(False, tmp_path, silent)
    values = iter(range(10))

    def compute():
        return {"value": next(values)}

    assert [kept(run, "p", {"m": m}, compute)["value"] for m in (4, 4, 8, 8)] == [0, 0, 1, 1]
    assert kept(dataclasses.replace(run, again=True), "p", {"m": 8}, compute)["value"] == 2


def test_maps_are_fitted_once(tmp_path):
    from amsip.maps.attention import AttentionMap

    toy = gaussian_toy(2)
    tasks = ReferenceTasks(toy.reference(), toy.kernel, budgets=(4,), batch=3)
    lines: list[str] = []
    run = Run(True, tmp_path, lines.append)

    def fitted():
        net = trained_map(run, "n", lambda: AttentionMap(2, width=8), tasks, FitConfig(steps=3))
        return net(torch.ones(4, 2, dtype=torch.float64))

    assert torch.equal(fitted(), fitted())
    assert lines == [line for line in lines if line.startswith("n: fitted in")]
    assert len(lines) == 1


def test_the_arms_are_ordered_and_share_their_seeds():
    toy = gaussian_toy(2)
    rows = arms.sweep(
        lambda m: toy.seed_sets(m, 5), toy.reference().embed(toy.kernel), {arms.FINETUNED: arms.finetune}, (4, 8)
    )
    for m in (4, 8):
        scores = [arms.row_of(rows, arm, m)["median"] for arm in (arms.FLOOR, arms.REWEIGHT, arms.FINETUNED)]
        assert scores == sorted(scores, reverse=True)
        assert arms.row_of(rows, arms.FLOOR, m)["ess"] == pytest.approx(1.0)
        assert arms.row_of(rows, arms.FLOOR, m)["ratio_interval"] == [1.0, 1.0]


def test_the_interval_of_a_ratio_covers_it_and_narrows():
    generator = torch.Generator().manual_seed(5)
    for sets, width in ((50, 1.0), (5000, 0.1)):
        below = torch.rand(sets, generator=generator, dtype=torch.float64) + 0.5
        noise = torch.rand(sets, generator=generator, dtype=torch.float64) + 0.5
        low, high = arms.ratio_interval(0.3 * below * noise, below)
        truth = float((0.3 * below * noise).median() / below.median())
        assert low <= truth <= high
        assert high - low < width


@pytest.mark.parametrize("label", labels())
def test_every_experiment_says_what_it_is(label):
    found = experiment(label)
    assert found.label == label
    assert found.claims, "an experiment decides at least one sentence"
    names = [claim.name for other in labels() for claim in experiment(other).claims]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("label", CHEAP)
def test_a_quick_run_writes_drawings_and_judges_its_claims(label, tmp_path, monkeypatch):
    monkeypatch.setenv("AMSIP_CACHE", str(tmp_path / "cache"))
    given = experiment(label)
    result, _ = make(given, tmp_path, quick=True)
    assert len(given.headline(result["data"])) > 10
    assert all(claim.check(result["data"]).note for claim in given.claims)
    assert style.drawn(given.draw, json.loads((tmp_path / f"{label}.json").read_text())["data"], "pdf")


def test_the_page_is_what_the_committed_results_make():
    committed = results.COMMITTED.parent / "paper.md"
    assert committed.read_text(encoding="utf-8") == page(results.load_results()), "run: amsip claims --pages docs"


def test_committed_results_are_full_runs_of_known_experiments_with_their_figures():
    for path in results.COMMITTED.glob("*.json"):
        result = json.loads(path.read_text())
        assert path.stem in labels()
        assert result["configuration"]["quick"] is False
        assert result["commit"], "evidence comes from a commit"
        assert not result["commit"].endswith("+"), f"{path.name} was computed by code that is not committed"
        assert path.stat().st_size < 300_000
        assert path.with_suffix(".png").exists()


def test_an_unknown_label_is_one_line_that_lists_the_known_ones(capsys):
    assert main(["reproduce", "dq-nothing"]) == 1
    error = capsys.readouterr().err
    assert "There is no experiment 'dq-nothing'" in error
    assert "architecture" in error


def test_without_a_label_everything_is_listed(capsys):
    assert main(["reproduce"]) == 0
    shown = capsys.readouterr().out
    assert all(label in shown for label in labels())


def test_reproduce_and_claims_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("AMSIP_CACHE", str(tmp_path / "cache"))
    assert main(["reproduce", "fig:architecture", "--output", str(tmp_path / "out")]) == 0
    assert "architecture (" in capsys.readouterr().out
    rows = tmp_path / "claims.json"
    words = ("claims", "--results", str(tmp_path / "out"), "--json", str(rows), "--pages", str(tmp_path))
    assert main(list(words)) == 0
    assert {row["verdict"] for row in json.loads(rows.read_text())} == {"holds"}
    assert "architecture-zero-start" in capsys.readouterr().out
    assert "![" in (tmp_path / "paper.md").read_text()


def test_claims_without_results_is_an_error(tmp_path, capsys):
    assert main(["claims", "--results", str(tmp_path)]) == 1
    assert "make some with" in capsys.readouterr().err
