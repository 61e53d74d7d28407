"""The kernels: what a rule is asked to integrate well. The bandwidth h enters as exp(-r^2 / (2 h^2)), here alone."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from amsip import _checks, _linalg
from amsip.whitening import Whitening


class Kernel(ABC):
    """A positive semi-definite function k(x, z); kernels add, and scale by positive numbers.

    Example:
        >>> kernel = SquaredExponential(1.0) + 0.5 * Polynomial(degree=2, scale=2.0)
        >>> kernel(torch.zeros(3, 2), torch.ones(4, 2)).shape
        torch.Size([3, 4])
    """

    @abstractmethod
    def __call__(self, x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"]) -> Float[Tensor, "*q m n"]:
        """k(x_i, y_j)."""

    @abstractmethod
    def gram(self, x: Float[Tensor, "*#q m d"]) -> Float[Tensor, "*q m m"]:
        """k(x_i, x_j), from exact differences."""

    @abstractmethod
    def diagonal(self, x: Float[Tensor, "*#q m d"]) -> Float[Tensor, "*q m"]:
        """k(x_i, x_i)."""

    @abstractmethod
    def gram_and_shadow(self, x: Float[Tensor, "*#q m d"]) -> tuple[Float[Tensor, "*q m m"], Float[Tensor, "*q m m"]]:
        """The Gram, and the isotropic part s of the mixed derivative: d_x d_y' k(x, y) = s I + a rank-one term."""

    @abstractmethod
    def weighted_sum_and_grad(
        self, x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"], w: Float[Tensor, "*#q n"]
    ) -> tuple[Float[Tensor, "*q m"], Float[Tensor, "*q m d"]]:
        """sum_j w_j k(x, y_j) and its gradient in x, without the (m, n, d) tensor."""

    def weighted_sum(
        self, x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"], w: Float[Tensor, "*#q n"]
    ) -> Float[Tensor, "*q m"]:
        """sum_j w_j k(x, y_j)."""
        return (self(x, y) @ w[..., None])[..., 0]

    def weighted_grad(
        self, x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"], w: Float[Tensor, "*#q n"]
    ) -> Float[Tensor, "*q m d"]:
        """The gradient in x of sum_j w_j k(x, y_j)."""
        return self.weighted_sum_and_grad(x, y, w)[1]

    def __add__(self, other: "Kernel") -> "Sum":
        return Sum((*_terms(self), *_terms(other)))

    def __rmul__(self, factor: float) -> "Sum":
        _checks.positive("factor", factor)
        return Sum(tuple((factor * c, k) for c, k in _terms(self)))


