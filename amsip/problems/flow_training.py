"""Training the flow of `amsip.problems.flow_tomography` from a file: `amsip train configs/flow_tomography.toml`."""

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors.torch import load, save
from torch import Generator, Tensor

from amsip import _checks
from amsip._disk import write_atomically
from amsip.kernels import SquaredExponential
from amsip.problems.conditional_flow import ConditionalFlow
from amsip.problems.flow_tomography import HELD_OUT_SEED, TRAINING_SEED, FlowTomography, save_flow
from amsip.problems.limited_angle import LimitedAngle
from amsip.problems.principal import Principal
from amsip.references.samples import Samples
from amsip.training.config import FitConfig
from amsip.training.engine import fit_map
from amsip.training.log import TrainLog
from amsip.training.runs import command_of, provenance
from amsip.training.tasks import Task

# a likelihood has no kernel: the fit asks for an embedding and this loss never reads it
UNREAD = Samples(torch.zeros(1, 1)).embed(SquaredExponential(1.0))
MIRRORED = ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0))


@dataclass(frozen=True)
class FlowConfig:
    """The content of the training file of a flow.

    Arguments:
        output: Where the weights go, a `.safetensors` file; card, log, data and checkpoint go beside it.
        flow: The settings of `ConditionalFlow`, `features` and `context` among them.
        pairs: How many phantoms are simulated to fit it.
        held_out: How many more for early stopping.
        batch: Pairs a step.
        fit: The settings of `FitConfig`.
        rng_seed: Of the initial parameters and of the order of the pairs.

    Example:
        >>> FlowConfig.of({"output": "a.safetensors", "flow": {"features": 8, "context": 8}}).batch
        256
    """

    output: str
    flow: Mapping[str, Any]
    pairs: int = 20_000
    held_out: int = 1_000
    batch: int = 256
    fit: Mapping[str, Any] = field(default_factory=dict)
    rng_seed: int = 0

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> "FlowConfig":
        """From the tables of a TOML file: unknown and missing keys are errors."""
        _checks.known_keys("a training file", list(table), [item.name for item in dataclasses.fields(cls)])
        _checks.has_keys("A training file", list(table), ["output", "flow"])
        return cls(**table)


@dataclass(frozen=True, eq=False)
class MirroredPairs:
    """Batches of (coefficients, context), each pair mirrored at random: the problem is symmetric left-right, up-down.

    Arguments:
        coefficients: Of the images.
        context: Of what was observed.
        signs: What the two mirrors do to them.
        batch: Pairs a step.

    Example:
        >>> pairs = MirroredPairs(torch.ones(9, 2), torch.ones(9, 3), (torch.ones(2, 2), -torch.ones(2, 3)), 4)
        >>> pairs(torch.Generator().manual_seed(0)).observation.abs().sum().item()
        12.0
    """

    coefficients: Float[Tensor, "n d"]
    context: Float[Tensor, "n k"]
    signs: tuple[Float[Tensor, "2 d"], Float[Tensor, "2 k"]]
    batch: int

    def __call__(self, generator: Generator) -> Task:
        rows = torch.randint(len(self.context), (self.batch,), generator=generator)
        mirrors = torch.randint(2, (self.batch, 2, 1), generator=generator).bool()
        flips = [torch.where(mirrors, signs, 1.0).prod(1) for signs in self.signs]
        return Task(self.coefficients[rows] * flips[0], UNREAD, self.context[rows] * flips[1])

    def every_mirror(self) -> tuple[Float[Tensor, "four_n d"], Float[Tensor, "four_n k"]]:
        """All pairs and their mirror images, for the regression."""
        found = []
        for values, signs in zip((self.coefficients, self.context), self.signs, strict=True):
            flips = [torch.where(torch.tensor(mirror)[:, None] > 0, signs, 1.0).prod(0) for mirror in MIRRORED]
            found.append(torch.cat([values * flip for flip in flips]))
        return found[0], found[1]


def is_flow(path: str | Path) -> bool:
    """Whether a training file is about a flow."""
    with Path(path).open("rb") as stream:
        return "flow" in tomllib.load(stream)


