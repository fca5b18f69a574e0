"""What every optimiser reports: one `Step` an iteration to its callback, and an `OptResult` at the end."""

from typing import NamedTuple

import numpy as np


class Step(NamedTuple):
    """One iteration as the callback sees it."""

    iteration: int  # 1 after the first step
    objective: float  # smooth part + c1*|w|_1, in nats
    violation: float  # c2 > 0: bound on objective minus minimum, in nats; c2 = 0: largest |pseudo-gradient|
    n_active: int  # weights that are not zero
    seconds: float  # since the start of training, without the time spent in callbacks


class OptResult(NamedTuple):
    """What an optimiser returns.

    `status` says why it ended. Words they share: "converged" (the certificate is met), "empty model" (so it
    is, and c1 leaves no weight), "small change" (the objective hardly moved), "rounding floor" (float64 shows
    no further decrease), "max_iterations", "stopped by callback", "interrupted" (Ctrl-C), "line search
    failed", "non-finite objective". Whatever it says, `w` is the last good point.
    """

    w: np.ndarray  # (F,)
    objective: float
    status: str
    n_iter: int
    history: list  # of Step: the iterations of this call
    state: dict  # arrays only; minimize(..., state=state) goes on as if it had never stopped
    n_evaluations: int = 0
