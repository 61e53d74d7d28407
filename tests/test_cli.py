"""The command line: what it writes and prints, how it fails, and that the README's commands work as printed."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import amsip
from amsip.bench import BENCHES
from amsip.cli import VERBS, build_parser, main

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def draws(tmp_path):
    """A skewed posterior of three named parameters, with weights."""
    rng = np.random.default_rng(11)
    values = np.column_stack([rng.standard_normal((700, 2)) * [1.0, 30.0], rng.exponential(size=700)])
    path = tmp_path / "draws.csv"
    table = np.column_stack([values, rng.uniform(0.5, 1.5, 700)])
    np.savetxt(path, table, delimiter=",", header="a,b,c,w", comments="")
    return path


def run(capsys, *words):
    status = main([str(word) for word in words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_quadrature_writes_the_rule_it_describes(draws, tmp_path, capsys):
    target = tmp_path / "rule.npz"
    words = ("quadrature", draws, "-m", 17, "-o", target, "--weights-column", "w")
    status, out, err = run(capsys, *words)
    assert (status, err) == (0, "")
    rule = amsip.load_rule(target)
    assert rule.nodes.shape == (17, 3)
    assert rule.weights.sum().item() == pytest.approx(1.0)
    assert amsip.load_metadata(target).names == ("a", "b", "c")
    assert "17 nodes for 700 draws of 3 parameters" in out
    shown = re.search(r"^b +(\S+)", out, re.MULTILINE).group(1)
    assert float(shown) == pytest.approx(rule.mean()[1].item(), rel=1e-3)


def test_the_seed_decides_the_rule(draws, tmp_path, capsys):
    for name, seed in (("one", 5), ("same", 5), ("other", 6)):
        run(capsys, "quadrature", draws, "-m", 5, "-o", tmp_path / name, "--rng-seed", seed)
    one, same, other = (amsip.load_rule(tmp_path / name).nodes for name in ("one", "same", "other"))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_the_library_gives_the_same_rule(draws, tmp_path, capsys):
    run(capsys, "quadrature", draws, "-m", 7, "-o", tmp_path / "rule.npz", "--columns", "c,a", "--rng-seed", 3)
    values = amsip.read_draws(draws, columns=["c", "a"]).values
    rule = amsip.quadrature(values, 7, generator=torch.Generator().manual_seed(3))
    assert torch.equal(amsip.load_rule(tmp_path / "rule.npz").nodes, rule.nodes)


@pytest.mark.parametrize("kernel", ["default", "log-rule", "dimension"])
@pytest.mark.parametrize("node_map", ["universal", "reweight", "descent"])
def test_every_kernel_and_map_runs(draws, capsys, kernel, node_map):
    status, out, _ = run(capsys, "quadrature", draws, "-m", 5, "--kernel", kernel, "--map", node_map)
    assert status == 0
    ratio = float(re.search(r", (\S+) of what as many plain draws", out).group(1))
    assert 0.0 < ratio < 1.5


def test_your_own_weights_make_a_rule(draws, tmp_path, capsys):
    amsip.save_map(amsip.UnrolledMap(layers=1, width=8, heads=2), tmp_path / "mine.safetensors")
    status, out, err = run(capsys, "quadrature", draws, "-m", 5, "--map", tmp_path / "mine.safetensors")
    assert (status, err) == (0, "")
    assert "reweighted seeds" in out


def test_reweighting_keeps_draws_as_nodes(draws, tmp_path, capsys):
    run(capsys, "quadrature", draws, "-m", 5, "--map", "reweight", "-o", tmp_path / "rule.npz")
    nodes, atoms = amsip.load_rule(tmp_path / "rule.npz").nodes, amsip.read_draws(draws).values
    assert torch.cdist(nodes, atoms, compute_mode="donot_use_mm_for_euclid_dist").min(-1).values.max() < 1e-9


def test_score_agrees_with_the_library(draws, tmp_path, capsys):
    target = tmp_path / "rule.npz"
    run(capsys, "quadrature", draws, "-m", 11, "-o", target)
    status, out, _ = run(capsys, "score", target, draws)
    assert status == 0
    reference = amsip.Samples(amsip.read_draws(draws).values)
    rule = amsip.load_rule(target)
    embedding = reference.embed(amsip.defaults.default_kernel(reference))
    expected = amsip.mmd2(rule.nodes, rule.weights, embedding).item()
    assert float(re.search(r"MMD\^2 (\S+),", out).group(1)) == pytest.approx(expected, rel=1e-2)


def test_score_matches_columns_by_name(draws, tmp_path, capsys):
    target, turned = tmp_path / "rule.npz", tmp_path / "turned.csv"
    run(capsys, "quadrature", draws, "-m", 11, "-o", target, "--weights-column", "w")
    table = np.loadtxt(draws, delimiter=",", skiprows=1)[:, [2, 3, 0, 1]]
    np.savetxt(turned, table, delimiter=",", header="c,w,a,b", comments="")
    _, straight, _ = run(capsys, "score", target, draws, "--weights-column", "w")
    _, other, _ = run(capsys, "score", target, turned, "--weights-column", "w")
    assert other == straight


def test_one_rule_is_not_scored_against_many_queries(draws, tmp_path, capsys):
    target = tmp_path / "rule.npz"
    run(capsys, "quadrature", draws, "-m", 5, "-o", target)
    np.save(tmp_path / "many.npy", np.zeros((3, 7, 4)))
    status, _, err = run(capsys, "score", target, tmp_path / "many.npy", "--leading", "queries")
    assert status == 1
    assert "must have the query axes of the draws, (3,): got ()" in err


def test_equal_weight_draws_score_about_one(draws, tmp_path, capsys):
    """A wrong floor (per node, or without the self-affinity) would be off by a factor."""
    values = amsip.read_draws(draws).values
    ratios = []
    for seed in range(40):
        nodes = amsip.draw_seeds(amsip.Samples(values), 11, generator=torch.Generator().manual_seed(seed))
        amsip.save_rule(amsip.Rule(nodes, amsip.uniform_weights(nodes)), tmp_path / "rule.npz")
        _, out, _ = run(capsys, "score", tmp_path / "rule.npz", draws)
        ratios.append(float(re.search(r", (\S+) of what as many plain draws", out).group(1)))
    error = np.std(ratios) / np.sqrt(len(ratios))
    assert abs(np.mean(ratios) - 1.0) < 5 * error


def test_queries_are_counted(tmp_path, capsys):
    np.save(tmp_path / "draws.npy", np.random.default_rng(2).standard_normal((3, 200, 2)))
    status, out, _ = run(capsys, "quadrature", tmp_path / "draws.npy", "-m", 5, "--leading", "queries")
    assert status == 0
    assert "3 x" in out or " x " in out


BAD = {
    "missing file": (("quadrature", "none.csv"), "There is no file 'none.csv'."),
    "too many nodes": (("quadrature", "{draws}", "-m", "100000"), "`m`"),
    "no nodes": (("quadrature", "{draws}", "-m", "0"), "`m`"),
    "unknown column": (("quadrature", "{draws}", "--columns", "z"), "no column 'z'"),
    "missing rule": (("score", "none.npz", "{draws}"), "none.npz"),
    "draws as rule": (("score", "{draws}", "{draws}"), "not a readable"),
    "missing configuration": (("train", "none.toml"), "none.toml"),
    "missing map": (("maps", "no-such-map"), "no-such-map"),
    "missing folder": (("bench", "bandwidths", "--json", "no/such/folder/x.json"), "There is no folder"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_status_one(draws, capsys, case):
    words, message = BAD[case]
    status, out, err = run(capsys, *(word.format(draws=draws) for word in words))
    assert status == 1
    assert out == ""
    assert err.startswith("amsip: ")
    assert err.count("\n") == 1
    assert message in err


def test_a_row_that_is_not_finite_is_named(tmp_path, capsys):
    (tmp_path / "draws.csv").write_text("a,b\n1,2\n3,nan\n5,6\n")
    status, _, err = run(capsys, "quadrature", tmp_path / "draws.csv", "-m", 2)
    assert status == 1
    assert "row 1" in err


def test_a_failed_run_keeps_the_old_rule(draws, tmp_path, capsys):
    target = tmp_path / "rule.npz"
    run(capsys, "quadrature", draws, "-m", 5, "-o", target)
    before = target.read_bytes()
    assert run(capsys, "quadrature", draws, "-m", 0, "-o", target)[0] == 1
    assert target.read_bytes() == before


def test_a_rule_of_another_dimension_is_refused(draws, tmp_path, capsys):
    amsip.save_rule(amsip.Rule(torch.zeros(2, 2), torch.ones(2)), tmp_path / "rule.npz")
    status, _, err = run(capsys, "score", tmp_path / "rule.npz", draws)
    assert status == 1
    assert "coordinates" in err


@pytest.mark.parametrize("words", [[], ["nonsense"], ["quadrature"], ["bench", "nonsense"]])
def test_wrong_usage_exits_with_two(words, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(words)
    assert exit_.value.code == 2
    assert "usage: amsip" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_every_help_shows_a_command_that_parses(verb, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([verb, "--help"])
    assert exit_.value.code == 0
    examples = re.findall(rf"^ +(amsip {verb}.*?)(?:   .*)?$", capsys.readouterr().out, re.MULTILINE)
    assert examples
    for example in examples:
        if "--help" not in example:
            build_parser().parse_args(shlex.split(example)[1:])


@pytest.mark.parametrize("name", BENCHES)
def test_every_measurement_has_the_three_functions(name, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["bench", name, "--help"])
    assert exit_.value.code == 0
    assert "--json" in capsys.readouterr().out


def test_bench_writes_what_it_prints(tmp_path, capsys, monkeypatch):
    from amsip.bench import bandwidths

    monkeypatch.setattr(bandwidths, "run", lambda arguments: {"rows": [], "exact": 0})
    status, out, _ = run(capsys, "bench", "bandwidths", "--json", tmp_path / "result.json")
    assert status == 0
    assert out == "\n".join([bandwidths.render({"rows": [], "exact": 0}), ""])
    assert json.loads((tmp_path / "result.json").read_text()) == {"rows": [], "exact": 0}


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "amsip", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == "amsip 0.1.0\n"


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_commands_of_the_readme_run(draws, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command in commands:
        words = shlex.split(command, comments=True)
        if words[:1] == ["make"]:
            assert words[1] in targets
        elif words[:1] == ["amsip"]:
            status, _, err = run(capsys, *words[1:])
            assert (status, err) == (0, ""), command
    assert any(command.startswith("amsip quadrature") for command in commands)


def test_the_python_of_the_readme_runs(draws, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"draws": amsip.read_draws(draws).values, "model": lambda x: x.square().sum(-1)}
    amsip.save_rule(amsip.quadrature(given["draws"], 8), tmp_path / "rule.npz")
    assert blocks("python")
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), dict(given))


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line(tmp_path, capsys):
    rows = np.random.default_rng(0).normal(size=(500, 2))
    rows[5] = 1e6
    path = tmp_path / "wild.csv"
    np.savetxt(path, rows, delimiter=",")
    assert main(["quadrature", str(path), "-m", "8", "-o", str(tmp_path / "rule.npz")]) == 0
    lines = capsys.readouterr().err.strip().splitlines()
    assert [line[:60] for line in lines] == ["amsip: warning: row 5 carries 100% of the variance in its di"]
