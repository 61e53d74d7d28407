"""The arms on the toys: from seeds and an embedding to nodes. The weights are optimal for every arm but the floor."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.bench.rivals import KERNEL_THINNING, RECOMBINATION
from amsip.bench.rivals.base import Rival
from amsip.bench.rivals.greedy import CANDIDATES, greedy_nodes
from amsip.bench.toys import fitted
from amsip.defaults import STEPS, universal_descent, universal_map, universal_network
from amsip.discrepancy import loss
from amsip.maps.base import NodeMap
from amsip.maps.chain import Chain
from amsip.maps.descent import Descent
from amsip.maps.meanshift import MeanShift
from amsip.maps.optimum import AdamDescent
from amsip.pretrained import available_maps, load_card, load_map
from amsip.problems.toys import EVALUATION_SEED, Toy
from amsip.references.base import Embedding
from amsip.references.samples import Samples
from amsip.weights import optimal_weights

FLOOR, REWEIGHT, PAPER, FITTED = "floor", "reweight", "paper's map", "fitted map"
FITTED_DESCENT = f"{FITTED} + {STEPS} steps"
UNIVERSAL, UNIVERSAL_DESCENT, DEFAULT = "universal", "universal + 3 steps", "default map"
OPTIMUM, GREEDY = "optimum", "greedy BQ"
THINNING, RECOMBINED, MSIP = "kernel thinning", "recombination", "MSIP"
RIVALS = (GREEDY, THINNING, RECOMBINED, MSIP)
UNIVERSAL_NAME = "universal"
CHUNK = 64
# the dear arms are scored on the first of the seed sets
ALL_SETS, FEW_SETS, RIVAL_SETS = 10**6, 32, 16
POLISHING_STEPS = 20
POOL = 4096
OTHER_SEEDS = 7_000_000
MSIP_STEPS, MSIP_DAMPING = 200, 0.5


@dataclass(frozen=True, eq=False)
class Work:
    """One cell to be filled: a toy, its embedding, a budget, and the seeds every arm starts from."""

    toy: Toy
    embedding: Embedding
    m: int
    seeds: Float[Tensor, "r m d"]

    def pool(self) -> Float[Tensor, "n d"]:
        """Draws for those who choose among draws: the bank itself where the toy is one."""
        return _pool(self.toy)

    def other_seeds(self, stream: int) -> Float[Tensor, "r m d"]:
        """Independent starts, as many as there are seed sets."""
        rows = self.toy.draws(self.seeds[..., 0].numel(), EVALUATION_SEED + OTHER_SEEDS * stream + self.m)
        return rows.reshape(self.seeds.shape)


@lru_cache(maxsize=1)
def _pool(toy: Toy) -> Tensor:
    """One tensor for all arms of a toy: rivals that read the same pool answer together."""
    reference = toy.reference()
    return reference.atoms if isinstance(reference, Samples) else toy.draws(POOL, EVALUATION_SEED - 1)


@dataclass(frozen=True, eq=False)
class Arm:
    """A way to nodes.

    Arguments:
        name: As the tables print it.
        make: From the work to the nodes.
        sets: On how many seed sets at most.
        missing: Why it cannot run on a toy, or None.
        stamp: What its cells depend on beside the code, such as the digest of weights.
    """

    name: str
    make: Callable[[Work], Float[Tensor, "r m d"]] = field(repr=False)
    sets: int = ALL_SETS
    missing: Callable[[Toy], str | None] = field(default=lambda toy: None, repr=False)
    stamp: Callable[[Toy], str] = field(default=lambda toy: "", repr=False)

    @property
    def dear(self) -> bool:
        """Whether it is scored on fewer sets than there are, and not at the budgets that were held out of training."""
        return self.sets < ALL_SETS

    @property
    def slug(self) -> str:
        """A file name."""
        return "-".join(self.name.replace("'", "").replace("+", "").split())


def every_arm(folder: Path) -> Iterator[Arm]:
    """Every arm, the cheap ones first; fitted maps are looked for in the folder."""
    yield Arm(FLOOR, lambda work: work.seeds)
    yield Arm(REWEIGHT, lambda work: work.seeds)
    for name, slug, make in (
        (PAPER, fitted.PAPER, _fitted),
        (FITTED, fitted.UNROLLED, _fitted),
        (FITTED_DESCENT, fitted.UNROLLED, _fitted_descended),
    ):
        yield Arm(
            name,
            partial(make, folder, slug),
            missing=partial(fitted.missing, folder, slug),
            stamp=partial(fitted.digest, folder, slug),
        )
    yield Arm(UNIVERSAL, _universal, missing=_no_universal, stamp=_universal_digest)
    yield Arm(UNIVERSAL_DESCENT, _universal_descended, missing=_no_universal, stamp=_universal_digest)
    yield Arm(DEFAULT, _default, missing=_no_universal, stamp=_universal_digest)
    yield Arm(GREEDY, _greedy, FEW_SETS)
    yield Arm(MSIP, _msip, FEW_SETS)
    yield Arm(OPTIMUM, _optimum, FEW_SETS, stamp=_optimum_starts)
    yield Arm(THINNING, partial(_rival, KERNEL_THINNING), RIVAL_SETS, lambda toy: KERNEL_THINNING.missing())
    yield Arm(RECOMBINED, partial(_rival, RECOMBINATION), RIVAL_SETS, lambda toy: RECOMBINATION.missing())


def moved(node_map: NodeMap, seeds: Float[Tensor, "r m d"], embedding: Embedding) -> Float[Tensor, "r m d"]:
    """A map applied some sets at a time, in bounded memory."""
    with torch.no_grad():
        return torch.cat([node_map(part, embedding) for part in seeds.split(CHUNK)])


def _fitted(folder: Path, slug: str, work: Work) -> Tensor:
    return moved(load_map(fitted.weights_file(folder, slug, work.toy)), work.seeds, work.embedding)


def _fitted_descended(folder: Path, slug: str, work: Work) -> Tensor:
    chain = Chain((load_map(fitted.weights_file(folder, slug, work.toy)), universal_descent))
    return moved(chain, work.seeds, work.embedding)


def _universal(work: Work) -> Tensor:
    return moved(universal_network, work.seeds, work.embedding)


def _universal_descended(work: Work) -> Tensor:
    return moved(Descent(steps=3), _universal(work), work.embedding)


def _default(work: Work) -> Tensor:
    return moved(universal_map, work.seeds, work.embedding)


def _no_universal(toy: Toy) -> str | None:
    return None if UNIVERSAL_NAME in available_maps() else "no universal weights are shipped yet"


def _universal_digest(toy: Toy) -> str:
    return load_card(UNIVERSAL_NAME).sha256


def _optimum(work: Work) -> Tensor:
    """Of four starts the best, set by set, polished: the seeds, two other draws, and nodes already well chosen."""
    chosen = _greedy(work) if _no_universal(work.toy) else _universal(work)
    starts = (work.seeds, work.other_seeds(1), work.other_seeds(2), chosen)
    ends = [moved(_long_descent, start, work.embedding) for start in starts]
    scores = torch.stack([losses(z, work.embedding) for z in ends])
    best = scores.argmin(0)[None, :, None, None].expand(1, *work.seeds.shape)
    return moved(Descent(steps=POLISHING_STEPS), torch.stack(ends).gather(0, best)[0], work.embedding)


def _optimum_starts(toy: Toy) -> str:
    return "greedy" if _no_universal(toy) else _universal_digest(toy)


def _long_descent(nodes: Tensor, embedding: Embedding) -> Tensor:
    return AdamDescent(steps=100, rate=0.01)(AdamDescent(steps=150, rate=0.05)(nodes, embedding), embedding)


def losses(nodes: Float[Tensor, "r m d"], embedding: Embedding) -> Float[Tensor, "r"]:
    """The discrepancy under optimal weights, up to the reference's constant."""
    return loss(embedding.kernel.gram(nodes), embedding.mean(nodes), optimal_weights(nodes, embedding))


def _greedy(work: Work) -> Tensor:
    """The same candidates' kernel means as everybody's: exact, not those of a pool."""
    r = len(work.seeds)
    rows = work.toy.draws(r * CANDIDATES, EVALUATION_SEED + OTHER_SEEDS * 3 + work.m)
    parts = rows.reshape(r, CANDIDATES, -1).split(RIVAL_SETS)
    with torch.no_grad():
        return torch.cat([greedy_nodes(part, work.embedding, work.m) for part in parts])


def _rival(rival: Rival, work: Work) -> Tensor:
    generator = torch.Generator().manual_seed(EVALUATION_SEED + work.m)
    return rival.repeat(work.pool(), work.toy.kernel, work.m, len(work.seeds), generator).nodes


def _msip(work: Work) -> Tensor:
    return moved(MeanShift(steps=MSIP_STEPS, damping=MSIP_DAMPING), work.seeds, work.embedding)
