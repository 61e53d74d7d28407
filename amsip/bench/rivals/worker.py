"""Runs inside the rivals' own environment: a request in, nodes and times out, as files; imports nothing of amsip."""

import functools
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
Terms = Sequence[Sequence]
Made = tuple[Array, Array | None]
Maker = Callable[[np.random.Generator], Made]
COPIES = 4096
BLOCK = 64
OVERSAMPLING = 4
CANDIDATES = 1500


def gram(terms: Terms, x: Array, y: Array) -> Array:
    """A kernel given as a list of Gaussian and polynomial terms, in blocks of rows that stay in the cache."""
    K = np.empty((len(x), len(y)))
    for start in range(0, len(x), BLOCK):
        rows = slice(start, start + BLOCK)
        product = x[rows] @ y.T
        squared = np.maximum((x[rows] ** 2).sum(1)[:, None] + (y**2).sum(1)[None] - 2.0 * product, 0.0)
        K[rows] = sum(c * term(kind, squared, product, scale, degree) for kind, c, scale, degree in terms)
    return K


def term(kind: str, squared: Array, product: Array, scale: float, degree: int) -> Array:
    """One term at given squared distances and inner products."""
    if kind == "gaussian":
        return np.exp(squared * (-0.5 / scale**2))
    linear = product / scale
    return linear if degree == 1 else linear + linear**2


@dataclass
class Pool:
    """The draws under a kernel: their Gram matrix is made once for all rules, and each is charged what it reads of it.

    Arguments:
        draws: One a row.
        terms: The kernel.
        entries: How many values of the kernel the rule being made has needed, so far.
    """

    draws: Array
    terms: Terms
    entries: int = field(default=0, init=False)

    @functools.cached_property
    def _timed_gram(self) -> tuple[Array, float]:
        started = time.process_time()
        K = gram(self.terms, self.draws, self.draws)
        return K, (time.process_time() - started) / K.size

    @property
    def seconds(self) -> float:
        """What those values would have taken to make."""
        return self.entries * self._timed_gram[1] if self.entries else 0.0

    def block(self, rows: Array) -> Array:
        """The Gram matrix of some rows."""
        self.entries += len(rows) ** 2
        return self._timed_gram[0][np.ix_(rows, rows)]

    def column(self, row: int) -> Array:
        """The kernel between one row and all draws."""
        self.entries += len(self.draws)
        return self._timed_gram[0][row]

    @functools.cached_property
    def _row_means(self) -> Array:
        return self._timed_gram[0].mean(1)

    def means(self, rows: Array | slice) -> Array:
        """The kernel mean of all draws at some rows."""
        found = self._row_means[rows]
        self.entries += len(found) * len(self.draws)
        return found


def power_of_two_rows(n: int, rng: np.random.Generator) -> Array:
    """All rows in random order, some twice, so that halving meets 4,096 of them."""
    if n >= COPIES:
        return rng.permutation(n)[:COPIES]
    return rng.permutation(np.concatenate([np.arange(n), rng.choice(n, COPIES - n, replace=COPIES - n > n)]))


