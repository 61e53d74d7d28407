"""The maps that the figures need: read from the cache, or fitted once and kept there."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from amsip.bench.cache import cache_directory
from amsip.bench.toys import fitted
from amsip.bench.toys.measure import bench_toys
from amsip.maps.attention import AttentionMap
from amsip.paper.base import Run
from amsip.pretrained import load_card, load_map, save_map
from amsip.problems.toys import BASE_SEED, Toy, banana
from amsip.training.config import FitConfig
from amsip.training.engine import fit_map
from amsip.training.log import Entry
from amsip.training.tasks import Tasks

QUICK_STEPS, QUICK_BATCH, QUICK_BANK = 15, 4, 300
REPORT_EVERY = 500


def trained_map(
    run: Run,
    name: str,
    make_net: Callable[[], nn.Module],
    tasks: Tasks,
    config: FitConfig,
    *,
    rng_seed: int = BASE_SEED,
) -> nn.Module:
    """A map from the cache of a run, or fitted now; a fit that was cut resumes from its checkpoint.

    Arguments:
        run: Where maps are kept, and who is told how far a fit is.
        name: The file, unique among all experiments: a changed configuration needs another name.
        make_net: The untrained map, with its own seed.
        tasks: What it is fitted to.
        config: How; its checkpoint is set here.
        rng_seed: Of the tasks.

    Returns:
        The map, in evaluation mode.
    """
    path = weights_file(run, name)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint = path.with_suffix(".checkpoint")

        def tell(entry: Entry) -> None:
            if entry["step"] % REPORT_EVERY == 0:
                run.report(f"{name}: step {entry['step']} of {config.steps}, loss {entry['loss']:.4g}")

        net = make_net()
        generator = torch.Generator().manual_seed(rng_seed)
        log = fit_map(net, tasks, replace(config, checkpoint=str(checkpoint)), generator=generator, callback=tell)
        save_map(net, path, about={"name": name, "seconds": log.seconds, "steps": log.steps})
        checkpoint.unlink(missing_ok=True)
        run.report(f"{name}: fitted in {log.seconds:.0f} s")
    return load_map(path)


def weights_file(run: Run, name: str) -> Path:
    """Where the weights called `name` are kept."""
    return run.folder / "maps" / f"{name}.safetensors"


def toy_map(run: Run, name: str) -> nn.Module:
    """The paper's map of a toy, as `amsip bench toys --train` fits and keeps it; a short fit in a quick run.

    Arguments:
        run: Who is told how far a fit is.
        name: One of `amsip.bench.toys.measure.bench_toys()`.
    """
    toy = bench_toys()[name]
    if run.quick:
        return _quick_map(run, banana(QUICK_BANK) if name == "banana" else toy)
    folder = cache_directory("toys")
    fitted.fit_paper(toy, folder, run.report)
    return load_map(fitted.weights_file(folder, fitted.PAPER, toy))


def toy_digest(run: Run, name: str) -> str:
    """The digest of the weights that `toy_map` gives, once it has given them."""
    if run.quick:
        return load_card(weights_file(run, f"quick-{name}")).sha256
    return fitted.digest(cache_directory("toys"), fitted.PAPER, bench_toys()[name])


def _quick_map(run: Run, toy: Toy) -> nn.Module:
    return trained_map(
        run,
        f"quick-{toy.name}",
        lambda: AttentionMap(toy.dim, generator=torch.Generator().manual_seed(0)),
        fitted.ToyTasks(toy, toy.reference().embed(toy.kernel), batch=QUICK_BATCH),
        FitConfig(steps=QUICK_STEPS, lr=2e-3),
    )
