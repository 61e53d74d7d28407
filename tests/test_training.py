"""The training engine: losses, tasks, settings, resume, early stopping, runs from a file."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from amsip import Mixture, NumericalError, Samples, SquaredExponential
from amsip.defaults import default_kernel
from amsip.discrepancy import mmd2
from amsip.maps.attention import AttentionMap
from amsip.maps.conditioned import ConditionedMap
from amsip.maps.meanshift import MeanShift
from amsip.pretrained import load_card, load_map
from amsip.training import (
    Distillation,
    FitConfig,
    LogRatio,
    ReferenceTasks,
    SquaredDiscrepancy,
    StreamTasks,
    Task,
    TrainLog,
    fit_map,
)
from amsip.training.families import build_tasks
from amsip.training.runs import train_from_config
from amsip.weights import optimal_weights, uniform_weights

KERNEL = SquaredExponential(0.5)


def generator(rng_seed=0):
    return torch.Generator().manual_seed(rng_seed)


def normal(*shape, rng_seed=0):
    return torch.randn(*shape, generator=generator(rng_seed), dtype=torch.float64)


def small_map(rng_seed=0):
    return AttentionMap(3, width=8, blocks=1, heads=2, generator=generator(rng_seed))


def small_tasks(**options):
    return ReferenceTasks(Samples(normal(61, 3)), KERNEL, **{"budgets": (4, 7), "batch": 5, **options})


def state(node_map):
    return torch.cat([p.detach().reshape(-1) for p in node_map.parameters()])


def a_task(m=7, q=2):
    return Task(normal(q, m, 3, rng_seed=3), Samples(normal(61, 3)).embed(KERNEL))


# tasks


def test_seeds_are_fresh_and_their_number_varies():
    tasks, source = small_tasks(), generator()
    made = [tasks(source).seeds for _ in range(20)]
    assert {tuple(z.shape) for z in made} == {(5, 4, 3), (5, 7, 3)}
    firsts = torch.stack([z[0, 0] for z in made])
    assert len(firsts.unique(dim=0)) > 10


def test_each_set_is_drawn_without_replacement_and_the_sets_independently():
    tasks = ReferenceTasks(Samples(normal(7, 1)), KERNEL, budgets=(7,), batch=5)
    sets = tasks(generator()).seeds.sort(1).values
    assert torch.equal(sets, tasks.reference.atoms.sort(0).values.expand(5, 7, 1))


def test_seeds_of_a_mixture_follow_it():
    pair = Mixture(torch.ones(2), torch.tensor([[-9.0], [9.0]]).double(), torch.ones(2, 1, 1).double())
    z = ReferenceTasks(pair, KERNEL, budgets=(16,), batch=400)(generator()).seeds
    assert z.shape == (400, 16, 1)
    assert abs(z.mean()) < 5 * 9 / math.sqrt(6400)
    assert abs((z > 0).double().mean(1).var().item() - 0.25 / 16) < 0.01


def test_under_a_whitened_kernel_tasks_live_in_its_chart():
    reference = Samples(100.0 + 10.0 * normal(500, 3))
    task = ReferenceTasks(reference, default_kernel(reference), budgets=(7,), batch=5)(generator())
    assert task.seeds.abs().max() < 6
    torch.testing.assert_close(task.embedding.moments[1], torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-8)


def test_a_batch_of_references_gives_every_query_its_own_seeds():
    centres = torch.tensor([[0.0], [100.0]]).double()
    batch = Mixture(torch.ones(2, 1).double(), centres[:, None, :], torch.ones(2, 1, 1, 1).double())
    z = ReferenceTasks(batch, KERNEL, budgets=(5,), batch=3)(generator()).seeds
    assert z.shape == (3, 2, 5, 1)
    assert (z - centres[:, None, :]).abs().max() < 8


def test_streams_bring_their_observations():
    def stream(source):
        y = torch.randn(7, 2, generator=source, dtype=torch.float64)
        return Samples(y[:, None, :] + torch.randn(7, 50, 2, generator=source, dtype=torch.float64)), y

    task = StreamTasks(stream, default_kernel, budgets=(5,))(generator())
    assert task.seeds.shape == (7, 5, 2)
    assert task.observation.shape == (7, 2)
    net = ConditionedMap(2, (2,), width=8, blocks=1, heads=2, generator=generator())
    log = fit_map(net, StreamTasks(stream, default_kernel, budgets=(5,)), FitConfig(steps=2), generator=generator())
    assert log.steps == 2
    assert state(net)[:10].isfinite().all()


# losses


def test_squared_discrepancy_is_that_of_the_optimal_rule():
    task = a_task()
    weights = optimal_weights(task.seeds, task.embedding)
    expected = mmd2(task.seeds, weights, task.embedding).mean()
    torch.testing.assert_close(SquaredDiscrepancy()(task.seeds, task), expected, rtol=1e-12, atol=0)


@settings(max_examples=20, deadline=None)
@given(m=st.integers(1, 23), rng_seed=st.integers(0, 10_000))
def test_envelope_gradient_is_the_gradient_through_the_solve(m, rng_seed):
    # fails when the weights are frozen at anything but the optimum, e.g. without the unit-sum constraint
    task = Task(normal(2, m, 3, rng_seed=rng_seed), Samples(normal(61, 3)).embed(KERNEL))
    for loss in (SquaredDiscrepancy, LogRatio):
        found = []
        for through in (False, True):
            z = task.seeds.clone().requires_grad_()
            loss(through_weights=through)(z, task).backward()
            found.append(z.grad)
        torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-8)


def test_log_ratio_weighs_every_budget_alike():
    task = a_task()
    moved = task.seeds * 0.9
    scores = mmd2(moved, optimal_weights(moved, task.embedding), task.embedding)
    floor = mmd2(task.seeds, uniform_weights(task.seeds), task.embedding)
    reweighted = mmd2(task.seeds, optimal_weights(task.seeds, task.embedding), task.embedding)
    for baseline, loss in ((floor, LogRatio()), (reweighted, LogRatio(reweighted=True))):
        torch.testing.assert_close(loss(moved, task), (scores / baseline).log().mean(), rtol=1e-10, atol=0)


def test_log_ratio_is_finite_where_the_rule_is_exact():
    atoms = normal(5, 3)
    task = Task(atoms, Samples(atoms).embed(KERNEL))
    z = atoms.clone().requires_grad_()
    LogRatio()(z, task).backward()
    assert z.grad.isfinite().all()


def test_distillation_holds_its_target_fixed():
    # with the target on the graph the gradient would be half as large
    task = a_task()
    z = task.seeds.clone().requires_grad_()
    value = Distillation(lambda nodes, embedding: nodes / 2)(z, task)
    value.backward()
    torch.testing.assert_close(value, (z.detach() / 2).square().mean())
    torch.testing.assert_close(z.grad, z.detach() / z.numel())


def test_distillation_vanishes_at_the_teachers_fixed_points_only():
    task = a_task()
    teach = Distillation(lambda nodes, embedding: 0.5 * nodes)
    assert teach(torch.zeros_like(task.seeds), task) == 0
    assert teach(task.seeds, task) > 0


def test_distillation_vanishes_where_the_discrepancy_is_stationary():
    # proposition 3: fixed points of the mean shift are stationary under w ~ K^-1 v0, whose profile is -v0' K^-1 v0
    target = Mixture(torch.ones(1).double(), torch.zeros(1, 2).double(), torch.eye(2).double()[None])
    embedding = target.embed(SquaredExponential(1.0))
    start = normal(5, 2)
    for nodes, moving in ((MeanShift(steps=3000)(start, embedding), False), (start, True)):
        z = nodes.detach().requires_grad_()
        mean = embedding.mean(z)
        profile = -(mean * torch.linalg.solve(embedding.kernel.gram(z), mean)).sum()
        gradient = torch.autograd.grad(profile, z)[0].abs().max()
        distance = Distillation()(nodes, Task(nodes, embedding))
        assert (distance > 1e-4) == (gradient > 1e-4) == moving
        assert moving or (distance < 1e-12 and gradient < 1e-6)


# settings


def test_unknown_or_mistyped_settings_are_errors():
    with pytest.raises(ValueError, match=r"`step` is not a setting of \[fit\]: did you mean `steps`"):
        FitConfig.of({"step": 1})
    with pytest.raises(TypeError, match="`steps` must be of type int: got '10'"):
        FitConfig.of({"steps": "10"})
    with pytest.raises(TypeError, match="`steps` must be of type int"):
        FitConfig.of({"steps": 10.0})
    assert FitConfig.of({"lr": 1, "max_seconds": 60}).lr == 1.0
    for bad in ({"lr": 0.0}, {"ema": 1.0}, {"steps": -1}, {"schedule": "linear"}, {"clip": 0.0}, {"log_every": 0}):
        with pytest.raises(ValueError, match="must be"):
            FitConfig(**bad)


def test_learning_rates():
    config = FitConfig(steps=110, lr=2.0, schedule="cosine", warmup=10)
    assert config.rate(0) == pytest.approx(0.2)
    assert config.rate(9) == config.rate(10) == 2.0
    assert config.rate(60) == pytest.approx(1.0)
    assert config.rate(110) == pytest.approx(0.0)
    assert FitConfig().rate(3999) == 3e-4


# fitting


def test_fitting_lowers_the_loss_and_uses_adam():
    net, task = small_map(), a_task()
    before = SquaredDiscrepancy()(net(task.seeds), task)
    log = fit_map(net, small_tasks(), FitConfig(steps=60, lr=3e-3, log_every=20), generator=generator())
    assert SquaredDiscrepancy()(net(task.seeds), task) < before
    assert (log.steps, len(log.losses), log.ended) == (60, 3, "steps")
    assert log.best == min(log.losses)
    assert not net.training


def test_first_step_of_adam_moves_each_parameter_by_the_rate():
    net = small_map()
    before = net.head.weight.detach().clone()
    fit_map(net, small_tasks(), FitConfig(steps=1, lr=1e-3), generator=generator())
    torch.testing.assert_close((net.head.weight - before).abs(), torch.full_like(before, 1e-3), rtol=1e-3, atol=0)


def test_the_generator_alone_decides():
    def trained(rng_seed):
        net = small_map()
        fit_map(net, small_tasks(), FitConfig(steps=3), generator=generator(rng_seed))
        return state(net)

    before = torch.random.get_rng_state()
    first, same, other = trained(1), trained(1), trained(2)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_iterables_of_tasks_and_own_losses_work():
    tasks = [a_task(m) for m in (3, 5, 7)]
    seen = []

    def loss(nodes, task):
        seen.append(task.seeds.shape[-2])
        return nodes.square().mean()

    fit_map(small_map(), tasks, FitConfig(steps=3), loss=loss, generator=generator())
    assert seen == [3, 5, 7]
    with pytest.raises(ValueError, match="`tasks` must hold one task for each step"):
        fit_map(small_map(), tasks, FitConfig(steps=4), loss=loss, generator=generator())


def test_clipping_bounds_the_gradient():
    net = small_map()
    norms = []

    def loss(nodes, task):
        return 1e6 * nodes.square().mean()

    class Spy(torch.optim.Adam):
        def step(self, closure=None):
            norms.append(torch.cat([p.grad.reshape(-1) for p in net.parameters()]).norm().item())
            return super().step(closure)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "Adam", Spy)
        fit_map(net, small_tasks(), FitConfig(steps=2, clip=0.5), loss=loss, generator=generator())
    assert norms == pytest.approx([0.5, 0.5])


def test_time_limit_ends_cleanly():
    log = fit_map(small_map(), small_tasks(), FitConfig(steps=10**6, max_seconds=0.2), generator=generator())
    assert log.ended == "time"
    assert 0 < log.steps < 10**6
    assert len(log.losses) > 0


def test_patience_returns_to_the_best_parameters():
    net, task = small_map(), a_task()
    config = FitConfig(steps=1000, lr=0.5, patience=3, check_every=1)
    log = fit_map(net, small_tasks(), config, held_out=[task], generator=generator())
    assert log.ended == "patience"
    assert log.best == min(log.held_out) < log.held_out[-1]
    assert log.steps == len(log.held_out) == log.held_out.index(log.best) + 4
    assert len(log.losses) == 1
    assert SquaredDiscrepancy()(net(task.seeds), task).item() == pytest.approx(log.best, rel=1e-12)


def test_moving_average_is_what_the_fit_ends_with():
    trace = []

    def trained(ema):
        net = small_map()
        trace.clear()
        config = FitConfig(steps=3, lr=1e-2, ema=ema)
        fit_map(net, small_tasks(), config, generator=generator(), callback=lambda entry: trace.append(state(net)))
        return state(net)

    last = trained(0.0)
    average = state(small_map())
    for step, parameters in enumerate(list(trace)):
        decay = min(0.99, (1 + step) / (10 + step))
        average = decay * average + (1 - decay) * parameters
    torch.testing.assert_close(trained(0.99), average, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(last, average, rtol=1e-6)


def test_failed_steps_are_counted_and_limited():
    def broken(nodes, task):
        if task.seeds.shape[-2] == 5:
            raise NumericalError("no factor.")
        return nodes.sum() * (math.nan if task.seeds.shape[-2] == 4 else 1.0)

    tasks = [a_task(m) for m in (3, 4, 5, 6)]
    net = small_map()
    log = fit_map(net, tasks, FitConfig(steps=4, max_skipped=2), loss=broken, generator=generator())
    assert (log.steps, log.skipped) == (4, 2)
    assert state(net).isfinite().all()
    with pytest.raises(NumericalError, match=r"Step 2 has no finite loss or gradient.*no factor"):
        fit_map(small_map(), tasks, FitConfig(steps=4, max_skipped=1), loss=broken, generator=generator())


def test_precision_of_the_parameters_is_a_setting():
    net = small_map()
    fit_map(net, small_tasks(), FitConfig(steps=2, dtype="float32"), generator=generator())
    assert net.head.weight.dtype == torch.float32


@pytest.mark.parametrize("loss", [SquaredDiscrepancy(), LogRatio(), LogRatio(reweighted=True)])
def test_references_in_single_precision_train_as_well(loss):
    # a Gram rounded to float32 has no Cholesky factor at the ridge of the paper
    wide = SquaredExponential(5.0)
    tasks = ReferenceTasks(Samples(normal(61, 3).float()), wide, budgets=(31,), batch=5)
    log = fit_map(small_map().float(), tasks, FitConfig(steps=2), loss=loss, generator=generator())
    assert math.isfinite(log.best)


def test_maps_without_parameters_are_refused():
    with pytest.raises(TypeError, match="parameters that require gradients"):
        fit_map(torch.nn.Identity(), small_tasks(), FitConfig(steps=1))


# resuming


@pytest.mark.parametrize("options", [{}, {"ema": 0.9, "schedule": "cosine", "warmup": 3, "clip": 0.1}])
def test_resuming_is_exact_to_the_bit(tmp_path, options):
    held = [a_task()]
    config = FitConfig(steps=12, lr=1e-2, log_every=5, check_every=3, patience=50, **options)
    whole = small_map()
    expected = fit_map(whole, small_tasks(), config, held_out=held, generator=generator())

    class KilledError(Exception):
        pass

    def kill(entry):
        if entry["step"] == 8:
            raise KilledError

    saving = dataclasses.replace(
        config, checkpoint=str(tmp_path / "run"), checkpoint_steps=4, log=str(tmp_path / "log.jsonl")
    )
    with pytest.raises(KilledError):
        fit_map(small_map(), small_tasks(), saving, held_out=held, generator=generator(), callback=kill)
    resumed = small_map(rng_seed=99)
    found = fit_map(resumed, small_tasks(), saving, held_out=held, generator=generator(99))
    assert torch.equal(state(whole), state(resumed))
    assert dataclasses.replace(found, seconds=0.0) == dataclasses.replace(expected, seconds=0.0)
    entries = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [e["step"] for e in entries if "loss" in e] == [5, 10, 12]


def test_a_finished_run_returns_at_once(tmp_path):
    config = FitConfig(steps=4, checkpoint=str(tmp_path / "run"))
    first, again = small_map(), small_map(rng_seed=5)
    log = fit_map(first, small_tasks(), config, generator=generator())
    assert fit_map(again, small_tasks(), config, generator=generator(7)).losses == log.losses
    assert torch.equal(state(first), state(again))
    longer = dataclasses.replace(config, steps=6)
    assert fit_map(small_map(), small_tasks(), longer, generator=generator()).steps == 6


def test_checkpoints_of_other_maps_are_refused(tmp_path):
    config = FitConfig(steps=1, checkpoint=str(tmp_path / "run"))
    fit_map(small_map(), small_tasks(), config, generator=generator())
    with pytest.raises(ValueError, match="must hold the tensors of this map"):
        fit_map(AttentionMap(3, width=8, blocks=2, heads=2), small_tasks(), config, generator=generator())


def test_no_partial_files_are_left(tmp_path):
    config = FitConfig(steps=4, checkpoint=str(tmp_path / "run"), checkpoint_steps=1)
    fit_map(small_map(), small_tasks(), config, generator=generator())
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_log_is_plain_json():
    log = TrainLog(steps=3, seconds=0.5, losses=(1.0, 0.5), held_out=(0.7,), best=0.7)
    assert TrainLog.of(json.loads(json.dumps(log.as_dict()))) == log


def test_tensorboard_gets_the_entries(tmp_path, monkeypatch):
    written = []

    class Writer:
        def __init__(self, directory):
            assert directory == "board"

        def add_scalar(self, name, value, step):
            written.append((name, step))

        def close(self):
            written.append("closed")

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=Writer))
    config = FitConfig(steps=2, log_every=2, tensorboard="board")
    fit_map(small_map(), small_tasks(), config, generator=generator())
    assert ("loss", 2) in written
    assert written[-1] == "closed"
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"amsip\[train\]"):
        fit_map(small_map(), small_tasks(), config, generator=generator())


# runs from a file

RUN = """
output = "{folder}/mine.safetensors"
rng_seed = 5
[map]
kind = "attention"
dim = 2
width = 8
blocks = 1
heads = 2
[tasks]
family = "clouds:cloud"
dim = 2
budgets = [4, 6]
batch = 3
held_out = 2
[loss]
kind = "log-ratio"
[fit]
steps = {steps}
check_every = 2
checkpoint_steps = 5
log_every = 5
"""


def write_run(folder, steps=6, **changes):
    text = RUN.format(folder=folder, steps=steps)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_a_file_describes_a_whole_run(tmp_path):
    path = write_run(tmp_path)
    log = train_from_config(path)
    card = load_card(tmp_path / "mine.safetensors")
    net = load_map(tmp_path / "mine.safetensors")
    assert card.about["steps"] == log.steps == 6
    assert card.about["configuration"]["rng_seed"] == 5
    assert card.about["command"] == "amsip train run.toml"
    assert set(card.about["versions"]) == {"amsip", "torch", "python"}
    assert (tmp_path / "mine.jsonl").exists()
    by_hand = AttentionMap(2, width=8, blocks=1, heads=2, generator=generator())
    tasks = build_tasks("clouds:cloud", {"dim": 2}, budgets=(4, 6), batch=3)
    held = generator(50_005)
    config = FitConfig(steps=6, check_every=2)
    fit_map(by_hand, tasks, config, loss=LogRatio(), held_out=[tasks(held) for _ in range(2)], generator=generator(5))
    assert torch.equal(state(net), state(by_hand))


def test_a_run_can_start_from_weights_and_start_over(tmp_path):
    train_from_config(write_run(tmp_path))
    first = load_file(tmp_path / "mine.safetensors")
    text = (tmp_path / "run.toml").read_text()
    settings = 'kind = "attention"\ndim = 2\nwidth = 8\nblocks = 1\nheads = 2'
    start = f'start = "{tmp_path}/mine.safetensors"'
    (tmp_path / "tune.toml").write_text(
        text.replace(settings, start).replace('mine.safetensors"\nrng', 'two.safetensors"\nrng')
    )
    train_from_config(tmp_path / "tune.toml")
    assert not torch.equal(load_file(tmp_path / "two.safetensors")["head.weight"], first["head.weight"])
    again = train_from_config(tmp_path / "run.toml", resume=False)
    assert again.steps == 6
    assert torch.equal(load_file(tmp_path / "mine.safetensors")["head.weight"], first["head.weight"])


def test_weights_are_stored_in_the_precision_asked_for(tmp_path):
    train_from_config(write_run(tmp_path))
    fitted = load_file(tmp_path / "mine.safetensors")
    train_from_config(write_run(tmp_path, **{"rng_seed = 5": 'rng_seed = 5\nstored = "float32"'}))
    stored = load_file(tmp_path / "mine.safetensors")
    assert {value.dtype for value in fitted.values()} == {torch.float64}
    assert all(torch.equal(value.float(), stored[name]) for name, value in fitted.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rng_seed = 5": 'rng_seed = 5\nstored = "float16"'}, "`stored` must be one of"),
        ({"rng_seed = 5": "seed = 5"}, "`seed` is not a setting of a training file"),
        ({'kind = "attention"': 'kind = "transformer"'}, "`kind` must be one of"),
        ({"width = 8": "wide = 8"}, "`wide` is not a setting of the attention map"),
        ({'family = "clouds:cloud"': 'family = "cloud"'}, "`family` must be one of"),
        ({"batch = 3": "batches = 3"}, "`batches` is not a setting of the family clouds:cloud"),
        ({'kind = "log-ratio"': 'kind = "distillation"\nsteps = 3'}, "`steps` is not a setting of"),
        ({'kind = "log-ratio"': 'kind = "mse"'}, "must be one of"),
        ({'kind = "log-ratio"': 'kind = "log-ratio"\nfloor = 1'}, "`floor` is not a setting of"),
        ({"log_every = 5": "log_evry = 5"}, "did you mean `log_every`"),
        ({'output = "': 'out = "'}, "`out` is not a setting of a training file"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        train_from_config(write_run(tmp_path, **change))


def test_progress_is_shown_only_when_asked_for(tmp_path, capfd):
    path = write_run(tmp_path)
    train_from_config(path, progress=True)
    assert "6/6" in capfd.readouterr().err
    train_from_config(path, resume=False)
    assert capfd.readouterr() == ("", "")


def test_a_file_can_ask_for_distillation(tmp_path):
    log = train_from_config(write_run(tmp_path, **{'kind = "log-ratio"': 'kind = "distillation"\ndamping = 0.2'}))
    assert 0 < log.best < math.inf
    assert load_card(tmp_path / "mine.safetensors").about["configuration"]["loss"]["damping"] == 0.2


def test_infinite_settings_reach_the_card_as_words(tmp_path):
    train_from_config(write_run(tmp_path, **{"log_every = 5": "log_every = 5\nmax_seconds = inf"}))
    assert load_card(tmp_path / "mine.safetensors").about["configuration"]["fit"]["max_seconds"] == "inf"


def test_families_can_be_whitened():
    task = build_tasks("gaussian", {"dim": 4, "whitened": True}, budgets=(5,), batch=3)(generator())
    torch.testing.assert_close(task.embedding.moments[1], torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-9)
    assert task.embedding.kernel.bandwidth == 2.0


# processes


def launch(*command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen([sys.executable, *command], env=environment, stderr=subprocess.PIPE, text=True)


def finish(process):
    """The return code, and what was printed when it is not zero."""
    message = process.communicate(timeout=300)[1]
    return process.returncode, message if process.returncode else ""


TRAIN = "import sys; from amsip.training.runs import train_from_config; train_from_config(sys.argv[1])"


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_weights(tmp_path):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole = launch("-c", TRAIN, str(write_run(tmp_path / "whole", steps=600)))
    path = write_run(tmp_path / "killed", steps=600)
    log, kills = tmp_path / "killed" / "mine.jsonl", 0
    for limit in (100, 300):
        process = launch("-c", TRAIN, str(path))
        while process.poll() is None and not (log.exists() and log.read_text().count("\n") > limit // 5):
            time.sleep(0.01)
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        kills += finish(process)[0] == -signal.SIGKILL
    assert kills == 2
    assert not (tmp_path / "killed" / "mine.safetensors").exists()
    assert finish(launch("-c", TRAIN, str(path))) == (0, "")
    assert finish(whole) == (0, "")
    first, second = (load_file(tmp_path / name / "mine.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(first[name], second[name]) for name in first)


TWO = """
import sys, torch
from pathlib import Path
from amsip.training import FitConfig, fit_map, parallel
from amsip import Samples, SquaredExponential
from amsip.maps.attention import AttentionMap
from amsip.training import ReferenceTasks
drawn = []
def tasks(generator):
    task = made(generator)
    drawn.append(task.seeds)
    return task
