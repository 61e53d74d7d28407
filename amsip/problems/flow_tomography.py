"""Limited-angle tomography with a trained conditional flow as its posterior: one whose shape moves with the data."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from amsip import _checks
from amsip.pretrained import MapCard, load_weights, save_weights
from amsip.problems.conditional_flow import ConditionalFlow
from amsip.problems.limited_angle import LimitedAngle
from amsip.problems.principal import Principal
from amsip.problems.toys import BASE_SEED
from amsip.references.sampler import Sampler

NAME, KIND = "flow_tomography", "conditional flow"
TRAINING_SEED, HELD_OUT_SEED, TEST_SEED = BASE_SEED, BASE_SEED + 1, BASE_SEED + 2
BANK = 1024
LARGEST = 1e4
LINEAR = ("slope", "offset", "root")


@dataclass(frozen=True, eq=False)
class FlowTomography:
    r"""The posterior of a phantom given its filtered back-projection, as a trained flow has it.

    $$x = \bar x + V a + (I - V V^\top)\, s \odot \xi, \qquad a \sim q(a \mid c), \quad \xi \sim \mathcal N(0, I)$$

    The flow q is on the leading principal coefficients a of the phantoms, conditioned on the leading principal
    coefficients c of the filtered back-projection, in units of their standard deviation; what lies outside has a
    Gaussian law that the observation does not move. It is an approximation of the posterior, and what a quadrature
    integrates is the flow.

    Arguments:
        problem: What is observed.
        images: Principal directions V of the phantoms.
        encodings: Principal directions of the filtered back-projections.
        spread: The standard deviation s of every pixel outside V.
        flow: The trained flow.
    """

    problem: LimitedAngle
    images: Principal
    encodings: Principal
    spread: Float[Tensor, "pixels"]
    flow: ConditionalFlow

    def context(self, encodings: Float[Tensor, "*q pixels"]) -> Float[Tensor, "*q k"]:
        """What the flow reads of filtered back-projections."""
        return self.encodings.coefficients(encodings) / self.encodings.variance.sqrt()

    def observation(self, encodings: Float[Tensor, "*q pixels"]) -> Float[Tensor, "*q 1 n n"]:
        """Filtered back-projections as a map reads them: images of mean zero and, over all pixels, unit variance."""
        scale = (self.encodings.variance.sum() / self.encodings.retained / encodings.shape[-1]).sqrt()
        centred = (encodings - self.encodings.mean) / scale
        return centred.unflatten(-1, self.problem.image_shape)

    def posterior(
        self, encodings: Float[Tensor, "*q pixels"], *, bank: int = BANK, generator: Generator | None = None
    ) -> Sampler:
        """The law of the coefficients a for each observation: draws, their moments and embeddings, and its score.

        Draws that are not finite or have an entry above 1e4 are rejected and replaced; `rejected` says how many.
        """
        context = self.context(encodings)
        draw = partial(_draw, self.flow, context)
        score = partial(self.flow.score, context=context)
        dim = len(self.images.variance)
        return Sampler(draw, dim, bank=bank, bound=LARGEST, score=score, generator=generator)

    def complete(
        self, coefficients: Float[Tensor, "*q k"], *, generator: Generator | None = None
    ) -> Float[Tensor, "*q pixels"]:
        """Whole images: the coefficients' own, and a draw of everything outside their directions."""
        noise = torch.randn(*coefficients.shape[:-1], len(self.spread), generator=generator) * self.spread
        basis = self.images.directions
        return self.images.images(coefficients) + noise.to(coefficients) - ((noise @ basis.mT) @ basis).to(coefficients)

    def complement_variance(self) -> Float[Tensor, "pixels"]:
        """The variance that `complete` adds to every pixel: the diagonal of (I - V V') S^2 (I - V V')."""
        basis, variance = self.images.directions, self.spread.square()
        cross = basis.square().mT @ torch.ones(len(basis))
        inner = (basis * variance) @ basis.mT
        return variance * (1.0 - 2.0 * cross) + ((inner @ basis) * basis).sum(0)


def flow_tomography(name: str | Path = NAME) -> FlowTomography:
    """The shipped flow, or one that `amsip train` wrote.

    Arguments:
        name: Shipped weights by name, or the path of a `.safetensors` file with its card beside it.

    Raises:
        ImportError: zuko is not installed.
        FileNotFoundError: There are no such weights.
        ValueError: The weights are not the ones the card describes.
    """
    tensors, card = load_weights(name)
    _checks.one_of("the kind of the weights", card.kind, (KIND,))
    flow = ConditionalFlow(**card.settings["flow"], generator=torch.Generator())
    found = {key.removeprefix("flow."): value for key, value in tensors.items() if key.startswith("flow.")}
    _checks.fitting(Path(name), _own_tensors(flow), list(found))
    flow.load_state_dict({**flow.state_dict(), **found})
    images, encodings = (Principal.stored(tensors, prefix) for prefix in ("images.", "encodings."))
    for parameter in flow.parameters():
        parameter.requires_grad_(False)
    return FlowTomography(LimitedAngle(), images, encodings, tensors["spread"], flow.eval())


def save_flow(trained: FlowTomography, path: str | Path, *, about: Mapping[str, Any] | None = None) -> MapCard:
    """Writes the flow, the directions and the card of `flow_tomography`.

    Arguments:
        trained: The flow with what it needs.
        path: Where the weights go, `.safetensors`.
        about: What the card should say about them.
    """
    state = trained.flow.state_dict()
    tensors = {f"flow.{name}": state[name] for name in _own_tensors(trained.flow)}
    tensors |= trained.images.tensors("images.") | trained.encodings.tensors("encodings.") | {"spread": trained.spread}
    settings = {"flow": trained.flow.settings}
    parameters = sum(p.numel() for p in trained.flow.parameters())
    return save_weights(path, KIND, settings, tensors, parameters=parameters, about=about)


def _draw(flow: ConditionalFlow, context: Tensor, count: int, generator: Generator | None) -> Tensor:
    return flow.sample(count, context, generator=generator)


def _own_tensors(flow: ConditionalFlow) -> list[str]:
    """What was fitted; masks and orders follow from the settings."""
    return [*(name for name, _ in flow.named_parameters()), *LINEAR]
