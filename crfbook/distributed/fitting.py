"""Training on shards: `CRF.fit` for a text that one process cannot or should not hold.

The outer loop, the optimisers and the certificate are those of `CRF.fit` (training/loop.py). The workers
compute sums over the corpus. With "perceptron" each shard trains by itself, and the weights are averaged
after each epoch (parameter mixing): an approximate model.

Sources: docs/SPEC.md, A.11; McDonald, Hall and Mann (2010), "Distributed training strategies for the
structured perceptron", for iterative parameter mixing.
"""

from __future__ import annotations

import math
import os
import tempfile
from typing import Any

import numpy as np

from crfbook._checks import File, function_or_none, shown, whole
from crfbook.data.files import load_arrays, part_of, prefixed, save_arrays
from crfbook.distributed.engine import SparseVector, engine_of
from crfbook.distributed.objective import CACHE, ShardedObjective
from crfbook.distributed.shards import Shards, check_crf, read_shard, settings_of
from crfbook.learners.online import perceptron
from crfbook.learners.quasi_newton import LBFGS, Shrinking
from crfbook.learners.stochastic import Preconditioned
from crfbook.learners.stochastic.dual import DualAscent, sdca_memory
from crfbook.models.crf import CRF
from crfbook.models.fitting import carried_over, warn_of_end
from crfbook.models.inputs import TrainingSet
from crfbook.models.parameters import check_settings
from crfbook.models.saving import plain_parameters
from crfbook.training.loop import Callback, Learner, Step, run, stages
from crfbook.training.monitor import Monitor

ALGORITHMS = "lbfgs", "owlqn", "auto", "perceptron"
ALONE_EPOCHS = 6  # epochs on each shard by itself, before L-BFGS begins at their mean ("auto")
POWER = -0.25  # as in learners/stochastic/fast.py
PLAIN = 1e-9, 1e9  # values, weights and penalties of which curvature pairs fit into float32
LEAST_SCALE = 1e-12
# parameters that may differ between a checkpoint and the call that goes on from it
FREE = "max_iterations", "tol", "verbose", "n_jobs", "memory_limit"


def fit(
    crf: CRF, shards: Shards | File, client: Any = None, *, callback: Callback = None,
    checkpoint: File | None = None, every: int = 10, group: int | None = None, budget: int | None = None,
) -> CRF:  # fmt: skip
    """Train a CRF on shards.

    Parameters
    ----------
    crf : CRF with algorithm "lbfgs", "owlqn", "auto" or "perceptron", the log loss and exact inference, and
        with the parameters of the shards. It is changed, and returned.
    shards : `Shards`, or their folder.
    client : dask.distributed.Client, or None: this process computes all (on n_jobs threads). Its workers see
        the folder of the shards under the same name.
    callback : as for `CRF.fit`; one with an attribute wants_state that is true is called with a third
        argument, see `training.loop.run`.
    checkpoint : a file, or None. The state of training is written there every `every` iterations and at the
        end; where the file is there at the beginning, training goes on from it, with any client: the weights
        are those of a training that was never stopped, bit for bit.
    group : the most shards of one task; None: so many that each thread of a worker has one task.
    budget : bytes that a process keeps of shards it has built; None: half of its memory. What is dropped is
        built again at each evaluation.

    Weights have the same bits for any client, None included, any group and budget, and after the loss of
    workers, since those that are left compute the evaluation again. `CRF.fit` of the same texts adds in
    another order: its weights differ by rounding, and with "auto" by the way to the optimum.

    Raises ValueError or TypeError for parameters that do not fit; ShardError naming the shard; RuntimeError
    that lists workers unlike this process; ClusterLost where the cluster cannot go on.
    """
    check_crf(crf)
    if not isinstance(shards, Shards | str | bytes | os.PathLike):
        raise TypeError(f"shards: expected Shards or the path of their folder, got {shown(shards)}")
    settings = check_settings(crf)
    shards = shards if isinstance(shards, Shards) else Shards(shards)
    _check(crf, settings, shards, client)
    whole("every", every, 1)
    function_or_none("callback", callback)
    budget = None if budget is None else whole("budget", budget)
    engine = engine_of(client)
    if group is not None:
        whole("group", group, 1)
    features = shards.features
    warm = crf.warm_start and hasattr(crf, "weights_")
    w0 = carried_over(crf, shards.encoder, features) if warm else np.zeros(features.n_features)
    keeper = Checkpoint(checkpoint, every, callback, _identity(crf, shards, settings))
    problem = {"n_threads": 1 if client is not None else settings.n_threads, "group": group, "budget": budget}
    told = keeper if checkpoint is not None else callback
    with Monitor(verbose=settings.verbose, callback=told, total=settings.max_iterations) as monitor:
        monitor.steps += keeper.past
        result = train(shards, engine, settings, w0, monitor, keeper.state, problem)
        kept = monitor.finish(result)
    if client is None:
        CACHE.clear()
    warn_of_end(kept, shards.extremes, settings, settings.max_iterations is None, features.n_labels)
    kept = kept._replace(state=None)  # the checkpoint has it; `partial_fit` goes on from the weights
    ready = TrainingSet(shards.encoder, None, shards.constraints, None, features, shards.n_dropped)
    crf._keep(ready, kept, monitor.columns(), settings.algorithm, shards.n_sequences)
    keeper.finish(result)  # last, so that a full disk does not lose the model
    return crf