def kernel_thinning(pool: Pool, m: int) -> Maker:
    """Generalised kernel thinning with the target kernel, then its swaps."""
    from goodpoints import kt

    def one(rng: np.random.Generator) -> Made:
        rows = power_of_two_rows(len(pool.draws), rng)
        mine = pool.block(rows)
        halvings = int(np.log2(len(rows) // m))
        kept = kt.thin_K(mine, mine, halvings, seed=int(rng.integers(2**31)), unique=True)[:m]
        return pool.draws[rows[kept]], None

    return one


def compress_plus_plus(pool: Pool, m: int) -> Maker:
    """Compress with symmetrised kernel halving to 1,024 points, then kernel thinning to m."""
    from goodpoints import compress, kt

    def halve(rows: Array, rng: np.random.Generator) -> Array:
        return kt.halve_K(pool.block(rows), delta=0.5, seed=int(rng.integers(2**31)))[int(rng.integers(2))]

    def one(rng: np.random.Generator) -> Made:
        rows = power_of_two_rows(len(pool.draws), rng)
        kept = rows[compress.compress(rows, functools.partial(halve, rng=rng), OVERSAMPLING)]
        mine = pool.block(kept)
        halvings = int(np.log2(len(kept) // m))
        chosen = kt.thin_K(mine, mine, halvings, seed=int(rng.integers(2**31)), unique=True)[:m]
        return pool.draws[kept[chosen]], None

    return one


def recombination(pool: Pool, m: int) -> Maker:
    """Recombination thinning of Li et al. (2024): simplex weights, the kernel centred on the pool.

    Its steps one by one, because the library's own call compiles its first step anew every time.
    """
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    from goodpoints.jax.kt_swap_ls import kernel_swap_ls
    from goodpoints.jax.recomb_thin import compute_bfs_fast
    from goodpoints.jax.reopt import reopt_simplex
    from goodpoints.jax.sliceable_points import SliceablePoints

    n, mean = len(pool.draws), pool.means(slice(None))
    points = SliceablePoints({"p": jnp.asarray(pool.draws), "u": jnp.asarray(mean)})
    centre = float(mean.mean())

    def centred(x: object, y: object) -> Array:
        a, b = _field(x, "p"), _field(y, "p")
        return jax_kernel(pool.terms, a, b) - _field(x, "u") - _field(y, "u") + centre

    def column(i: int) -> Array:
        return pool.column(i) - mean - mean[i] + centre

    diagonal = np.asarray(centred(points, points))

    def one(rng: np.random.Generator) -> Made:
        pool.means(slice(None))
        features = pivoted_cholesky(column, diagonal / n, m - 1, rng)
        root = np.full(n, n**-0.5)
        moved, support = compute_bfs_fast(np.concatenate([features.T, root[None]]), root)
        weights, support = kernel_swap_ls(centred, points, moved * root, support, "simplex")
        own = reopt_simplex(centred, points.subset(support), initval=weights[support])
        # fewer than m nodes may remain: the others repeat the first with no weight
        filled = np.concatenate([support, np.full(m - len(support), support[0])])
        return pool.draws[filled], np.concatenate([own, np.zeros(m - len(support))])

    return one


def pivoted_cholesky(column: Callable, diagonal: Array, rank: int, rng: np.random.Generator) -> Array:
    """Randomly pivoted Cholesky features of the kernel matrix divided by n."""
    n, left = len(diagonal), np.maximum(diagonal, 0.0)
    features = np.zeros((n, rank))
    for step in range(rank):
        pivot = rng.choice(n, p=left / left.sum())
        rest = column(pivot) / n - features @ features[pivot]
        if rest[pivot] > 1e-14:
            features[:, step] = rest / np.sqrt(rest[pivot])
            left = np.maximum(left - features[:, step] ** 2, 0.0)
    return features


def _field(points: Any, key: str) -> Array:
    """goodpoints indexes its points into a plain dictionary, and passes the container itself as well."""
    return points[key] if isinstance(points, dict) else points.get(key)


def jax_kernel(terms: Terms, x: Array, y: Array) -> Array:
    """The same kernel on broadcastable points, for jax."""
    import jax.numpy as jnp

    squared, product = ((x - y) ** 2).sum(-1), (x * y).sum(-1)
    total: Any = 0.0
    for kind, coefficient, parameter, degree in terms:
        if kind == "gaussian":
            total = total + coefficient * jnp.exp(squared * (-0.5 / parameter**2))
        else:
            total = total + coefficient * sum((product / parameter) ** p for p in range(1, degree + 1))
    return total


def herding(pool: Pool, m: int) -> Maker:
    """Kernel herding among 1,500 candidates, with the kernel mean of the whole pool."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import equinox as eqx
    import jax.numpy as jnp
    from coreax import Data
    from coreax.solvers.coresubset import HerdingState, KernelHerding

    kernel, shift = coreax_kernel(pool.terms)
    solver = KernelHerding(coreset_size=m, kernel=kernel, unique=True)
    reduce = eqx.filter_jit(lambda x, u: solver.reduce(Data(x), HerdingState(u))[0].unweighted_indices)

    def one(rng: np.random.Generator) -> Made:
        rows = rng.permutation(len(pool.draws))[:CANDIDATES]
        chosen = reduce(jnp.asarray(pool.draws[rows]), jnp.asarray(pool.means(rows) + shift))
        return pool.draws[rows[np.asarray(chosen)]], None

    return one


def coreax_kernel(terms: Terms) -> tuple[object, float]:
    """The kernel out of coreax's own, and the constant by which it exceeds ours."""
    from coreax.kernels import PolynomialKernel, SquaredExponentialKernel

    parts, shift = [], 0.0
    for kind, coefficient, parameter, degree in terms:
        if kind == "gaussian":
            parts.append(SquaredExponentialKernel(length_scale=parameter, output_scale=coefficient))
        elif degree == 2:
            # u + u^2 = (u + 1/2)^2 - 1/4, and herding does not see a constant
            parts.append(PolynomialKernel(output_scale=coefficient / parameter**2, constant=0.5 * parameter, degree=2))
            shift += 0.25 * coefficient
        else:
            raise ValueError(f"coreax has no polynomial kernel like ours of degree {degree}")
    return functools.reduce(lambda a, b: a + b, parts), shift


def k_means(pool: Pool, m: int) -> Maker:
    """Centroids, each weighted by the share of the draws in its cell."""
    from sklearn.cluster import KMeans

    def one(rng: np.random.Generator) -> Made:
        fitted = KMeans(m, n_init=1, random_state=int(rng.integers(2**31))).fit(pool.draws)
        return fitted.cluster_centers_, np.bincount(fitted.labels_, minlength=m) / len(pool.draws)

    return one


MAKERS = {
    "kernel thinning": kernel_thinning,
    "compress++": compress_plus_plus,
    "recombination": recombination,
    "kernel herding": herding,
    "k-means": k_means,
}


def answer(name: str, pool: Pool, m: int, sets: int, rng_seed: int) -> dict[str, Array]:
    """All repetitions of one rival, timed one by one after a first that pays for compilation."""
    one = MAKERS[name](pool, m)
    one(np.random.default_rng(rng_seed + 1))
    rng = np.random.default_rng(rng_seed)
    made, taken = [], []
    for _ in range(sets):
        pool.entries = 0
        started = time.process_time()
        made.append(one(rng))
        taken.append(time.process_time() - started + pool.seconds)
    nodes, weights = np.stack([z for z, _ in made]), np.array([w for _, w in made if w is not None])
    return {"nodes": nodes, "weights": weights, "ms": np.array(1e3 * np.median(taken))}


def main(request_path: str, result_path: str) -> None:
    """Every rival of one request; what one of them fails with is its answer."""
    with np.load(request_path, allow_pickle=False) as request:
        draws, asked = request["pool"], json.loads(str(request["settings"]))
    pool = Pool(draws, asked["kernel"])
    found: dict[str, Any] = {}
    for name in asked["rivals"]:
        try:
            parts = answer(name, pool, asked["m"], asked["sets"], asked["rng_seed"])
        except Exception as error:
            parts = {"failed": np.array(f"{type(error).__name__}: {error}")}
        found |= {f"{name}/{part}": value for part, value in parts.items()}
    partial = result_path + ".partial.npz"
    np.savez(partial, **found)
    os.replace(partial, result_path)


if __name__ == "__main__":
    if sys.argv[1] == "versions":
        sys.stdout.write(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[2:]}))
    else:
        main(sys.argv[1], sys.argv[2])
