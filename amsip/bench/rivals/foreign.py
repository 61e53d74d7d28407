"""Rivals from other libraries, each in an environment of its own, reached through files."""

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks
from amsip.bench.cache import cache_directory
from amsip.bench.rivals.base import Rival, Rules, random_seed
from amsip.kernels import Kernel, Octaves, Polynomial, SquaredExponential, Sum

REQUIREMENTS = {
    "goodpoints": ("goodpoints==0.6.3", "jax==0.10.2", "tqdm", "qpsolvers[proxqp]"),
    "coreax": ("coreax==1.0.0", "jax==0.10.2"),
    "scikit-learn": ("scikit-learn==1.9.1",),
}
WORKER = Path(__file__).with_name("worker.py")
TIME_LIMIT = 1800


def install_rivals(report: Callable[[str], None]) -> dict[str, str]:
    """Make the environment and install each library into it; one that fails does not stop the others.

    Arguments:
        report: Told what happens, a line at a time.

    Returns:
        The versions that are there afterwards.
    """
    directory = cache_directory("rivals") / "env"
    if not _python().exists():
        report(f"making {directory}")
        venv.create(directory, with_pip=True)
    for name, requirements in REQUIREMENTS.items():
        done = subprocess.run(
            [str(_python()), "-m", "pip", "install", "--quiet", *requirements],
            capture_output=True,
            text=True,
            check=False,
        )
        report(f"{name}: {'installed' if done.returncode == 0 else done.stderr.strip().splitlines()[-1:]}")
    installed_versions.cache_clear()
    return installed_versions()


@lru_cache(maxsize=1)
def installed_versions() -> dict[str, str]:
    """What the rivals' environment holds; nothing where there is none."""
    found: dict[str, str] = {}
    for name in (*REQUIREMENTS, "jax"):
        if not _python().exists():
            break
        done = subprocess.run(
            [str(_python()), str(WORKER), "versions", name], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            found |= json.loads(done.stdout)
    return found


def describe(kernel: Kernel) -> list[tuple[str, float, float, int]]:
    """The kernel as Gaussian terms (coefficient, bandwidth) and polynomial ones (coefficient, scale, degree).

    Example:
        >>> describe(2.0 * SquaredExponential(0.5))
        [('gaussian', 2.0, 0.5, 0)]
    """
    match kernel:
        case SquaredExponential():
            return [("gaussian", 1.0, float(kernel.bandwidth), 0)]
        case Octaves():
            return [("gaussian", a, float(k.bandwidth), 0) for a, k in kernel.components()]
        case Polynomial():
            return [("polynomial", 1.0, kernel.scale, kernel.degree)]
        case Sum():
            return [(kind, c * a, scale, degree) for c, k in kernel.terms for kind, a, scale, degree in describe(k)]
        case _:
            raise TypeError(f"`kernel` must be made of Gaussians and polynomials: got {type(kernel).__name__}.")


def foreign(
    rival: str,
    pool: Float[Tensor, "n d"],
    kernel: Kernel,
    m: int,
    sets: int,
    generator: torch.Generator | None = None,
) -> Rules:
    """One request to the rivals' environment; the time of a rule is measured there, after compilation.

    Raises:
        RuntimeError: The rival failed; its last line is given.
    """
    settings = {"rival": rival, "kernel": describe(kernel), "m": m, "sets": sets, "rng_seed": random_seed(generator)}
    with tempfile.TemporaryDirectory() as directory:
        request, result = Path(directory) / "request.npz", Path(directory) / "result.npz"
        np.savez(request, pool=pool.numpy(), settings=json.dumps(settings))
        done = subprocess.run(
            [str(_python()), str(WORKER), str(request), str(result)],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIME_LIMIT,
        )
        _checks.answered(rival, done.returncode, done.stderr)
        with np.load(result, allow_pickle=False) as answer:
            weights = torch.from_numpy(answer["weights"]) if answer["weights"].size else None
            return Rules(torch.from_numpy(answer["nodes"]).to(pool), weights, float(answer["ms"]))


def _missing(library: str) -> str | None:
    if library in installed_versions():
        return None
    return f"{library} is not installed: `amsip bench posteriors --install-rivals`"


def _rival(name: str, library: str, takes_kernel: bool = True) -> Rival:
    return Rival(name, partial(foreign, name), takes_kernel, missing=partial(_missing, library))


KERNEL_THINNING = _rival("kernel thinning", "goodpoints")
COMPRESS = _rival("compress++", "goodpoints")
RECOMBINATION = _rival("recombination", "goodpoints")
HERDING = _rival("kernel herding", "coreax")
K_MEANS = _rival("k-means", "scikit-learn", takes_kernel=False)


def _python() -> Path:
    return cache_directory("rivals") / "env" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