def _check(crf, settings, shards, client):
    """ValueError for what cannot be trained on these shards."""
    if settings.algorithm not in ALGORITHMS:
        raise ValueError(
            f"algorithm: on shards expected one of {', '.join(ALGORITHMS)}, got {shown(crf.algorithm)}"
        )
    if settings.loss not in ("log", ""):
        raise ValueError(f"loss: on shards expected 'log', got {shown(crf.loss)}")
    for name, only in (("inference", "exact"), ("tag_dictionary", None), ("patience", None)):
        if getattr(crf, name) not in (None, only):
            raise ValueError(f"{name}: on shards expected {only!r}, got {shown(getattr(crf, name))}")
    if client is not None and crf.n_jobs is not None:
        raise ValueError(
            f"n_jobs: expected None beside a client, whose workers do the work, got {shown(crf.n_jobs)}"
        )
    for name, value in settings_of(crf).items():
        if shards.settings[name] != value:
            raise ValueError(
                f"{name}: these shards were written for {shown(shards.settings[name])}, the CRF has "
                f"{shown(value)}: write shards for this CRF"
            )


# ---- training


def train(shards, engine, settings, w0, callback, state, problem):
    """An `OptResult` of the algorithm of the settings."""
    if settings.algorithm == "perceptron":
        return run(Mixing(shards, engine, settings, w0, state, problem), callback)
    objective = ShardedObjective(shards, engine, settings.c2, **problem)
    tol = 1e-6 if settings.tol is None else settings.tol
    rules = {
        "c2": settings.c2, "max_iterations": settings.max_iterations, "memory": settings.num_memories,
        "max_linesearch": settings.max_linesearch, "relative_change": settings.relative_change,
        "epsilon": settings.epsilon, "tol": tol, "tol_gradient": 1000 * min(tol, 1e300),
    }  # fmt: skip
    # CRFsuite's rules for an end are those of L-BFGS, without c1 also where "auto" is asked for
    ruled = settings.epsilon is not None or settings.relative_change is not None
    fast = settings.algorithm == "auto" and settings.c1 + settings.c2 > 0 and (settings.c1 or not ruled)

    # the 30 curvature pairs are most of what the driver holds
    plain = all(PLAIN[0] < (size or 1.0) < PLAIN[1] for size in (*shards.extremes, settings.c2))
    pairs = {"precision": np.float32 if plain else np.float64}

    def script(training):
        w, later, before = w0, state, (0, 0.0)
        if fast and state is None and not w0.any() and settings.max_iterations != 0:
            first = yield Alone(objective, settings, problem)
            if training.stopped or first.status == "interrupted":
                return first
            w, before = first.w, (first.n_iter, first.history[-1].seconds if first.history else 0.0)
        elif state is not None and "epochs" in state:
            before = int(state["epochs"]), float(state["spent"])
        if settings.c1:
            own = rules | {"c1": settings.c1}
            return (
                yield from Shrinking(objective, objective.smaller, own, before).script(training, w, later)
            )
        if fast:
            if later is not None:
                return (yield Preconditioned.resumed(objective, tol, settings.max_iterations, later, **pairs))
            with np.errstate(over="ignore"):
                d = objective.curvature(w) ** POWER
            if not (np.isfinite(d).all() and d.all() and d.max(initial=0.0) > LEAST_SCALE):
                d = np.ones(len(d))  # with sample weights of 1e100 the first step would not move
            return (yield Preconditioned(objective, tol, settings.max_iterations, d, before, w=w, **pairs))
        return (yield LBFGS(objective, w, state=later, **rules))

    return stages(script, callback)