def train_flow(path: str | Path, *, progress: bool = False, resume: bool = True) -> TrainLog:
    """Simulates pairs, fits the flow by maximum likelihood, and writes weights, card and log.

    A run that was interrupted continues: the simulated pairs are kept beside the output, and so is the fit.

    Arguments:
        path: The TOML file.
        progress: Not used: the log beside the output tells how far a fit is.
        resume: Continue from a checkpoint, where there is one.
    """
    with Path(path).open("rb") as stream:
        config = FlowConfig.of(tomllib.load(stream))
    output = Path(config.output)
    checkpoint = output.with_suffix(".checkpoint")
    if not resume:
        checkpoint.unlink(missing_ok=True)
    trained, tasks, held_out = _prepared(config, output.with_suffix(".pairs"))
    linear = _likelihood(trained.flow, held_out)
    fit = dataclasses.replace(
        FitConfig.of(config.fit), checkpoint=str(checkpoint), log=str(output.with_suffix(".jsonl"))
    )
    generator = torch.Generator().manual_seed(config.rng_seed)
    log = fit_map(trained.flow, tasks, fit, loss=_mean, held_out=[held_out], generator=generator)
    about = provenance(dataclasses.asdict(config), command_of(Path(path)), log)
    scores = {"linear_gaussian": linear, "flow": _likelihood(trained.flow, held_out)}
    save_flow(trained, output, about={**about, "held_out_negative_log_likelihood": scores})
    return log


def _prepared(config: FlowConfig, kept: Path) -> tuple[FlowTomography, MirroredPairs, Task]:
    """The untrained flow with its regression done, the pairs, and those held out."""
    data = _pairs(config, kept)
    images, encodings = (Principal.stored(data, prefix) for prefix in ("images.", "encodings."))
    flow = ConditionalFlow(**config.flow, generator=torch.Generator().manual_seed(config.rng_seed))
    trained = FlowTomography(LimitedAngle(), images, encodings, data["spread"], flow)
    signs = images.signs, encodings.signs
    tasks = MirroredPairs(data["coefficients"], data["context"], signs, config.batch)
    flow.regress(*tasks.every_mirror())
    return trained, tasks, Task(data["held_out.coefficients"], UNREAD, data["held_out.context"])


def _pairs(config: FlowConfig, kept: Path) -> dict[str, Tensor]:
    """Coefficients of simulated pairs and the directions they are along, from the disk where they were kept."""
    if kept.exists():
        return load(kept.read_bytes())
    problem = LimitedAngle()
    images, encodings = problem.pairs(config.pairs, generator=torch.Generator().manual_seed(TRAINING_SEED))
    found = Principal.of(images, config.flow["features"]), Principal.of(encodings, config.flow["context"])
    outside = images - found[0].images(found[0].coefficients(images))
    data = found[0].tensors("images.") | found[1].tensors("encodings.") | {"spread": _even_spread(outside)}
    held_out = problem.pairs(config.held_out, generator=torch.Generator().manual_seed(HELD_OUT_SEED))
    for prefix, (x, c) in (("", (images, encodings)), ("held_out.", held_out)):
        data[f"{prefix}coefficients"] = found[0].coefficients(x)
        data[f"{prefix}context"] = found[1].coefficients(c) / found[1].variance.sqrt()
    write_atomically(kept, save({name: value.contiguous() for name, value in data.items()}))
    return data


def _even_spread(outside: Float[Tensor, "n pixels"]) -> Float[Tensor, "pixels"]:
    """The standard deviation of every pixel, the same at its mirror images."""
    side = math.isqrt(outside.shape[-1])
    variance = outside.square().mean(0).unflatten(0, (side, side))
    both = variance + variance.flip(0)
    return (0.25 * (both + both.flip(1))).sqrt().flatten()


def _mean(losses: Tensor, task: Task) -> Tensor:
    return losses.mean()


def _likelihood(flow: ConditionalFlow, pairs: Task) -> float:
    assert pairs.observation is not None
    with torch.no_grad():
        return float(flow(pairs.seeds, pairs.observation).mean())
