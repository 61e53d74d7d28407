"""Independent answers: NumPy in float64, plain loops, nothing imported from the package under test."""

import itertools
import math
from collections.abc import Callable

import numpy as np

Array = np.ndarray
PointKernel = Callable[[Array, Array], float]


def squared_exponential(x: Array, z: Array, h: float) -> float:
    """exp(-|x - z|^2 / (2 h^2))."""
    return math.exp(-sum((a - b) ** 2 for a, b in zip(x, z, strict=True)) / (2.0 * h * h))


def octaves(x: Array, z: Array, h: float, count: int, shares: tuple[float, ...] | None = None) -> float:
    """The average of squared exponentials at h, 2h, 4h, ..., one exponential each."""
    shares = shares or (1.0,) * count
    terms = [share * squared_exponential(x, z, h * 2**o) for o, share in enumerate(shares)]
    return sum(terms) / sum(shares)


def matern(x: Array, z: Array, h: float, smoothness: float) -> float:
    """The half-integer Matern kernels, written out."""
    t = math.sqrt(2.0 * smoothness) * float(np.linalg.norm(np.subtract(x, z))) / h
    if smoothness == 0.5:
        return math.exp(-t)
    if smoothness == 1.5:
        return (1.0 + t) * math.exp(-t)
    return (1.0 + t + t * t / 3.0) * math.exp(-t)


def inverse_multiquadric(x: Array, z: Array, h: float) -> float:
    """(1 + |x - z|^2 / h^2)^(-1/2)."""
    return 1.0 / math.sqrt(1.0 + float(np.sum(np.subtract(x, z) ** 2)) / h**2)


def polynomial(x: Array, z: Array, degree: int, scale: float) -> float:
    """The sum of the powers of x'z / s up to the degree, without the constant."""
    product = float(np.dot(x, z)) / scale
    return sum(product**p for p in range(1, degree + 1))


def gram(kernel: PointKernel, x: Array, y: Array) -> Array:
    """k(x_i, y_j), one pair at a time."""
    return np.array([[kernel(a, b) for b in y] for a in x])


def gradient(f: Callable[[Array], float], x: Array, step: float = 1e-5) -> Array:
    """Central differences of fourth order."""
    out = np.zeros(len(x))
    for i in range(len(x)):
        e = np.zeros(len(x))
        e[i] = step
        out[i] = (8.0 * (f(x + e) - f(x - e)) - (f(x + 2 * e) - f(x - 2 * e))) / (12.0 * step)
    return out


def weighted_moments(x: Array, weights: Array) -> tuple[Array, Array]:
    """Mean and covariance of a weighted sample, weights summing to one."""
    mean = np.zeros(x.shape[1])
    for w, row in zip(weights, x, strict=True):
        mean += w * row
    cov = np.zeros((x.shape[1], x.shape[1]))
    for w, row in zip(weights, x, strict=True):
        cov += w * np.outer(row - mean, row - mean)
    return mean, cov


def kernel_mean(kernel: PointKernel, z: Array, atoms: Array, weights: Array) -> Array:
    """mu(z_i) = sum_l w_l k(z_i, x_l)."""
    return np.array([sum(w * kernel(row, x) for w, x in zip(weights, atoms, strict=True)) for row in z])


def mmd2(kernel: PointKernel, z: Array, w: Array, atoms: Array, weights: Array) -> float:
    """The squared distance of two weighted point sets, as one signed measure summed over all pairs."""
    points = np.concatenate([z, atoms])
    mass = np.concatenate([w, -np.asarray(weights)])
    return sum(mass[i] * mass[j] * kernel(points[i], points[j]) for i in range(len(points)) for j in range(len(points)))