class Radial(Kernel):
    """A kernel of the distance alone.

    Each radial kernel knows its *shadow*, the auxiliary kernel s of the general-kernel mean shift:
    grad_x k(x, y) = -(x - y) s(x, y).
    """

    bandwidth: float | Float[Tensor, "*q"]

    @abstractmethod
    def profile(self, r2: Float[Tensor, "*#q m n"]) -> tuple[Float[Tensor, "*q m n"], Float[Tensor, "*q m n"]]:
        """The kernel and its shadow at squared distances r2."""

    @abstractmethod
    def second_shadow(self, r2: Float[Tensor, "*#q m n"]) -> Float[Tensor, "*q m n"]:
        """The shadow of the shadow, grad_x s(x, y) = -(x - y) t(x, y), at squared distances r2."""

    def value(self, r2: Float[Tensor, "*#q m n"]) -> Float[Tensor, "*q m n"]:
        """The kernel alone at squared distances r2."""
        return self.profile(r2)[0]

    def shadows(self, r2: Float[Tensor, "*#q m n"]) -> tuple[Float[Tensor, "*q m n"], Float[Tensor, "*q m n"]]:
        """The shadow and the second shadow at squared distances r2."""
        return self.profile(r2)[1], self.second_shadow(r2)

    def __call__(self, x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"]) -> Float[Tensor, "*q m n"]:
        return self.value(_linalg.squared_distances(x, y))

    def shadow(self, x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"]) -> Float[Tensor, "*q m n"]:
        """s(x_i, y_j)."""
        return self.profile(_linalg.squared_distances(x, y))[1]

    def gram(self, x: Float[Tensor, "*#q m d"]) -> Float[Tensor, "*q m m"]:
        return self.value(_linalg.pairwise_squared_distances(x))

    def gram_and_shadow(self, x: Float[Tensor, "*#q m d"]) -> tuple[Float[Tensor, "*q m m"], Float[Tensor, "*q m m"]]:
        return self.profile(_linalg.pairwise_squared_distances(x))

    def diagonal(self, x: Float[Tensor, "*#q m d"]) -> Float[Tensor, "*q m"]:
        return self.value(torch.zeros_like(x[..., :1]))[..., 0]

    def weighted_sum_and_grad(
        self, x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"], w: Float[Tensor, "*#q n"]
    ) -> tuple[Float[Tensor, "*q m"], Float[Tensor, "*q m d"]]:
        value, shadow = self.profile(_linalg.squared_distances(x, y))
        # the two terms of the gradient nearly cancel far from the origin, so the atoms are moved there
        centre = _linalg.middle(y)
        weight = w[..., None].expand(*y.shape[:-1], 1)
        sums = shadow @ torch.cat([weight * (y - centre), weight], -1)
        return (value @ w[..., None])[..., 0], sums[..., :-1] - sums[..., -1:] * (x - centre)

    def weighted_hessian_product(
        self,
        x: Float[Tensor, "*#q m d"],
        y: Float[Tensor, "*#q n d"],
        w: Float[Tensor, "*#q n"],
        v: Float[Tensor, "*#q m d"],
    ) -> Float[Tensor, "*q m d"]:
        """The Hessian in x of sum_j w_j k(x, y_j) times v, without the (m, n, d) tensor."""
        centre = _linalg.middle(y)
        x, y = x - centre, y - centre
        shadow, second = self.shadows(_linalg.squared_distances(x, y))
        pull = second * ((x * v).sum(-1, keepdim=True) - v @ y.mT)
        weight = w[..., None].expand(*y.shape[:-1], 1)
        sums = pull @ torch.cat([weight * y, weight], -1)
        return sums[..., -1:] * x - sums[..., :-1] - (shadow @ weight) * v

    def _h(self, r2: Tensor) -> float | Tensor:
        """The bandwidth, shaped to divide a (..., m, n) matrix."""
        if isinstance(self.bandwidth, Tensor):
            return self.bandwidth.to(r2)[..., None, None]
        return self.bandwidth


@dataclass(frozen=True, eq=False)
class SquaredExponential(Radial):
    r"""The kernel of the paper.

    $$k(x, z) = \exp\big(-\|x - z\|^2 / (2 h^2)\big), \qquad s = k / h^2$$

    Arguments:
        bandwidth: h, a number or one per query.

    Example:
        >>> round(SquaredExponential(2.0)(torch.zeros(1, 1), torch.full((1, 1), 2.0)).item(), 4)
        0.6065
    """

    bandwidth: float | Float[Tensor, "*q"]

    def __post_init__(self) -> None:
        _checks.positive("bandwidth", self.bandwidth)

    def value(self, r2: Float[Tensor, "*#q m n"]) -> Float[Tensor, "*q m n"]:
        return torch.exp(r2 * (-0.5 / self._h(r2) ** 2))

    def profile(self, r2: Float[Tensor, "*#q m n"]) -> tuple[Float[Tensor, "*q m n"], Float[Tensor, "*q m n"]]:
        value = self.value(r2)
        return value, value / self._h(r2) ** 2

    def second_shadow(self, r2: Float[Tensor, "*#q m n"]) -> Float[Tensor, "*q m n"]:
        return self.value(r2) / self._h(r2) ** 4


@dataclass(frozen=True, eq=False)
class Octaves(Radial):
    r"""The average of squared-exponential kernels at octave-spaced bandwidths h, 2h, 4h, ...

    $$k = \sum_{o=0}^{O-1} a_o \exp\big(-r^2 / (2 (2^o h)^2)\big), \qquad \sum_o a_o = 1$$

    One exponential serves every octave: the kernel at h is the fourth power of the kernel at 2h.

    Arguments:
        bandwidth: The smallest bandwidth h, a number or one per query.
        count: The number of octaves.
        shares: The weight of each octave, smallest bandwidth first; equal when not given.

    Example:
        >>> Octaves(0.5, 3).gram(torch.zeros(2, 1))
        tensor([[1., 1.],
                [1., 1.]])
    """

    bandwidth: float | Float[Tensor, "*q"]
    count: int = 5
    shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        _checks.positive("bandwidth", self.bandwidth)
        _checks.at_least("count", self.count, 1)
        if self.shares is not None and len(self.shares) != self.count:
            raise ValueError(f"`shares` must have one entry per octave: got {len(self.shares)} for {self.count}.")
        for share in self.shares or ():
            _checks.positive("shares", share)

    @classmethod
    def matern(
        cls, length: float | Float[Tensor, "*q"], smoothness: float = 2.5, *, finer: int = 3, coarser: int = 1
    ) -> "Octaves":
        r"""Octaves around a length, with the shares of the Matern kernel, which is such a scale mixture.

        $$k_\nu(r) = \mathbb E \exp(-r^2 / 2 h^2), \qquad h^2 \sim \mathrm{Gamma}(\nu, \nu / \ell^2)$$

        The spectrum falls like a Matern kernel's down to the finest octave, while every closed form of the
        squared exponential remains.

        Arguments:
            length: The length l of the Matern kernel, a number or one per query.
            smoothness: Its smoothness nu; any positive number.
            finer: Octaves below the length.
            coarser: Octaves above it.

        Example:
            >>> r = torch.linspace(0.0, 3.0, 50)[:, None]
            >>> gap = Octaves.matern(1.0)(r[:1], r) - Matern(1.0)(r[:1], r)
            >>> gap.abs().max() < 0.03
            tensor(True)
        """
        _checks.positive("smoothness", smoothness)
        _checks.at_least("finer", finer, 0)
        _checks.at_least("coarser", coarser, 0)
        ratios = [4.0**octave for octave in range(-finer, coarser + 1)]
        shares = tuple(t**smoothness * math.exp(-smoothness * t) for t in ratios)
        return cls(length * 2.0**-finer, len(ratios), shares)

    def components(self) -> list[tuple[float, SquaredExponential]]:
        """The squared-exponential kernels of the average, each with its share."""
        return [(a, SquaredExponential(self.bandwidth * 2**o)) for o, a in enumerate(self._normalised_shares())]

    def value(self, r2: Float[Tensor, "*#q m n"]) -> Float[Tensor, "*q m n"]:
        return self._orders(r2, 0)[0]

    def profile(self, r2: Float[Tensor, "*#q m n"]) -> tuple[Float[Tensor, "*q m n"], Float[Tensor, "*q m n"]]:
        value, shadow = self._orders(r2, 0, 1)
        return value, shadow

    def second_shadow(self, r2: Float[Tensor, "*#q m n"]) -> Float[Tensor, "*q m n"]:
        return self._orders(r2, 2)[0]

    def shadows(self, r2: Float[Tensor, "*#q m n"]) -> tuple[Float[Tensor, "*q m n"], Float[Tensor, "*q m n"]]:
        shadow, second = self._orders(r2, 1, 2)
        return shadow, second

    def _orders(self, r2: Tensor, *orders: int) -> list[Tensor]:
        """For each order p the sum of a_o k_o / h_o^(2p): the kernel (0), its shadow (1), its second shadow (2)."""
        shares = self._normalised_shares()
        widest = (self._h(r2) * 2 ** (self.count - 1)) ** 2
        power = torch.exp(r2 * (-0.5 / widest))
        sums = [shares[-1] * power for _ in orders]
        for octave, share in enumerate(shares[-2::-1], start=1):
            power = _linalg.fourth_power(power)
            sums = [
                _linalg.accumulate(t, power, share * 4.0 ** (p * octave)) for t, p in zip(sums, orders, strict=True)
            ]
        return [t if p == 0 else t / widest**p for t, p in zip(sums, orders, strict=True)]

    def _normalised_shares(self) -> tuple[float, ...]:
        shares = self.shares or (1.0,) * self.count
        total = sum(shares)
        return tuple(a / total for a in shares)


@dataclass(frozen=True, eq=False)
class Matern(Radial):
    r"""The Matern kernel of smoothness 1/2, 3/2 or 5/2; smoothness 1/2 has no gradient at zero, so only its value.

    $$k_{3/2} = (1 + t) e^{-t},\ t = \sqrt 3\, r / h; \qquad
      k_{5/2} = (1 + t + t^2/3) e^{-t},\ t = \sqrt 5\, r / h$$

    Arguments:
        bandwidth: h, a number or one per query.
        smoothness: 0.5, 1.5 or 2.5.

    Example:
        >>> Matern(1.0, smoothness=1.5).gram(torch.zeros(1, 1)).item()
        1.0
    """

    bandwidth: float | Float[Tensor, "*q"]
    smoothness: float = 2.5

    def __post_init__(self) -> None:
        _checks.positive("bandwidth", self.bandwidth)
        _checks.one_of("smoothness", self.smoothness, (0.5, 1.5, 2.5))

    def value(self, r2: Float[Tensor, "*#q m n"]) -> Float[Tensor, "*q m n"]:
        t = self._scaled(r2)
        if self.smoothness == 0.5:
            return torch.exp(-t)
        return (1.0 + t if self.smoothness == 1.5 else 1.0 + t + t.square() / 3.0) * torch.exp(-t)

    def profile(self, r2: Float[Tensor, "*#q m n"]) -> tuple[Float[Tensor, "*q m n"], Float[Tensor, "*q m n"]]:
        if self.smoothness == 0.5:
            raise ValueError("`smoothness` 0.5 has no gradient: weights can be solved with it, nodes cannot be moved.")
        t, h2 = self._scaled(r2), self._h(r2) ** 2
        decay = torch.exp(-t)
        if self.smoothness == 1.5:
            return (1.0 + t) * decay, 3.0 / h2 * decay
        return (1.0 + t + t.square() / 3.0) * decay, 5.0 / (3.0 * h2) * (1.0 + t) * decay

    def second_shadow(self, r2: Float[Tensor, "*#q m n"]) -> Float[Tensor, "*q m n"]:
        t, h4 = self._scaled(r2), self._h(r2) ** 4
        if self.smoothness == 2.5:
            return 25.0 / (3.0 * h4) * torch.exp(-t)
        if self.smoothness == 1.5:
            # unbounded at zero, but only ever multiplied by squared differences, which win
            return torch.where(r2 > 0, 9.0 / h4 * torch.exp(-t) / torch.where(r2 > 0, t, 1.0), 0.0)
        raise ValueError("`smoothness` 0.5 has no gradient: weights can be solved with it, nodes cannot be moved.")

    def _scaled(self, r2: Tensor) -> Tensor:
        # the square root has no derivative at zero, so zero distances are kept off the graph
        apart = r2 > 0
        r = torch.where(apart, torch.where(apart, r2, 1.0).sqrt(), 0.0)
        return math.sqrt(2.0 * self.smoothness) * r / self._h(r2)


@dataclass(frozen=True, eq=False)
class InverseMultiquadric(Radial):
    r"""A kernel with heavy tails.

    $$k(x, z) = (1 + \|x - z\|^2 / h^2)^{-1/2}, \qquad s = k^3 / h^2$$

    Arguments:
        bandwidth: h, a number or one per query.

    Example:
        >>> InverseMultiquadric(1.0).gram(torch.zeros(1, 1)).item()
        1.0
    """

    bandwidth: float | Float[Tensor, "*q"]

    def __post_init__(self) -> None:
        _checks.positive("bandwidth", self.bandwidth)

    def profile(self, r2: Float[Tensor, "*#q m n"]) -> tuple[Float[Tensor, "*q m n"], Float[Tensor, "*q m n"]]:
        h2 = self._h(r2) ** 2
        value = torch.rsqrt(1.0 + r2 / h2)
        return value, value**3 / h2

    def second_shadow(self, r2: Float[Tensor, "*#q m n"]) -> Float[Tensor, "*q m n"]:
        h2 = self._h(r2) ** 2
        return 3.0 * torch.rsqrt(1.0 + r2 / h2) ** 5 / h2**2


@dataclass(frozen=True, eq=False)
class Polynomial(Kernel):
    r"""Sees means (degree 1) and covariances (degree 2), and nothing else.

    $$k(x, z) = \sum_{p=1}^{\text{degree}} (x^\top z / s)^p$$

    Meant for coordinates centred on the posterior; its embedding is closed form from two moments.

    Arguments:
        degree: 1 or 2.
        scale: s, a number or one per query; the dimension keeps the kernel of order one in whitened coordinates, and
            infinity switches it off.

    Example:
        >>> Polynomial(degree=2, scale=1.0)(torch.full((1, 1), 2.0), torch.full((1, 1), 3.0)).item()
        42.0
    """

    degree: int = 2
    scale: float | Float[Tensor, "*q"] = 1.0

    def __post_init__(self) -> None:
        _checks.one_of("degree", self.degree, (1, 2))
        _checks.above_zero("scale", self.scale)

    def scale_for(self, x: Tensor) -> float | Tensor:
        """The scale, shaped to divide a (..., m, n) matrix like x."""
        return self.scale.to(x)[..., None, None] if isinstance(self.scale, Tensor) else self.scale

    def __call__(self, x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"]) -> Float[Tensor, "*q m n"]:
        return self._of_product(x @ y.mT / self.scale_for(x))

    def gram(self, x: Float[Tensor, "*#q m d"]) -> Float[Tensor, "*q m m"]:
        return self(x, x)

    def gram_and_shadow(self, x: Float[Tensor, "*#q m d"]) -> tuple[Float[Tensor, "*q m m"], Float[Tensor, "*q m m"]]:
        product = x @ x.mT / self.scale_for(x)
        shadow = torch.ones_like(product) if self.degree == 1 else 1.0 + 2.0 * product
        return self._of_product(product), shadow / self.scale_for(x)

    def diagonal(self, x: Float[Tensor, "*#q m d"]) -> Float[Tensor, "*q m"]:
        return self._of_product(x.square().sum(-1, keepdim=True) / self.scale_for(x))[..., 0]

    def weighted_sum_and_grad(
        self, x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"], w: Float[Tensor, "*#q n"]
    ) -> tuple[Float[Tensor, "*q m"], Float[Tensor, "*q m d"]]:
        weighted = w[..., None] * y
        first, second = weighted.sum(-2), y.mT @ weighted
        return self.sum_and_grad_of_moments(x, first, second)

    def sum_and_grad_of_moments(
        self, x: Float[Tensor, "*#q m d"], first: Float[Tensor, "*#q d"], second: Float[Tensor, "*#q d d"]
    ) -> tuple[Float[Tensor, "*q m"], Float[Tensor, "*q m d"]]:
        """The sums over a measure of which only the raw first and second moments are known."""
        scale = self.scale_for(x)
        linear = first[..., None, :] / scale
        if self.degree == 1:
            return (x * linear).sum(-1), linear + torch.zeros_like(x)
        quadratic = x @ second / scale**2
        return (x * (linear + quadratic)).sum(-1), linear + 2.0 * quadratic

    def _of_product(self, product: Tensor) -> Tensor:
        return product if self.degree == 1 else product + product.square()


@dataclass(frozen=True, eq=False)
class Sum(Kernel):
    """A positive combination of kernels, written `a * k1 + b * k2`.

    Arguments:
        terms: Pairs of a positive coefficient and a kernel.

    Example:
        >>> (2.0 * SquaredExponential(1.0)).gram(torch.zeros(1, 1)).item()
        2.0
    """

    terms: tuple[tuple[float, Kernel], ...]

    def __call__(self, x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"]) -> Float[Tensor, "*q m n"]:
        return sum_terms([c * k(x, y) for c, k in self.terms])

    def gram(self, x: Float[Tensor, "*#q m d"]) -> Float[Tensor, "*q m m"]:
        return sum_terms([c * k.gram(x) for c, k in self.terms])

    def gram_and_shadow(self, x: Float[Tensor, "*#q m d"]) -> tuple[Float[Tensor, "*q m m"], Float[Tensor, "*q m m"]]:
        parts = [(c, *k.gram_and_shadow(x)) for c, k in self.terms]
        return sum_terms([c * gram for c, gram, _ in parts]), sum_terms([c * shadow for c, _, shadow in parts])

    def diagonal(self, x: Float[Tensor, "*#q m d"]) -> Float[Tensor, "*q m"]:
        return sum_terms([c * k.diagonal(x) for c, k in self.terms])

    def weighted_sum_and_grad(
        self, x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"], w: Float[Tensor, "*#q n"]
    ) -> tuple[Float[Tensor, "*q m"], Float[Tensor, "*q m d"]]:
        parts = [(c, *k.weighted_sum_and_grad(x, y, w)) for c, k in self.terms]
        return sum_terms([c * value for c, value, _ in parts]), sum_terms([c * grad for c, _, grad in parts])


@dataclass(frozen=True, eq=False)
class Whitened(Kernel):
    r"""A kernel read in the coordinates of a chart: the posterior-whitened (Mahalanobis) kernel.

    $$k_M(x, z) = k\big(R(x - a), R(z - a)\big)$$

    Equation (13) of the paper; one chart for all queries, or one per query.

    Arguments:
        kernel: The kernel in the chart's coordinates.
        whitening: The chart.

    Example:
        >>> chart = Whitening.of_moments(torch.zeros(1), torch.full((1, 1), 4.0))
        >>> round(Whitened(SquaredExponential(1.0), chart)(torch.zeros(1, 1), torch.full((1, 1), 2.0)).item(), 4)
        0.6065
    """

    kernel: Kernel
    whitening: Whitening

    def __call__(self, x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"]) -> Float[Tensor, "*q m n"]:
        return self.kernel(self.whitening.forward(x), self.whitening.forward(y))

    def gram(self, x: Float[Tensor, "*#q m d"]) -> Float[Tensor, "*q m m"]:
        return self.kernel.gram(self.whitening.forward(x))

    def gram_and_shadow(self, x: Float[Tensor, "*#q m d"]) -> tuple[Float[Tensor, "*q m m"], Float[Tensor, "*q m m"]]:
        raise TypeError("A whitened kernel has no isotropic derivative: move nodes in the coordinates of its chart.")

    def diagonal(self, x: Float[Tensor, "*#q m d"]) -> Float[Tensor, "*q m"]:
        return self.kernel.diagonal(self.whitening.forward(x))

    def weighted_sum_and_grad(
        self, x: Float[Tensor, "*#q m d"], y: Float[Tensor, "*#q n d"], w: Float[Tensor, "*#q n"]
    ) -> tuple[Float[Tensor, "*q m"], Float[Tensor, "*q m d"]]:
        value, grad = self.kernel.weighted_sum_and_grad(self.whitening.forward(x), self.whitening.forward(y), w)
        return value, self.whitening.pull_back(grad)


def sum_terms(parts: list[Tensor]) -> Tensor:
    """The sum of a non-empty list of tensors."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _terms(kernel: Kernel) -> tuple[tuple[float, Kernel], ...]:
    return kernel.terms if isinstance(kernel, Sum) else ((1.0, kernel),)
