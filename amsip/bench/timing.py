"""Time of a call."""

import time
from collections.abc import Callable


def milliseconds(call: Callable[[], object], repeats: int = 3) -> float:
    """The median over a few calls; run the call once before, if the first one pays for more.

    Example:
        >>> milliseconds(lambda: None) < 100
        True
    """
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - start))
    return sorted(taken)[len(taken) // 2]