def gauss_hermite(f: Callable[[Array], float], mean: Array, cov: Array, count: int = 40) -> float:
    """E f(X) for X normal, by a tensor product of Gauss-Hermite rules; for two or three dimensions."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    weights = weights / weights.sum()
    factor = np.linalg.cholesky(np.asarray(cov, dtype=float))
    total = 0.0
    for index in itertools.product(range(count), repeat=len(mean)):
        u = np.array([nodes[i] for i in index])
        total += math.prod(weights[i] for i in index) * f(np.asarray(mean) + factor @ u)
    return total


def mixture_expectation(
    f: Callable[[Array], float], shares: Array, means: Array, covs: Array, count: int = 40
) -> float:
    """E f(X) for a mixture of normals."""
    return sum(share * gauss_hermite(f, mean, cov, count) for share, mean, cov in zip(shares, means, covs, strict=True))


def mixture_energy(
    radial: Callable[[Array], float], shares: Array, means: Array, covs: Array, count: int = 40
) -> float:
    """E k(X, X') for k(x, x') = radial(x - x'): differences of mixtures of normals are mixtures of normals."""
    total = 0.0
    for share_a, mean_a, cov_a in zip(shares, means, covs, strict=True):
        for share_b, mean_b, cov_b in zip(shares, means, covs, strict=True):
            total += share_a * share_b * gauss_hermite(radial, mean_a - mean_b, cov_a + cov_b, count)
    return total


def normal_log_density(x: Array, mean: Array, cov: Array) -> float:
    """log N(x; mean, cov)."""
    gap = np.asarray(x) - mean
    _, log_det = np.linalg.slogdet(cov)
    return -0.5 * (gap @ np.linalg.solve(cov, gap) + log_det + len(gap) * math.log(2.0 * math.pi))


def mixture_log_density(x: Array, shares: Array, means: Array, covs: Array) -> float:
    """The log density of a mixture of normals."""
    terms = [
        math.log(share) + normal_log_density(x, mean, cov) for share, mean, cov in zip(shares, means, covs, strict=True)
    ]
    top = max(terms)
    return top + math.log(sum(math.exp(t - top) for t in terms))


def kkt_weights(
    gram_matrix: Array, mean: Array, constraints: Array | None = None, values: Array | None = None
) -> Array:
    """argmin w'Kw - 2 w'mu subject to C'w = v, from the bordered system of the Lagrangian."""
    if constraints is None:
        return np.linalg.solve(gram_matrix, mean)
    count = constraints.shape[1]
    bordered = np.block([[2.0 * gram_matrix, constraints], [constraints.T, np.zeros((count, count))]])
    return np.linalg.solve(bordered, np.concatenate([2.0 * mean, values]))[: len(mean)]


def simplex_weights(gram_matrix: Array, mean: Array, total: float = 1.0) -> Array:
    """The best non-negative weights of a given sum, by trying every set of nodes allowed to carry weight."""
    best, best_value = None, np.inf
    for size in range(1, len(mean) + 1):
        for subset in itertools.combinations(range(len(mean)), size):
            rows = list(subset)
            part = kkt_weights(gram_matrix[np.ix_(rows, rows)], mean[rows], np.ones((size, 1)), np.array([total]))
            if part.min() < 0.0:
                continue
            w = np.zeros(len(mean))
            w[rows] = part
            value = w @ gram_matrix @ w - 2.0 * w @ mean
            if value < best_value:
                best, best_value = w, value
    return best


def mean_shift_step(z: Array, atoms: Array, weights: Array, h: float) -> Array:
    """One classical mean-shift step of one point: the kernel-weighted average of the atoms."""
    masses = [w * squared_exponential(x, z, h) for w, x in zip(weights, atoms, strict=True)]
    return sum(mass * x for mass, x in zip(masses, atoms, strict=True)) / sum(masses)


def interacting_map(z: Array, atoms: Array, weights: Array, h: float) -> Array:
    """(K^-1 V_1)_i / (K^-1 v_0)_i for the squared exponential, by explicit sums and a dense solve."""

    def kernel(a: Array, b: Array) -> float:
        return squared_exponential(a, b, h)

    inverse = np.linalg.inv(gram(kernel, z, z))
    count = kernel_mean(kernel, z, atoms, weights)
    first = np.array([sum(w * kernel(row, x) * x for w, x in zip(weights, atoms, strict=True)) for row in z])
    return (inverse @ first) / (inverse @ count)[:, None]


def median_squared_distance(x: Array) -> float:
    """The median over pairs i < j of |x_i - x_j|^2."""
    pairs = [float(((x[i] - x[j]) ** 2).sum()) for i in range(len(x)) for j in range(i)]
    return float(np.median(pairs))


def gaussian_posterior_cov(prior: Array, forward: Array, noise: Array) -> Array:
    """The posterior covariance of a linear-Gaussian model, by the gain form."""
    gain = prior @ forward.T @ np.linalg.inv(forward @ prior @ forward.T + noise)
    return prior - gain @ forward @ prior


def responsibilities(observations: Array, queries: Array, bandwidth: float) -> Array:
    """Kernel regression weights, one row per query."""
    rows = []
    for query in queries:
        masses = [math.exp(-float(((y - query) ** 2).sum()) / (2 * bandwidth**2)) for y in observations]
        rows.append([mass / sum(masses) for mass in masses])
    return np.array(rows)


def set_network(z: Array, state: dict[str, Array], heads: int, reach: float) -> Array:
    """The paper's set network written out node by node, from the tensors of a trained one by name."""

    def linear(x: Array, name: str) -> Array:
        return np.array([state[f"{name}.weight"] @ row + state[f"{name}.bias"] for row in x])

    def normal(x: Array, name: str) -> Array:
        rows = [(row - row.mean()) / math.sqrt(((row - row.mean()) ** 2).mean() + 1e-5) for row in x]
        return np.array(rows) * state[f"{name}.weight"] + state[f"{name}.bias"]

    def gelu(x: Array) -> Array:
        return np.array([[v * 0.5 * (1.0 + math.erf(v / math.sqrt(2.0))) for v in row] for row in x])

    def attend(x: Array, name: str) -> Array:
        width = x.shape[1]
        size, parts = width // heads, linear(x, f"{name}.project")
        mixed = np.zeros_like(x)
        for head in range(heads):
            at = [slice(part * width + head * size, part * width + (head + 1) * size) for part in range(3)]
            q, k, v = (parts[:, a] for a in at)
            for i in range(len(x)):
                mass = np.array([math.exp(q[i] @ k[j] / math.sqrt(size)) for j in range(len(x))])
                mixed[i, head * size : (head + 1) * size] = (mass / mass.sum()) @ v
        return linear(mixed, f"{name}.out")

    spread = np.mean([math.sqrt(np.mean((z[:, i] - z[:, i].mean()) ** 2)) for i in range(z.shape[1])])
    features = np.array([[math.log(len(z)), math.log(max(spread, 1e-6))]])
    context = linear(gelu(linear(features, "context.embed.0")), "context.embed.2")
    h, block = linear(z, "embed"), 0
    while f"blocks.{block}.attention_norm.weight" in state:
        at = f"blocks.{block}"
        h = h + attend(normal(h, f"{at}.attention_norm"), f"{at}.attention")
        inner = linear(gelu(linear(normal(h, f"{at}.perceptron_norm"), f"{at}.perceptron.0")), f"{at}.perceptron.2")
        scale, shift = np.split(linear(context, f"{at}.modulation.affine")[0], 2)
        h, block = h + (1.0 + scale) * inner + shift, block + 1
    return z + reach * linear(normal(h, "norm"), "head")


def integrand_families(pool: Array, x: Array, directions: Array) -> dict[str, list[float]]:
    """The yardstick's integrands at one point, in coordinates scaled and whitened by the pool."""
    centre = pool.mean(0)
    cov = sum(np.outer(row - centre, row - centre) for row in pool) / len(pool)
    scale = np.diag(1.0 / np.sqrt(np.diag(cov)))
    values, vectors = np.linalg.eigh(scale @ cov @ scale)
    root = vectors @ np.diag(values**-0.5) @ vectors.T @ scale
    z = root @ (x - centre)
    along = [float(u @ z) for u in directions.T]
    spread = [sorted(float(u @ root @ (row - centre)) for row in pool) for u in directions.T]
    q90, q95 = ([float(np.quantile(values, level)) for values in spread] for level in (0.90, 0.95))
    return {
        "linear": list(z),
        "square": [float(v * v) for v in z],
        "cross": [a * a for a in along],
        "exponential": [math.exp(0.7 * a) for a in along],
        "oscillating": [math.cos(1.5 * a + 0.3) for a in along],
        "smooth tail": [1.0 / (1.0 + math.exp(-4.0 * (a - q))) for a, q in zip(along, q95, strict=True)],
        "indicator": [1.0 if a > q else 0.0 for a, q in zip(along, q90, strict=True)],
        "non-smooth": [max(abs(float(v)) for v in z)],
        "shortfall": [max(a - q, 0.0) for a, q in zip(along, q90, strict=True)],
    }


def family_multiplier(estimates: Array, truth: Array, variance: Array, m: int) -> float:
    """1 / (M mean over members of MSE / Var), by loops over rules and members."""
    total = 0.0
    for h in range(len(truth)):
        mse = sum((row[h] - truth[h]) ** 2 for row in estimates) / len(estimates)
        total += mse / variance[h]
    return 1.0 / (m * total / len(truth))


def greedy_indices(points: Array, kernel: PointKernel, mean: Array, m: int) -> list[int]:
    """Greedy nodes by trying every candidate with its optimal unit-sum weights."""
    chosen: list[int] = []
    for _ in range(m):
        scores = {}
        for i in set(range(len(points))) - set(chosen):
            rows = [*chosen, i]
            K = np.array([[kernel(points[a], points[b]) for b in rows] for a in rows])
            system = np.block([[K, np.ones((len(rows), 1))], [np.ones((1, len(rows))), np.zeros((1, 1))]])
            w = np.linalg.solve(system, np.append(mean[rows], 1.0))[:-1]
            scores[i] = w @ K @ w - 2.0 * w @ mean[rows]
        chosen.append(min(scores, key=lambda i: scores[i]))
    return chosen