class _OneByOne(Learner):
    """Each shard computes a result by itself; then all are averaged. An iteration visits all shards."""

    task = None  # (payload, shards, F, ...) -> tuple of sums

    def __init__(self, shards, engine, settings, problem):
        self.shards, self.engine, self.settings = shards, engine, settings
        self.n_features = shards.features.n_features
        self.filled = sum(1 for shard in shards.shards if shard.n_tokens)
        self.group = problem["group"]
        self.w = np.zeros(self.n_features)

    def sums(self, task, payload, *more):
        """The task's results, summed over all shards."""
        more = self.n_features, *more
        return self.engine.total(task, self.shards.shards, payload, *more, group=self.group)

    def weights(self):
        return self.w


class Alone(_OneByOne):
    """Dual coordinate ascent on each shard by itself; the result is the mean of their weights.

    The mean of a weight is over the shards that have it. There is one iteration, of ALONE_EPOCHS epochs.
    Zeros are returned where the mean is no better than they are: with a penalty of 1e-12 or 1e200, or values
    of 1e8, ascent ends far from the optimum.
    """

    max_iterations = 1

    def __init__(self, objective, settings, problem):
        super().__init__(objective.shards, objective.engine, settings, problem)
        self.fun = objective

    def advance(self):
        settings = self.settings
        c2 = settings.c1 + settings.c2
        jobs = c2, settings.random_state, settings.memory_limit, self.filled
        total, count, length = self.sums(alone, None, *jobs)
        w, at_zero = total / np.maximum(count, 1.0), length * math.log(self.shards.features.n_labels)
        value, self.n_evaluations = math.inf, 1
        if np.isfinite(w).all():
            value = self.fun(w)[0] + settings.c1 * float(np.abs(w).sum())
        self.iteration = 1
        better = 0.0 <= value <= at_zero  # with constraints zeros have at most that
        self.w, self.objective = (w, value) if better else (self.w, at_zero)
        return None


def alone(_, shard, n_features, c2, seed, memory_limit, n_shards):
    """(weights, ones, length) of a shard that trains by itself. A task.

    weights : `SparseVector` of F, as the shard finds them.
    ones : `SparseVector` of F, 1 where it has found a weight.
    length : its tokens, times the weights of their sequences.
    """
    corpus, features, place, constraints = read_shard(*shard)
    found, count = np.zeros((2, len(place)))
    share = c2 / n_shards  # of the penalty: the shard is one of n_shards
    if corpus.n_tokens and 0.0 < share < math.inf and sdca_memory(corpus, features) <= memory_limit:
        rules = None, constraints, None, seed, share, 1e-4, ALONE_EPOCHS
        found, count[:] = _completed(run(DualAscent(corpus, features, *rules))).w, 1.0
    sums = (SparseVector(x, place, n_features) for x in (found, count))
    return *sums, float(corpus.weights @ corpus.lengths)


def _completed(result):
    """The result of an inner training. If Ctrl-C stopped it: KeyboardInterrupt, for the outer one."""
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result


class Mixing(_OneByOne):
    """The perceptron by iterative parameter mixing.

    In each epoch every shard goes on from the common weights. The next epoch begins at their mean over the
    shards. The result is the mean of all weight vectors that were passed, over shards and epochs
    (averaging=False: the last mean). It approximates the perceptron on the whole text; the error grows with
    the number of shards.
    """

    kept = "seconds", "objective", "violation"

    def __init__(self, shards, engine, settings, w0, state, problem):
        super().__init__(shards, engine, settings, problem)
        self.budget = problem["budget"]
        self.last, self.passed = w0.copy(), np.zeros(self.n_features)
        self.max_iterations = 10 if settings.max_iterations is None else settings.max_iterations
        if state is not None:
            self.last, self.passed = state["last"].copy(), state["passed"].copy()
            self.iteration = int(state["iteration"])
            self.seconds, self.objective, self.violation = (float(state[name]) for name in self.kept)

    def advance(self):
        more = self.settings.random_state, self.iteration, self.budget
        move, mean, objective, errors = self.sums(mixed_epoch, self.last, *more)
        move, mean = move / self.filled, mean / self.filled
        if not np.isfinite([objective, move.sum(), mean.sum()]).all():
            return "non-finite weights"
        self.passed = self.passed + self.last + mean
        self.last = self.last + move
        self.iteration += 1
        self.objective, self.violation = float(objective), float(errors) / max(1, self.shards.n_sequences)
        return None

    def final_objective(self):
        return self.objective if self.iteration else 0.0

    def finished(self):
        epsilon = self.settings.epsilon or 0.0
        return "converged" if self.iteration and self.violation <= epsilon else None

    def weights(self):
        averaged = self.settings.averaging in (None, True) and self.iteration
        return self.passed / self.iteration if averaged else self.last

    def state(self):
        numbers = {name: np.array(getattr(self, name)) for name in ("iteration", *self.kept)}
        return {"last": self.last, "passed": self.passed, **numbers}


