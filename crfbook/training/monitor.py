"""Monitors of a training run: history of iterations, progress bar, held-out data, the user's callback.

A `Monitor` is the `callback` of any optimiser that reports `Step`s. The time it takes is its own:
`Step.seconds` leaves it out, `monitor.seconds` counts it.
"""

import sys
import time

import numpy as np

from crfbook._checks import function_or_none, whole

STOPPED_EARLY = "no better on held-out data"


class _Shown:
    """A context manager that removes its bar from the screen at the end."""

    bar = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.bar is not None:
            self.bar.close()


class Monitor(_Shown):
    """Callback of an optimiser; `finish(result)` afterwards picks the best weights if held-out data was
    watched.

    Parameters
    ----------
    verbose : False, True (a progress bar on stderr) or 2 (a line for each iteration on stderr).
    score : callable w (F,) -> float, higher is better, or None. It is called after each iteration.
    score_name : name of its column in the history.
    patience : stop after so many iterations without a better score; None: only record it.
    callback : called with (Step, w); True stops.
    total : iterations expected at most, for the bar; None: unknown.
    """

    def __init__(
        self, *, verbose=False, score=None, score_name="dev_score", patience=None, callback=None, total=None
    ):
        if patience is not None and whole("patience", patience, 1) and score is None:
            raise ValueError("patience: expected a score on held-out data beside it, got none")
        function_or_none("callback", callback)
        self.score, self.score_name, self.patience, self.callback = score, score_name, patience, callback
        self.steps, self.scores = [], []
        self.best_w, self.best = None, None  # weights and place of the best score
        self.stopped_early = False
        self.seconds = 0.0
        self.lines = verbose == 2
        self.bar = _Bar(total) if verbose and not self.lines else None

    @property
    def wants_state(self):
        """Whether the user's callback reads the learner's state, see `training.loop.run`."""
        return getattr(self.callback, "wants_state", False)

    def __call__(self, step, w, *state):
        began = time.perf_counter()
        self.steps.append(step)
        if self.score is not None:
            self._watch(w)
        note = f"{self.score_name} {self.scores[-1]:.4f}" if self.scores else ""
        if self.lines:
            _line(step, note)
        elif self.bar is not None:
            so_far = f"objective {step.objective:.2f}, violation {step.violation:.2e}"
            self.bar.show(1, f"{so_far}, {note}" if note else so_far)
        stop = self.callback is not None and bool(self.callback(step, w, *state))
        self.seconds += time.perf_counter() - began
        return stop or self.stopped_early

    def _watch(self, w):
        self.scores.append(float(self.score(w)))
        if self.best is None or self.scores[-1] > self.scores[self.best]:
            self.best, self.best_w = len(self.scores) - 1, w.copy()
        self.stopped_early = self.patience is not None and len(self.scores) - 1 - self.best >= self.patience

    def finish(self, result):
        """The OptResult to keep: with `patience`, the weights and objective of the best iteration."""
        if self.steps and result.history:  # its last step knows more than the callback saw
            self.steps[-1] = result.history[-1]
        if self.stopped_early and result.status == "stopped by callback":
            result = result._replace(status=STOPPED_EARLY)
        if self.patience is None or self.best_w is None:
            return result
        return result._replace(w=self.best_w, objective=self.steps[self.best].objective)

    def columns(self):
        """The iterations as {name: array}: the fields of Step, and the score."""
        return history_columns(
            self.steps, **({self.score_name: self.scores} if self.score is not None else {})
        )


def history_columns(steps, **more):
    """{name: array (n,)}: the fields of Step for each of n steps; error_bound with active sets alone.

    more : further columns, cut or filled with nan to n rows.
    """
    fields = ("iteration", "objective", "violation", "n_active", "seconds")
    bounds = [step.error_bound for step in steps]
    fields += () if np.isnan(bounds).all() else ("error_bound",)
    columns = {name: np.array([getattr(step, name) for step in steps]) for name in fields}
    for name, values in more.items():
        column = np.full(len(steps), np.nan)
        column[: len(values)] = values[: len(steps)]
        columns[name] = column
    return columns


def _line(step, note):
    print(
        f"{step.iteration:5d}  objective {step.objective:.6f}  violation {step.violation:.3e}  "
        f"active {step.n_active:,}  {step.seconds:.1f} s  {note}".rstrip(),
        file=sys.stderr,
        flush=True,
    )


class _Bar:
    """A tqdm bar on stderr; it is made at the first step, so that a run without steps shows nothing."""

    def __init__(self, total, unit="it", desc="training"):
        self.settings, self.bar = {"total": total, "unit": unit, "desc": desc}, None

    def show(self, n_done, text):
        if self.bar is None:
            from tqdm.auto import tqdm

            self.bar = tqdm(**self.settings, dynamic_ncols=True, leave=True, file=sys.stderr)
        self.bar.update(n_done)
        self.bar.set_postfix_str(text)

    def close(self):
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class JobMonitor(_Shown):
    """Progress of many training runs, which are called jobs: one bar over all of them, and what is under way.

    verbose : False, True (the bar, on stderr) or 2 (a line for each finished job).
    n_jobs : number of jobs.

    As the callback of an optimiser it shows the iterations of the job that `begin` has named.
    """

    def __init__(self, verbose, n_jobs):
        self.lines = verbose == 2
        self.bar = _Bar(n_jobs, "fit", "path") if verbose and not self.lines else None
        self.n_jobs, self.n_done, self.job = n_jobs, 0, ""

    def begin(self, job):
        self.job = job
        if self.bar is not None:
            self.bar.show(0, job)

    def __call__(self, step, w):
        if self.bar is not None:
            self.bar.show(
                0,
                f"{self.job}: iteration {step.iteration}, objective {step.objective:.2f}, "
                f"active {step.n_active:,}",
            )

    def expect(self, n_jobs):
        """Change the number of jobs."""
        self.n_jobs = n_jobs
        if self.bar is not None and self.bar.bar is not None:
            self.bar.bar.total = n_jobs

    def done(self, note):
        self.n_done += 1
        if self.bar is not None:
            self.bar.show(1, f"{self.job}: {note}")
        elif self.lines:
            print(f"{self.n_done:4d} of {self.n_jobs}  {self.job}: {note}", file=sys.stderr, flush=True)
