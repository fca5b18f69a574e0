"""Chapter 16: labels that are partly known. F1 against the share of labels kept, for five ways to learn.

Of the same sentences labels are hidden, in four ways. Every fit is L-BFGS from zero to one stopping rule, at
most MOST iterations. Every arm takes the c2 that does best on the same held-out sentences, which have all
labels: of the three in the middle of C2, and of those beside the best one for as long as it is an outermost
one tried. Self-training starts from the known stretches: runs of known labels, each a sequence of its own.
"""

from functools import cache

import numpy as np

from crfbook import Objective, minimize
from crfbook.chain.inference import decode
from crfbook.chain.partial import partial_objective
from crfbook.data.constraints import constraints_from
from crfbook.data.corpus import take_sequences
from crfbook.data.features import observed
from crfbook.data.partial import Partial, hold
from crfbook.evaluation import chunk_report, paired_test

from .harness import study, timed
from .records import each, rounded
from .work import Held, dataset, set_up

CORPORA = {"CoNLL-2000 chunks": "chunking", "Spanish names": "ner"}
WAYS = {  # which labels are kept, with each of these probabilities
    "all labels": (1.0,),  # of every arm: the ceiling
    "tokens": (0.1, 0.3, 0.6),  # that of a token
    "entities": (0.1, 0.3, 0.6),  # all of an entity, or the O of a token
    "no O": (0.5, 1.0),  # all of an entity, never an O
    "half complete": (0.5, 1.0),  # every other sentence has all its labels, the rest is "no O"
}
O_HIDDEN = "no O", "half complete"
N_TRAIN, N_HELD, SEEDS, SAMPLES = 1000, 300, 2, 10_000  # sentences; ways to hide; shuffles of a test
C2, TOL, MOST, ROUNDS = (6.0, 1.2, 0.25, 0.05, 0.01, 0.002, 0.0004, 0.00008), 1e-3, 1000, 3


