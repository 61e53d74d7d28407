"""Maps fitted to one toy: the paper's network as the paper trains it, and the unrolled map in at most the same time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from amsip.maps.attention import AttentionMap
from amsip.maps.unrolled import UnrolledMap
from amsip.pretrained import available_maps, load_card, load_map, save_map
from amsip.problems.toys import BASE_SEED, Toy
from amsip.references.base import Embedding
from amsip.training.config import FitConfig
from amsip.training.engine import fit_map
from amsip.training.losses import LogRatio
from amsip.training.tasks import BUDGETS, Task, draw_budget

PAPER, UNROLLED = "paper", "unrolled"
SLUGS = (PAPER, UNROLLED)
GAUSSIAN_STEPS, OTHER_STEPS = 4000, 3500
BATCH, UNROLLED_BATCH = 64, 16
NET_SEED = 0
# half to a third of the time of double precision, at the same loss: the score is in double precision anyhow
DTYPE = "float32"
# the paper's map may have taken longer on a machine that had other work to do
UNROLLED_SECONDS = 240.0
UNROLLED_RATE = 1e-3
TRIAL_STEPS = 20


@dataclass(frozen=True, eq=False)
class ToyTasks:
    """Fresh seeds of a toy at each step, drawn as the paper draws them.

    Arguments:
        toy: The target.
        embedding: Its embedding.
        batch: Seed sets a step.
        budgets: The numbers of nodes to choose from.

    Example:
        >>> from amsip.problems.toys import gaussian_toy
        >>> toy = gaussian_toy(2)
        >>> tasks = ToyTasks(toy, toy.reference().embed(toy.kernel), batch=3)
        >>> tasks(torch.Generator().manual_seed(0)).seeds.shape[0]
        3
    """

    toy: Toy
    embedding: Embedding
    batch: int = BATCH
    budgets: tuple[int, ...] = BUDGETS

    def __call__(self, generator: torch.Generator) -> Task:
        m = draw_budget(self.budgets, generator)
        rows = self.toy.draw(self.batch * m, generator)
        return Task(rows.reshape(self.batch, m, self.toy.dim), self.embedding)


def fit_missing(toy: Toy, folder: Path, report: Callable[[str], None]) -> None:
    """Fit the maps of a toy that are not in the folder yet; interrupted fits resume.

    Arguments:
        toy: The target.
        folder: Where weights, cards and checkpoints go.
        report: Told what happens, a line at a time.
    """
    fit_paper(toy, folder, report)
    _fit_one(UNROLLED, _fit_unrolled, toy, folder, report)


def fit_paper(toy: Toy, folder: Path, report: Callable[[str], None]) -> None:
    """Fit the paper's map alone, if it is not in the folder yet; arguments as for `fit_missing`."""
    _fit_one(PAPER, _fit_paper, toy, folder, report)


def paper_steps(toy: Toy) -> int:
    """The steps that the paper gives its network on a toy.

    Example:
        >>> from amsip.problems.toys import gaussian_toy, mixture_toy
        >>> paper_steps(gaussian_toy(2)), paper_steps(mixture_toy(10))
        (4000, 3500)
    """
    return GAUSSIAN_STEPS if toy.name.startswith("gaussian") else OTHER_STEPS


def weights_file(folder: Path, slug: str, toy: Toy) -> Path:
    """Where the weights fitted to a toy are kept."""
    return folder / "maps" / f"{slug}-{toy.name}.safetensors"


def missing(folder: Path, slug: str, toy: Toy) -> str | None:
    """Why there is no such map, or None."""
    return None if weights_file(folder, slug, toy).exists() else "not fitted yet: run with --train"


def digest(folder: Path, slug: str, toy: Toy) -> str:
    """The digest of the weights."""
    return load_card(weights_file(folder, slug, toy)).sha256


def spent(toys: list[Toy], folder: Path) -> list[dict[str, object]]:
    """What the fits of the maps that are there took.

    Arguments:
        toys: The targets.
        folder: Where the maps are.
    """
    found: list[dict[str, object]] = []
    for toy in toys:
        for slug in SLUGS:
            if missing(folder, slug, toy) is None:
                about = load_card(weights_file(folder, slug, toy)).about
                found.append({"toy": toy.name, "map": slug, "seconds": about["seconds"], "steps": about["steps"]})
    return found


def _fit_one(
    slug: str, fit: Callable[[Toy, Embedding, Path, Path], None], toy: Toy, folder: Path, report: Callable[[str], None]
) -> None:
    if missing(folder, slug, toy) is None:
        return
    report(f"fitting the {slug} map to {toy.name}")
    started = time.perf_counter()
    fit(toy, toy.reference().embed(toy.kernel), weights_file(folder, slug, toy), folder)
    report(f"fitted in {time.perf_counter() - started:.0f} s")


def _fit_paper(toy: Toy, embedding: Embedding, path: Path, folder: Path) -> None:
    net = AttentionMap(toy.dim, generator=torch.Generator().manual_seed(NET_SEED))
    config = FitConfig(steps=paper_steps(toy), dtype=DTYPE, checkpoint=str(path.with_suffix(".checkpoint")))
    path.parent.mkdir(parents=True, exist_ok=True)
    log = fit_map(net, ToyTasks(toy, embedding), config, generator=torch.Generator().manual_seed(BASE_SEED))
    save_map(net, path, about={"toy": toy.name, "seconds": log.seconds, "steps": log.steps})


def _fit_unrolled(toy: Toy, embedding: Embedding, path: Path, folder: Path) -> None:
    """From the universal weights where there are any, for at most as long as the paper's map took."""
    universal = "universal" in available_maps()
    net = load_map("universal").double() if universal else UnrolledMap().double()
    seconds = min(UNROLLED_SECONDS, float(load_card(weights_file(folder, PAPER, toy)).about["seconds"]))
    tasks = ToyTasks(toy, embedding, batch=UNROLLED_BATCH)
    steps = max(TRIAL_STEPS, int(0.9 * seconds / _seconds_a_step(net, tasks)))
    config = FitConfig(
        steps=steps,
        lr=UNROLLED_RATE,
        schedule="cosine",
        warmup=min(50, steps // 10),
        clip=1.0,
        ema=0.99,
        every_layer=True,
        max_seconds=seconds,
        max_skipped=steps // 20,
    )
    log = fit_map(net, tasks, config, loss=LogRatio(steepest=3.0), generator=torch.Generator().manual_seed(BASE_SEED))
    about = {"toy": toy.name, "seconds": log.seconds, "steps": log.steps, "start": "universal" if universal else ""}
    save_map(net, path, about=about)


def _seconds_a_step(net: torch.nn.Module, tasks: ToyTasks) -> float:
    """What a step costs, on a copy that is thrown away."""
    copy = UnrolledMap(**net.settings).double()  # type: ignore[arg-type]
    config = FitConfig(steps=TRIAL_STEPS)
    return fit_map(copy, tasks, config, generator=torch.Generator().manual_seed(1)).seconds / TRIAL_STEPS
