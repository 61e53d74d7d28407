"""What every test and doctest shares."""

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile("amsip", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("amsip")


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace: dict[str, object]) -> None:
    """Doctests may write `torch` and `amsip` without importing them."""
    # imported here, not above: the shape checker must be installed before the package is
    import amsip

    doctest_namespace.update(torch=torch, amsip=amsip)


@pytest.fixture
def generator() -> torch.Generator:
    """A generator of fixed state, fresh for each test."""
    return torch.Generator().manual_seed(20_011)