class Bench:
    """Sentences of a corpus to learn from, drawn once, held-out ones, and the test part."""

    def __init__(self, corpus):
        self.setup = set_up(CORPORA[corpus])
        self.names, whole = self.setup.encoder.labels_, self.setup.corpus
        order = np.random.default_rng(16).permutation(whole.n_sequences)[: N_TRAIN + N_HELD]
        self.train, held = (take_sequences(whole, some) for some in np.split(order, [-N_HELD]))
        held = Held(held, self.setup.encoder.decode(held.labels, held.seq_ptr))
        self.parts = {"held": held, "test": list(self.setup.parts.values())[-1]}
        self.limits, self.o = constraints_from("BIO", self.names), self.names.index("O")
        self.inside, self.sentence = np.char.startswith(self.names, "I-"), self.train.sequence

    def kept(self, way, share, seed):
        """bool (N,): labels that are known."""
        y, rng = self.train.labels, np.random.default_rng([seed, list(WAYS).index(way)])
        unit = np.arange(len(y)) if way == "tokens" else np.cumsum(~self.inside[y])
        kept = (rng.random(len(y) + 1) < share)[unit] & ((y != self.o) | (way not in O_HIDDEN))
        return kept | (way == "half complete") & (self.sentence % 2 == 0)

    def known(self, kept):
        """`Held` of the sentences to learn from."""
        sets = np.vstack([np.eye(len(self.names)), np.ones(len(self.names))]).astype(bool)
        row = np.where(kept, self.train.labels, len(self.names)).astype(np.int32)
        return hold(self.train, self.limits, Partial(row, sets))

    def fit(self, c2, corpus, *held, **limits):
        """(features, w, status, iterations)."""
        features, how = observed(corpus, *self.setup.sizes), {"constraints": self.limits._replace(**limits)}
        objective = (partial_objective if held else Objective)(corpus, *held, features, c2=c2, **how)
        found = minimize(objective, np.zeros(features.n_features), c2=c2, tol=TOL, max_iterations=MOST)
        return features, found.w, found.status, found.n_iter

    def labels(self, part, fit):
        """Lists of lists; all O where nothing was learned."""
        corpus = self.parts[part].corpus
        y = decode(corpus, *fit[:2], self.limits) if fit else np.full(corpus.n_tokens, self.o)
        return self.setup.encoder.decode(y, corpus.seq_ptr)

    def complete(self, kept, c2):
        """On the sentences that have all their labels; None: there are none."""
        whole = np.flatnonzero(np.bincount(self.sentence, ~kept, self.train.n_sequences) == 0)
        return self.fit(c2, take_sequences(self.train, whole)) if len(whole) else None

    def stretches(self, kept, c2):
        """A stretch may begin with I-."""
        cut = np.flatnonzero(np.diff(2 * self.sentence + kept, prepend=-1))
        runs = self.train._replace(seq_ptr=np.append(cut, len(kept)))
        runs = take_sequences(runs, np.flatnonzero(kept[cut]))
        return self.fit(c2, runs, start=np.ones_like(self.limits.start))

    def unknown_is_o(self, kept, c2):
        """An I- that has nothing to continue becomes B-."""
        y = np.where(kept, self.train.labels, self.o).astype(np.int32)
        alone = self.inside[y] & (np.append(self.o, y[:-1]) == self.o)
        y[alone] = [self.names.index("B-" + self.names[label][2:]) for label in y[alone]]
        return self.fit(c2, self.train._replace(labels=y))

    def self_training(self, kept, c2):
        """Rounds: the most probable labels given what is known, and a fit to them."""
        fit, held = self.stretches(kept, c2), self.known(kept)
        for _ in range(ROUNDS):
            y = decode(self.train._replace(label_set=held.row), *fit[:2], held.limits(self.limits))
            fit = self.fit(c2, self.train._replace(labels=y))
        return fit

    def marginal(self, kept, c2):
        masked = self.train._replace(labels=np.where(kept, self.train.labels, -1))
        return self.fit(c2, masked, self.known(kept))

    def best(self, arm, kept):
        """({column: value}, labels of the test part) of the model that does best on the held-out part."""
        tried, seconds, i = {}, 0.0, len(C2) // 2 - 1  # place in C2: (F1, fit)
        while new := {i - 1, i, i + 1} & set(range(len(C2))) - tried.keys():
            for j in sorted(new):
                fit, spent = timed(arm, self, kept, C2[j])
                seconds += spent
                tried[j] = 100 * chunk_report(self.parts["held"].gold, self.labels("held", fit)).f1, fit
            i = max(sorted(tried), key=lambda j: tried[j][0])  # the largest c2 of equals
        (f1, fit), grid = tried[i], {"c2": C2[i], "tried": len(tried)}
        (end, n), guess = fit[2:] if fit else ("no sentence", 0), self.labels("test", fit)
        return grid | {"held-out F1": f1, "end": end, "iterations": n, "seconds": seconds}, guess


ARMS = {
    "complete sentences": Bench.complete, "known stretches": Bench.stretches,
    "unknown is O": Bench.unknown_is_o, "self-training": Bench.self_training,
    "marginal likelihood": Bench.marginal,
}  # fmt: skip
bench_of = cache(Bench)


def arm_rows(corpus, way, share, seed):
    """A row for each arm, with its test against marginal likelihood on the test part."""
    bench, rows = bench_of(corpus), []
    kept, gold = bench.kept(way, share, seed), bench.parts["test"].gold
    found = {name: bench.best(arm, kept) for name, arm in ARMS.items()}
    for name, (about, guess) in found.items():
        test = paired_test(gold, found["marginal likelihood"][1], guess, n_samples=SAMPLES)
        about |= {"F1": 100 * test.value_b, "gain": 100 * test.difference, "p": test.p_value}
        rows.append({"arm": name, "known": float(kept.mean()), **about})
    return rows


@study("16_arms.csv", frozen=("lbfgs", "objective, auto", "decoding, dense"))
def partial_labels(corpora=tuple(CORPORA), seeds=SEEDS):
    """F1 on two corpora whose labels are hidden in four ways, and paired tests; half an hour."""
    one = [(c, w, p, n) for c in corpora for n in range(seeds) for w, some in WAYS.items() for p in some]
    # where all is kept, there is one draw
    key = [dict(zip(("corpus", "way", "share", "seed"), k, strict=True)) for k in one if k[2] < 1 or not k[3]]
    yield "16_arms.csv", each(rounded(arm_rows), key), [dataset(CORPORA[name]) for name in corpora]