made = ReferenceTasks(Samples(torch.randn(61, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)),
                      SquaredExponential(0.5), budgets=(5,), batch=3)
folder = Path(sys.argv[1])
with parallel.joined():
    rank = parallel.rank()
    net = AttentionMap(3, width=8, blocks=1, heads=2, generator=torch.Generator().manual_seed(rank))
    config = FitConfig(steps=4, lr=1e-2, checkpoint=str(folder / "run"), checkpoint_steps=2)
    if sys.argv[2] == "half":
        config = FitConfig(steps=2, lr=1e-2, checkpoint=str(folder / "run"))
    fit_map(net, tasks, config, generator=torch.Generator().manual_seed(7))
    torch.save({"net": net.state_dict(), "drawn": torch.stack(drawn)}, folder / f"{sys.argv[2]}{rank}.pt")
"""


@pytest.mark.slow
def test_two_processes_train_one_map(tmp_path):
    (tmp_path / "two.py").write_text(TWO)

    def run(folder, part):
        folder.mkdir(exist_ok=True)
        command = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--rdzv-backend=c10d")
        process = launch(*command, "--rdzv-endpoint=localhost:0", str(tmp_path / "two.py"), str(folder), part)
        assert finish(process) == (0, "")
        return [torch.load(folder / f"{part}{rank}.pt", weights_only=True) for rank in range(2)]

    first, second = run(tmp_path / "whole", "whole")
    assert all(torch.equal(first["net"][name], second["net"][name]) for name in first["net"])
    assert not torch.equal(first["drawn"], second["drawn"])

    # one process that sees both ranks' seeds at once, from the first rank's parameters
    both = torch.cat([first["drawn"], second["drawn"]], 1)
    embedding = Samples(normal(61, 3)).embed(KERNEL)
    net = small_map()
    fit_map(net, [Task(z, embedding) for z in both], FitConfig(steps=4, lr=1e-2), generator=generator())
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, first["net"][name], rtol=1e-9, atol=1e-12)

    run(tmp_path / "parts", "half")
    resumed = run(tmp_path / "parts", "rest")
    assert all(torch.equal(first["net"][name], resumed[0]["net"][name]) for name in first["net"])
