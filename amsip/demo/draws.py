"""Makes the draws that the demo ships: four random-walk Metropolis chains on the pumping test.

    python -m amsip.demo.draws

writes `amsip/data/pumping.npz` again, to the last bit on the same versions of NumPy and SciPy. Needs SciPy.
"""

import sys
from pathlib import Path

import numpy as np

from amsip.demo.aquifer import NAMES, PRIOR_MEAN, PRIOR_SD, TRUTH, Array, PumpingTest, log_posterior, simulate_test

RNG_SEED = 20_260_411
CHAINS, KEPT, THINNING = 4, 1000, 30
PILOT_STEPS, STEP = 6000, 0.9


def metropolis(
    start: Array, factor: Array, steps: int, test: PumpingTest, rng: np.random.Generator
) -> tuple[Array, float]:
    """Random-walk Metropolis, all chains at once: the path `(steps, chains, 4)` and the share of accepted moves."""
    state, value = start, log_posterior(start, test)
    path, accepted = np.empty((steps, *start.shape)), 0
    for step in range(steps):
        proposal = state + rng.standard_normal(start.shape) @ factor.T
        proposed = log_posterior(proposal, test)
        taken = np.log(rng.random(len(start))) < proposed - value
        state, value = np.where(taken[:, None], proposal, state), np.where(taken, proposed, value)
        path[step] = state
        accepted += int(taken.sum())
    return path, accepted / (steps * len(start))


def split_rhat(chains: Array) -> Array:
    """The split potential scale reduction of `(chains, draws, 4)`, one value a parameter; near one when mixed."""
    half = chains.shape[1] // 2
    parts = np.concatenate([chains[:, :half], chains[:, half : 2 * half]])
    within = parts.var(1, ddof=1).mean(0)
    between = parts.mean(1).var(0, ddof=1)
    return np.sqrt((half - 1) / half + between / within)


def make_draws(kept: int = KEPT, thinning: int = THINNING, pilot: int = PILOT_STEPS) -> dict[str, Array]:
    """Readings, chains and their diagnostics, as arrays to store."""
    rng = np.random.default_rng(RNG_SEED)
    test = simulate_test(rng)
    start = PRIOR_MEAN + 0.5 * PRIOR_SD * rng.standard_normal((CHAINS, 4))
    path, _ = metropolis(start, np.diag(0.1 * PRIOR_SD), pilot, test, rng)
    shape = np.cov(path[pilot // 2 :].reshape(-1, 4).T)
    path, _ = metropolis(path[-1], STEP * np.linalg.cholesky(shape), pilot, test, rng)
    shape = np.cov(path[pilot // 2 :].reshape(-1, 4).T)
    path, accepted = metropolis(path[-1], STEP * np.linalg.cholesky(shape), kept * thinning, test, rng)
    chains = path[thinning - 1 :: thinning].swapaxes(0, 1)
    return {
        "samples": chains.reshape(-1, 4),
        "names": np.array(NAMES),
        "truth": TRUTH,
        "times": test.times,
        "drawdown": test.drawdown,
        "split_rhat": split_rhat(chains),
        "accepted": np.array(accepted),
    }


if __name__ == "__main__":
    made = make_draws()
    target = Path(__file__).parents[1] / "data" / "pumping.npz"
    np.savez_compressed(target, allow_pickle=False, **made)
    sys.stdout.write(f"{target}: {made['samples'].shape}, split R-hat {made['split_rhat']}, {made['accepted']:.2f}\n")
