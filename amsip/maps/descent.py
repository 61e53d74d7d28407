"""Per-query refinement that is monotone by construction: Levenberg-Marquardt on the weight-projected discrepancy."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from amsip import _checks
from amsip.maps.levenberg import NormalEquations, State, read, read_all
from amsip.references.base import Embedding
from amsip.weights import JITTER

LEAST_DAMPING, MOST_DAMPING = 1e-10, 1e10
NEWTON_DIM = 32
APART = (0.1, 0.5)


@dataclass(frozen=True, eq=False)
class DescentStep:
    """What a step of the descent reports to its callback, one entry a query.

    Arguments:
        step: Which step, the start being 0.
        loss: w'Kw - 2 w'mu, the squared discrepancy without the constant of the reference.
        accepted: Whether the proposal of this step was taken.
        damping: The damping that the next step will use.
        ess: The effective sample size of the weights.
        gram_rank: How many eigenvalues of the Gram exceed 1e-8 of its mean diagonal.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> atoms = torch.tensor([[0.0], [1.0], [2.0]])
        >>> trace: list[DescentStep] = []
        >>> _ = Descent(steps=3, callback=trace.append)(atoms[:1], Samples(atoms).embed(SquaredExponential(1.0)))
        >>> trace[-1].loss.item() < trace[0].loss.item()
        True
    """

    step: int
    loss: Float[Tensor, "*q"]
    accepted: Bool[Tensor, "*q"]
    damping: Float[Tensor, "*q"]
    ess: Float[Tensor, "*q"]
    gram_rank: Float[Tensor, "*q"]


@dataclass(frozen=True, eq=False)
class Descent:
    r"""Moves the nodes of each query downhill, and never ends above its start.

    $$J(z) = \min_{1^\top w = 1} \Big\| \mu_\rho - \sum_j w_j k(\cdot, z_j) \Big\|^2_{\mathcal H}$$

    The objective is Equation (4) of the paper with the weights of Proposition 2 put in: a separable least-squares
    problem whose residual lives in the kernel's space, where every inner product it needs is known in closed form.
    Every step races two proposals, one of Gauss-Newton and one of Newton's model, each with a damping of its own; the
    better one is taken, query by query, only where J as everybody else measures it has fallen, and a query in which
    nothing was accepted gets its own nodes back. A step reads the reference by one `mean_and_grad` at 2 m points, and
    once its Hessian at the nodes. Nodes that coincide are first set apart, for no gradient would ever part them.

    Arguments:
        steps: The largest number of proposals.
        tolerance: A query rests once a step promises less than this share of what it has gained so far.
        damping: The damping of the first step, relative to the squared length of a node's move.
        largest_move: No node moves further than this in one step, in standard deviations of the reference.
        jitter: The ridge of the weight solve, as in `optimal_weights`.
        newton: Race Newton's model too, in at most 32 dimensions; without it a step reads no Hessian.
        callback: Receives a `DescentStep` for the start and after every step.

    Example:
        >>> from amsip import Samples, SquaredExponential, mmd2, optimal_weights
        >>> draws = torch.randn(500, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> embedding = Samples(draws).embed(SquaredExponential(1.0))
        >>> nodes = Descent(steps=20)(draws[:8], embedding)
        >>> scores = [mmd2(z, optimal_weights(z, embedding), embedding).item() for z in (draws[:8], nodes)]
        >>> scores[1] < 0.2 * scores[0]
        True
    """

    steps: int = 30
    tolerance: float = 1e-6
    damping: float = 1e-2
    largest_move: float | None = None
    jitter: float = JITTER
    newton: bool = True
    callback: Callable[[DescentStep], None] | None = None

    def __post_init__(self) -> None:
        _checks.at_least("steps", self.steps, 0)
        _checks.at_least("tolerance", self.tolerance, 0.0)
        _checks.positive("damping", self.damping)
        if self.largest_move is not None:
            _checks.positive("largest_move", self.largest_move)

    def __call__(self, nodes: Float[Tensor, "*q m d"], embedding: Embedding) -> Float[Tensor, "*q m d"]:
        """The refined nodes."""
        with torch.no_grad():
            state = read(nodes, embedding, self.jitter)
            state = _parted(state, embedding, self.jitter)
            start, resting = state.loss, torch.zeros_like(state.loss, dtype=torch.bool)
            dampings = [_Damping.fresh(start, self.damping) for _ in self._models(nodes)]
            self._report(0, state, resting, dampings[0].value)
            for step in range(1, self.steps + 1):
                before = state
                state, dampings, promised = self._race(state, dampings, resting, embedding)
                floor = 1e-15 * before.loss.abs() + self.tolerance * (start - before.loss)
                resting = resting | (promised <= floor.nan_to_num(nan=torch.inf))
                self._report(step, state, state.loss < before.loss, dampings[0].value)
                if bool(resting.all()):
                    break
            return state.nodes

    def _race(
        self, state: State, dampings: list["_Damping"], resting: Tensor, embedding: Embedding
    ) -> tuple[State, list["_Damping"], Tensor]:
        """One step: the better proposal where it is better than the state, and the larger of the promises."""
        model = NormalEquations.at(state, embedding)
        moves = [model.direction(d.value, newton=n) for d, n in zip(dampings, self._models(state.nodes), strict=True)]
        candidates = [state.nodes + self._limited(move, embedding).to(state.nodes) for move, _, _ in moves]
        best, adapted = state, []
        for proposal, damping, (_, promised, used) in zip(
            read_all(candidates, embedding, self.jitter), dampings, moves, strict=True
        ):
            adapted.append(damping.after(used, (state.loss - proposal.loss) / promised))
            best = proposal.where((proposal.loss < best.loss) & ~resting, best)
        return best, adapted, torch.stack([promised for _, promised, _ in moves]).amax(0)

    def _models(self, nodes: Tensor) -> list[bool]:
        return [False, True] if self.newton and nodes.shape[-1] <= NEWTON_DIM else [False]

    def _limited(self, move: Tensor, embedding: Embedding) -> Tensor:
        move = torch.where(torch.isfinite(move), move, 0.0)
        if self.largest_move is None:
            return move
        spread = embedding.moments[1].diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(0.0).sqrt()
        limit = (self.largest_move * spread)[..., None, None].to(move)
        longest = move.norm(dim=-1).amax(-1)[..., None, None]
        return move * (limit / torch.maximum(longest, limit)).nan_to_num(nan=0.0)

    def _report(self, step: int, state: State, accepted: Tensor, damping: Tensor) -> None:
        if self.callback is None:
            return
        spectrum = torch.linalg.eigvalsh(state.gram)
        floor = 1e-8 * spectrum.mean(-1, keepdim=True)
        ess = state.weights.sum(-1).square() / state.weights.square().sum(-1)
        self.callback(DescentStep(step, state.loss, accepted, damping, ess, (spectrum > floor).to(ess).sum(-1)))


def descent_direction(
    nodes: Float[Tensor, "*q m d"],
    embedding: Embedding,
    damping: float | Float[Tensor, "*q"] = 1e-2,
    *,
    jitter: float = JITTER,
) -> Float[Tensor, "*q m d"]:
    r"""One damped Gauss-Newton direction, differentiable in the nodes and in the damping.

    $$\delta = \big(G - B^\top P B + \lambda D\big)^{-1} g$$

    For use inside a trained map: no step is tested, so nothing promises descent.

    Arguments:
        nodes: The nodes z.
        embedding: The reference, as seen by the kernel.
        damping: lambda, one number or one per query; large means a short step along the scaled gradient.
        jitter: The ridge of the weight solve.

    Returns:
        The displacement, in the nodes' dtype.

    Example:
        >>> from amsip import Samples, SquaredExponential
        >>> atoms = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> embedding = Samples(atoms).embed(SquaredExponential(1.0))
        >>> descent_direction(torch.full((1, 1), 0.4, dtype=torch.float64), embedding).item() > 0
        True
    """
    state = read(nodes, embedding, jitter)
    per_query = torch.as_tensor(damping, dtype=torch.float64, device=nodes.device).expand(state.loss.shape)
    return NormalEquations.at(state, embedding).direction(per_query)[0].to(nodes)


def _parted(state: State, embedding: Embedding, jitter: float) -> State:
    """Coinciding nodes set apart where that helps: by symmetry no gradient ever would."""
    nodes = state.nodes
    same = (nodes[..., :, None, :] == nodes[..., None, :, :]).all(-1).tril(-1)
    rank = same.sum(-1)
    if not bool((rank > 0).any()):
        return state
    turn = (rank - 1).clamp_min(0)
    d = nodes.shape[-1]
    axis = torch.nn.functional.one_hot(turn % d, d).to(nodes)
    sign = 1.0 - 2.0 * ((turn // d) % 2).to(nodes)
    reach = (rank > 0).to(nodes) * sign * (1 + turn // (2 * d)).to(nodes)
    spread = embedding.moments[1].diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt()[..., None, :].to(nodes)
    for candidate in read_all([nodes + t * reach[..., None] * axis * spread for t in APART], embedding, jitter):
        state = candidate.where(candidate.loss < state.loss, state)
    return state


@dataclass(frozen=True, eq=False)
class _Damping:
    """Nielsen's rule: relax by how well the model kept its promise, stiffen ever faster while it fails."""

    value: Float[Tensor, "*q"]
    growth: Float[Tensor, "*q"]

    @classmethod
    def fresh(cls, like: Tensor, value: float) -> "_Damping":
        return cls(torch.full_like(like, value), torch.full_like(like, 2.0))

    def after(self, used: Tensor, ratio: Tensor) -> "_Damping":
        kept = ratio > 0
        relaxed = used * (1.0 - (2.0 * ratio.nan_to_num(nan=0.0) - 1.0) ** 3).clamp(1.0 / 4.0, 2.0)
        value = torch.where(kept, relaxed, used * self.growth).clamp(LEAST_DAMPING, MOST_DAMPING)
        return _Damping(value, torch.where(kept, 2.0, self.growth * 2.0))
