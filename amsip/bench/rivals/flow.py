"""Scrambled Sobol points pushed through a normalising flow fitted to the draws."""

import importlib.util
import time
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.bench.rivals.base import Rival, Rules, random_seed
from amsip.kernels import Kernel

if TYPE_CHECKING:
    from zuko.flows import Flow

STEPS = 600
BATCH = 512
LEARNING_RATE = 2e-3
HELD_BACK = 0.1


def sobol_through_flow(
    pool: Float[Tensor, "n d"], kernel: Kernel, m: int, sets: int, generator: torch.Generator | None = None
) -> Rules:
    """A neural spline flow fitted to the pool carries m scrambled Sobol points to the posterior.

    The time of one rule includes the fit: a new posterior needs a new one.
    """
    flow, fitted = fit_flow(pool)
    started = time.process_time()
    engines = [torch.quasirandom.SobolEngine(pool.shape[-1], True, random_seed(generator)) for _ in range(sets)]
    uniform = torch.stack([engine.draw(m, dtype=torch.float64) for engine in engines])
    base = torch.special.ndtri(uniform.clamp(1e-9, 1.0 - 1e-9)).to(torch.float32)
    with torch.no_grad():
        nodes = flow().transform.inv(base.reshape(sets * m, -1)).reshape(sets, m, -1).to(pool)
    return Rules(nodes, ms=fitted + 1e3 * (time.process_time() - started) / sets)


@lru_cache(maxsize=1)
def fit_flow(pool: Float[Tensor, "n d"]) -> tuple["Flow", float]:
    """The flow of best held-back likelihood along training, and the milliseconds it took."""
    import zuko

    started = time.process_time()
    draws = pool.to(torch.float32)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(draws), generator=generator)
    kept = int(HELD_BACK * len(draws))
    validation, training = draws[order[:kept]], draws[order[kept:]]
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(0)
        flow = zuko.flows.NSF(pool.shape[-1], transforms=3, hidden_features=(64, 64))
        optimiser = torch.optim.Adam(flow.parameters(), lr=LEARNING_RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
        best, state = float("inf"), flow.state_dict()
        for step in range(STEPS):
            batch = training[torch.randint(len(training), (BATCH,), generator=generator)]
            loss = -flow().log_prob(batch).mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
            optimiser.step()
            schedule.step()
            if step % 50 == 49:
                with torch.no_grad():
                    score = -flow().log_prob(validation).mean().item()
                if score < best:
                    best, state = score, {name: value.clone() for name, value in flow.state_dict().items()}
        flow.load_state_dict(state)
    return flow, 1e3 * (time.process_time() - started)


def _missing() -> str | None:
    return None if importlib.util.find_spec("zuko") else "zuko is not installed: `pip install zuko`"


SOBOL_FLOW = Rival("Sobol through a flow", sobol_through_flow, takes_kernel=False, missing=_missing)