def mixed_epoch(w, shard, n_features, seed, epoch, budget):
    """(move, mean, loss, errors) of an epoch of a shard. A task.

    move : `SparseVector` of F, how far the weights moved.
    mean : `SparseVector` of F, the mean of the weights that were passed, less w.
    """
    read = CACHE.get((shard, "corpus"), lambda: _sized(read_shard(*shard)), budget)
    corpus, features, place, constraints = read
    moves, loss, errors = np.zeros((2, len(place))), 0.0, 0.0
    if corpus.n_tokens:
        own = w[place]
        rules = {"constraints": constraints, "max_iterations": 1, "random_state": seed + 1009 * epoch}
        result = _completed(perceptron(corpus, features, own, **rules))
        moves, loss = (result.state["w"] - own, result.w - own), result.objective
        if result.status.startswith("non-finite"):  # it has kept the weights of before
            loss = math.nan
        errors = result.history[-1].violation * len(corpus.visited) if result.history else 0.0
    return *(SparseVector(x, place, n_features) for x in moves), loss, errors


def _sized(read):
    return read, sum(array.nbytes for array in read[0]) + read[2].nbytes


# ---- checkpoints


def _identity(crf, shards, settings):
    """What a checkpoint must share with the call that goes on from it."""
    params = plain_parameters(crf, (*FREE, "template", "constraints"))
    return {"shards": shards.digest, "params": params | {"random_state": settings.random_state}}


class Checkpoint:
    """The callback that writes the state of a training to a file; a file that exists gives the first state.

    past : steps of the training so far.
    state : its state, or None.
    """

    wants_state = True

    def __init__(self, path, every, callback, identity):
        self.path, self.every, self.callback, self.identity = path, every, callback, identity
        self.steps, self.past, self.state = [], [], None
        if path is not None:
            path = os.fsdecode(path)
            folder, name = os.path.split(os.path.abspath(path))
            if not os.path.basename(path) or "\0" in path:
                raise ValueError(f"checkpoint: expected the name of a file, got {path!r}")
            if not os.path.isdir(folder):
                raise FileNotFoundError(
                    f"checkpoint: expected a file in a folder that exists, there is no {folder}"
                )
            with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{name}."):
                pass  # a file that cannot be written is an error before training, not after it
            if os.path.exists(path):
                self._go_on()

    def _go_on(self):
        header, arrays = load_arrays(self.path, "checkpoint")
        if header["identity"] != self.identity:
            theirs, mine = header["identity"], self.identity
            differs = [n for n, v in mine["params"].items() if theirs["params"].get(n) != v]
            what = f"with other parameters ({', '.join(differs)})" if differs else "on other shards"
            raise ValueError(
                f"checkpoint {os.fspath(self.path)}: it is of a training {what}; name another file"
            )
        self.state = part_of("state", arrays) or None
        rows = zip(*(arrays[f"steps.{name}"].tolist() for name in Step._fields), strict=True)
        self.past = [Step(*row) for row in rows]
        self.steps = list(self.past)

    def __call__(self, step, w, state):
        self.steps.append(step)
        # there is no state while shards train by themselves
        if step.iteration % self.every == 0 and (now := state()):
            self.write(now)
        more = (state,) if getattr(self.callback, "wants_state", False) else ()
        return self.callback is not None and self.callback(step, w, *more)

    def write(self, state):
        steps = {name: np.array([getattr(step, name) for step in self.steps]) for name in Step._fields}
        arrays = prefixed("state", state) | prefixed("steps", steps)
        save_arrays(self.path, "checkpoint", {"identity": self.identity}, arrays)

    def finish(self, result):
        """The state at the end, if there is one."""
        if self.path is not None and result.state:
            self.write(result.state)
