"""Time of a call, in CPU milliseconds, so that a busy machine does not count."""

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
        start = time.process_time()
        call()
        taken.append(1e3 * (time.process_time() - start))
    return sorted(taken)[len(taken) // 2]
