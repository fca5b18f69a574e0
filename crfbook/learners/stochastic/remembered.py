"""What SAG and SDCA share: they remember each sequence, estimate from that how far they have come, and stop
after an exact look.

Of transitions they remember numbers for the label pairs that have a weight, never L x L tables. The pairs of
sequence s stand in one stretch of a flat array, edge class by edge class that it uses, rising.
"""

import math

import numpy as np

from crfbook._checks import whole
from crfbook.chain.objective import Objective, check_labels, check_weights
from crfbook.chain.token_layout import dense_attributes, lay_out_online, row_width, used_classes
from crfbook.data.corpus import offsets
from crfbook.training.certificate import TINY
from crfbook.training.loop import Learner

EDGE_ORDER = 2  # in a state: its classes rise; without this entry: as the sequence used them first


class Rememberer(Learner):
    """What both share. A subclass has `memory` (a NamedTuple), and says how far the weights have come, as
    (objective, violation): `estimate()` from what is remembered, `certified(value, grad)` from the objective
    and its gradient (F,).

    given : `state`, or {}; start : (F,) or None, returned until an epoch has ended; w : (F,), the present
    exact : what `certified` said of w, if the corpus was passed over for it
    optimism : how much the estimate has to promise before such a pass; at least `least`
    """

    name = first = ""  # of the learner; of the array (N, L) by which its state is known
    vectors = ("w",)  # (F,), in a state
    kept = ()  # arrays of the memory, in a state
    numbers = {"seed": 0, "passes": 0, "optimism": 1.0}  # in a state, and their values without one
    least, trust = 1.0, 0.5  # of the estimate
    start = exact = objective_of = ended = None

    def __init__(self, corpus, features, w0, constraints, state, random_state, rules, max_iterations=None):
        check_labels(corpus, features, constraints)
        self.corpus, self.features, self.constraints = corpus, features, constraints
        self.rules, self.c2, self.given = rules, rules.c2, {} if state is None else state
        self.max_iterations = None if max_iterations is None else whole("max_iterations", max_iterations)
        if state is not None:
            self._check(state)
        given = {"seed": random_state, "w": np.zeros(features.n_features) if w0 is None else w0} | self.given
        self.w = check_weights(given["w"], features.n_features).copy()
        self.layout, self.cells = lay_out_online(corpus, features, constraints)
        self.sequences = corpus.visited
        self.iteration, self.seconds = int(given.get("epoch", 0)), float(given.get("seconds", 0.0))
        for name, value in self.numbers.items():
            setattr(self, name, type(value)(given.get(name, value)))

    def _check(self, state):
        sizes = [(name, (self.features.n_features,)) for name in self.vectors]
        sizes.append((self.first, (self.corpus.n_tokens, self.features.n_labels)))
        if any(np.shape(state.get(name)) != size for name, size in sizes):
            raise ValueError(
                f"state: expected that of {self.name} with {self.features.n_features} weights and "
                f"{self.corpus.n_tokens} tokens, got the arrays {sorted(state)}"
            )
        order = int(state.get("edge_order", 1))
        if order != EDGE_ORDER and self.corpus.n_classes > 1:  # of one class there is one order
            raise ValueError(
                f"state: expected one of {self.name} with edge_order {EDGE_ORDER}, got {order}: a version "
                "that kept transitions in another order wrote it; its weights are a start: w0=state['w']"
            )

    def state(self):
        """Arrays only; the big ones are the run's own, not copies."""
        numbers = {name: getattr(self, name) for name in self.numbers}
        numbers |= {"epoch": self.iteration, "seconds": self.seconds, "edge_order": EDGE_ORDER}
        arrays = {name: getattr(self.memory, name) for name in self.kept}
        return {name: np.asarray(value) for name, value in numbers.items()} | arrays | {"w": self.w}

    def weights(self):
        return self.w if self.iteration or self.start is None else self.start

    def finished(self):
        return self.ended

    def last_look(self):
        return self.evaluate()[0]

    @property
    def n_evaluations(self):
        return math.ceil(self.passes)

    def judge(self):
        """Objective and violation as remembered, or exact ones if those are good enough to end."""
        objective, violation = self.estimate()
        if self.optimism * violation <= self.rules.enough(objective):
            promised, (objective, violation) = violation, self.evaluate()
            # what the memory will have to promise next time
            self.optimism = max(self.least, self.trust * violation / max(promised, TINY))
            if violation <= self.rules.enough(objective):
                self.ended = "converged"
        if not math.isfinite(objective):
            self.ended = "non-finite objective"
        self.objective, self.violation = objective, violation

    def evaluate(self):
        """Exact (objective, violation) at the weights: one pass over the corpus."""
        if self.exact is None:
            if self.objective_of is None:
                self.objective_of = Objective(
                    self.corpus, self.features, c2=self.c2, constraints=self.constraints
                )
            value, grad = self.objective_of(self.weights())
            self.passes += 1
            self.exact = self.certified(value, grad)
        return self.exact


def edge_places(corpus, features, width):
    """(start (S+1,), pair_ptr (K+1,), pair): where the pairs of each sequence are remembered; the label pairs
    previous * width + next that have a weight, class by class.
    """
    found = []
    for k in range(corpus.n_classes):
        attrs = corpus.class_attr[corpus.class_ptr[k] : corpus.class_ptr[k + 1]]
        rows = [
            slice(features.edge_ptr[b], features.edge_ptr[b + 1]) for b in attrs if b < features.n_edge_attrs
        ]
        keys = [features.edge_prev[row].astype(np.int64) * width + features.edge_next[row] for row in rows]
        found.append(np.unique(np.concatenate([np.zeros(0, np.int64), *keys])))
    sizes, (used_ptr, used) = np.array(list(map(len, found))), used_classes(corpus)
    return offsets(sizes[used])[used_ptr], offsets(sizes), np.concatenate([np.zeros(0, np.int64), *found])


def memory_bytes(corpus, features, *, remembered, vectors, works, per_token):
    """Bytes that a learner will hold which remembers `remembered` numbers for every (token,
    label) and label pair of a sequence.

    vectors : vectors of cells, besides two of weights. works : sets of work arrays. per_token :
        bytes of a token beyond that.
    The layout of the corpus is included (chain/token_layout.py).
    """
    width = row_width(features.n_labels)
    worth, count = dense_attributes(corpus, features)
    n_rows, n_pairs = int(count[worth].sum()), int((count * np.diff(features.node_ptr))[~worth].sum())
    n_dense, entry = int(worth.sum()) * width, 16 if len(corpus.attr_val) else 8
    n_edges = int(edge_places(corpus, features, width)[0][-1])
    return int(
        8 * remembered * (corpus.n_tokens * features.n_labels + n_edges)
        + entry * (n_rows + n_pairs)
        + per_token * corpus.n_tokens
        + 8 * (vectors * (features.n_features + n_dense) + 2 * features.n_features)
        + n_dense
        + 8 * works * (5 * corpus.longest * width + 4 * corpus.n_classes * width**2)
    )
