"""How a dynamic CRF is computed with: engines, the choice between them, and what training minimises.

elimination    chains with potentials between neighbouring labels, by matrix products        exact
junction       junction trees: any template whose largest clique is small enough             exact
block          belief propagation, each chain at once                                        approximate
sweep, random, tree, residual, sync    belief propagation message by message                 approximate
mean-field     chains given the marginals of the others: a lower bound of log Z              approximate

Each engine is a form behind the port of chain/forms.py. `Propagation` sends messages along any template, and
along links between tokens that are far apart (skip chains). A batch of sentences is one graph; sentences that
have converged are left alone. `DynamicObjective` is the objective over these forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import number, one_of
from crfbook.chain.objective import check_weights, l2_penalty
from crfbook.chain.partial import Difference, Lattice
from crfbook.data.corpus import Corpus, plain_transitions, take_sequences
from crfbook.data.features import FeatureSet
from crfbook.dynamic.blocks import ChainBlocks, block_chains
from crfbook.dynamic.elimination import Elimination, elimination_rows
from crfbook.dynamic.graphs import by_sentence, layout_graph, links_of_batches, rows_counts, rows_scores
from crfbook.dynamic.junction import LIMIT, JunctionTrees, tree_plan
from crfbook.dynamic.layout import gold_counts, instances, known_sets
from crfbook.dynamic.loopy import BLOCKS, OPTIONS, SCHEDULES, Options, propagate

if TYPE_CHECKING:
    from crfbook.dynamic.layout import TemplateLayout


class Propagation(JunctionTrees):
    """Beliefs in the place of marginals, the Bethe approximation in that of log Z.

    options : of `check_options`. Random orders are those of (seed, batch).
    links : {number of a table in layout.tables: int64 (E, 2), tokens of the corpus}. Such a table joins the
        label of chain at[0] of the first token with that of chain at[1] of the second one. Its scores read
        the attributes of the second token.
    """

    def __init__(self, problem, layout, label_sets, limit, options, links=None):
        super().__init__(problem, layout, label_sets, limit)
        self.options = options
        self.links = links_of_batches(problem.packing, links)

    def begin(self):
        return np.zeros(self.layout.n_tables)

    def batch_sums(self, batch, work, log_z, sums):
        b = batch.place[0]
        rows = layout_graph(self.layout, by_sentence(batch.step_ptr), len(log_z), self.links[b])
        scores = rows_scores(self.layout, rows, self.tables, batch.log_node)
        found = propagate(rows.graph, *scores, self.options, batch.weight, stream=b)
        log_z[:] = found.log_z
        rows_counts(self.layout, rows, batch.weight, found.p_var, found.p_table, batch.p_node, sums)
        failed = len(log_z) - np.count_nonzero(found.converged)
        self.stats[self.shard_of[b]] += len(log_z), failed, found.sweeps.sum(), found.n_messages
        return False

    def finish(self, sums, part):
        part += sums


EXACT = {"elimination": Elimination, "junction": JunctionTrees}
FORMS = {**EXACT, **dict.fromkeys(BLOCKS, ChainBlocks), **dict.fromkeys(SCHEDULES, Propagation)}
ROWS = {"junction": 512, "block": 1024, "mean-field": 1024}  # of a batch


def check_engine(layout, corpus, engine, limit=LIMIT):
    """The name of an engine; ValueError where it cannot do this template, before a table is made.

    engine : a name of `FORMS`; "exact" is the faster exact one that can, "auto" an approximate one where none
    can. Of junction trees, those of all lengths in the corpus are planned: that of a long sequence can have a
    wider clique. Each component has its own engine; where they differ, all names come back, ", " between.
    """
    if layout.components:
        pairs = component_engines(layout, engine)
        found = [check_engine(part.layout, corpus, name, limit) for part, name in pairs]
        return found[0] if len(set(found)) == 1 else ", ".join(found)
    if engine == "auto":
        try:
            return check_engine(layout, corpus, "exact", limit)
        except ValueError:
            return "tree" if block_chains(layout) else "block"
    cells = int(np.prod(layout.sizes, dtype=np.float64)) if layout.axes else 0
    if engine == "exact":
        engine = "elimination" if 0 < cells <= limit else "junction"
    if engine == "elimination" and cells > limit:
        raise ValueError(
            f"engine='elimination': expected at most {limit:,} joint labels of all chains, got {cells:,}"
        )
    if engine == "elimination" and not layout.axes:
        raise ValueError(
            "engine='elimination': expected potentials between neighbouring labels of chains, got a template "
            "with others; 'junction' takes any"
        )
    if engine == "junction":
        for n_steps in np.unique(corpus.lengths[corpus.lengths > 0])[::-1].tolist():
            tree_plan(layout, n_steps, limit)
    if engine in BLOCKS and (why := block_chains(layout, engine)):
        raise ValueError(f"inference={engine!r}: {why}; 'tree' takes any template")
    return engine


def component_engines(layout, engine):
    """[(component, name of its engine), ...], from what `check_engine` says; ValueError for a wrong number of
    names.
    """
    names, n = engine.split(", "), len(layout.components)
    if n and len(names) not in (1, n):
        raise ValueError(f"engine: expected one name, or one for each of {n} components, got {engine!r}")
    return list(zip(layout.components, names * n if len(names) == 1 else names, strict=n > 0))


def is_exact(engine):
    """Are all engines exact that `check_engine` names?"""
    return all(name in EXACT for name in engine.split(", "))


def check_stored(layout, engine):
    """`engine`; ValueError for what `check_engine` cannot have said of a template."""
    pairs = [(part.layout, name) for part, name in component_engines(layout, str(engine))]
    for own, name in pairs or [(layout, engine)]:
        refused = {"elimination": not own.axes, "junction": any(table.linked for table in own.tables)}
        refused |= {block: block_chains(own, block) for block in BLOCKS}
        one_of("engine", name, [able for able in FORMS if not refused.get(able)])
    return engine


def engine_cost(layout, corpus, engine, limit=LIMIT):
    """What inference costs, in one line, from sizes alone."""
    if layout.components:
        pairs = component_engines(layout, engine)
        return "; ".join(engine_cost(part.layout, corpus, name, limit) for part, name in pairs)
    sizes = layout.sizes
    joint = f"{' x '.join(map(str, sizes))} labels"
    if engine == "elimination":
        steps = int(np.prod(sizes, dtype=np.int64)) * sum(sizes)
        return f"{joint}: elimination, {steps:,} products a token forward"
    if engine == "junction":
        plan = tree_plan(layout, max(1, corpus.longest), limit)
        cells = f"cliques of up to {int(plan.largest):,} cells, {int(plan.cells):,} for the longest sequence"
        return f"{joint}: junction trees, {cells}"
    pairs = sum(2 * table.size for table in layout.tables if len(table.at) > 1)
    return f"{joint}: {engine}, an approximation, about {pairs:,} products a token and sweep"


def make_form(problem, layout, label_sets, limit, engine, options, links):
    """The form of an engine. options : of `check_options`; links : of `linked_tables`; for approximations."""
    form = FORMS[engine]
    if engine in EXACT:
        return form(problem, layout, label_sets, limit)
    return form(problem, layout, label_sets, limit, options._replace(schedule=engine), links)


def batch_rows(layout, engine):
    """Rows of a batch."""
    return elimination_rows(layout) if engine == "elimination" else ROWS.get(engine, 4096)


def linked_tables(layout, corpus):
    """{number of a table: int64 (E, 2), tokens}: pairs of linked tokens, for cliques that join them."""
    return {i: corpus.linked for i, table in enumerate(layout.tables) if table.linked}


class JointObjective(Lattice):
    """`Lattice` over the joint labels that label sets leave."""

    _forms: ClassVar = {"batched": make_form}

    def __init__(self, corpus, features, layout, counts, label_sets, n_threads, limit, engine, options):
        self._options = {
            "layout": layout, "label_sets": label_sets, "limit": limit, "engine": engine, "options": options,
            "links": linked_tables(layout, corpus),
        }  # fmt: skip
        rows = batch_rows(layout, engine)
        super().__init__(corpus, features, counts, n_threads=n_threads, batch_tokens=rows, form="batched")

    def _make_bounds(self):
        return None  # a form makes them from the weights

    def work_arrays(self):
        """What elimination writes on its way, of one thread, after a first call."""
        _, pool = self._made["batched"]
        return pool.items[0][0].own

    @property
    def stats(self):
        """int64 (4,): sequences, those that did not converge, sweeps, messages, in the last evaluation."""
        form, _ = self._made["batched"]
        return form.stats.sum(axis=0)

    def without_labelling(self):
        """Numbers of the sequences all of whose labellings are forbidden. Cost: an evaluation."""
        self._sums(np.zeros(self.features.n_features), "counts")
        return self._packing.sequence[~np.isfinite(self._log_z)]


class Likelihood(NamedTuple):
    """The part of `DynamicObjective` that one component has: log Z less log Z of the known labels."""

    place: np.ndarray | slice  # of its weights among all
    free: JointObjective  # with the counts of sequences all of whose labels are known
    known: JointObjective | None  # of the other sequences, held to the labels that are known


def _likelihood(corpus, labels, layout, features, place, engine, n_threads, limit, options):
    """`Likelihood`; ValueError where the constraints leave the known labels of a sequence no probability."""
    partial = np.unique(corpus.sequence[(labels < 0).any(axis=1)])
    held = np.isin(corpus.sequence, partial)
    whole = take_sequences(corpus, np.setdiff1d(np.arange(corpus.n_sequences), partial))
    counts = gold_counts(layout, whole, features, labels[~held])
    more = n_threads, limit, engine, options
    none = np.zeros((0, layout.n_cells), bool)
    free = JointObjective(corpus, features, layout, counts, none, *more)
    if not len(partial):
        return Likelihood(place, free, None)
    which, sets = known_sets(layout, labels[held])
    part = take_sequences(corpus, partial)._replace(label_set=which)
    known = JointObjective(part, features, layout, np.zeros(len(counts)), sets, *more)
    if len(bad := known.without_labelling()):
        raise ValueError(
            f"sequence {partial[bad.min()]}: the constraints forbid every labelling with its known labels"
        )
    return Likelihood(place, free, known)


class DynamicObjective:
    """Penalised negative log-likelihood of labels, and its gradient; call it with weights.

        value(w) = sum_i weight_i (log Z_i - log Z_i(known labels)) + c2 |w|^2        in nats

    log Z(known) is the score of the labels where all are known; where some are not, it sums over them
    (marginal likelihood), and the objective is no longer convex. Independent components each have an engine;
    their values add up.

    Parameters
    ----------
    corpus : Corpus; its labels and transitions are not read.
    labels : int32 (N, m), -1: unknown.
    layout, features : of `lay_out_template` and `dynamic_features`.
    c2, n_threads : as `Objective`.
    engine : a name of `FORMS`, or "exact": elimination where possible, else junction trees.
    limit : cells of the largest clique of a junction tree.
    options : of `check_options`, for approximations.

    Of an approximation, log Z is Bethe's (mean field: a lower bound), and the gradient is the value's where
    messages have converged: `stats` says how many have not.

    Raises ValueError, naming the sequence, where the constraints leave its labels no probability, and for a
    template that is too wide (its cost, and what else there is).
    """

    def __init__(
        self, corpus: Corpus, labels: ArrayLike, layout: TemplateLayout, features: FeatureSet, *,
        c2: float = 0.0, n_threads: int = 1, engine: str = "exact", limit: int = LIMIT,
        options: Options = OPTIONS,
    ) -> None:  # fmt: skip
        self.c2, self.features = number("c2", c2), features
        engine = check_engine(layout, corpus, engine, limit)
        corpus = plain(corpus)
        check_known(layout, corpus, labels)
        pieces = [(labels, layout, features, slice(None), engine)]
        if layout.components:
            pieces = [
                (labels[:, part.chains], part.layout, *part.features(features), name)
                for part, name in component_engines(layout, engine)
            ]
        self.parts = [_likelihood(corpus, *piece, n_threads, limit, options) for piece in pieces]

    @property
    def stats(self) -> np.ndarray:
        """int64 (4,): sequences, those that did not converge, sweeps and messages of all, in the last
        evaluation of an approximation.
        """
        return sum(loss.stats for part in self.parts for loss in part[1:] if loss is not None)

    @property
    def unconverged(self) -> tuple[int, int]:
        """(sequences, how many of them did not converge). Where some labels are unknown, messages are sent
        twice, with labels known and with none; and in each component: the larger number.
        """
        passes = [loss.stats[:2] for part in self.parts for loss in part[1:] if loss is not None]
        return tuple(np.max(passes, axis=0).tolist())

    @property
    def is_convex(self) -> bool:
        """Whether all labels are known."""
        return all(part.known is None for part in self.parts)

    def __call__(self, w: ArrayLike) -> tuple[float, np.ndarray]:
        """(value, grad (F,)) at the weights w (F,); value in nats, grad a new array."""
        w = check_weights(w, self.features.n_features)
        in_all, slopes = l2_penalty(self.c2, w), 2.0 * self.c2 * w
        for place, *pair in self.parts:
            value, grad = Difference(*pair)(w[place])
            in_all += value
            slopes[place] += grad
        return in_all, slopes


def plain(corpus):
    """The corpus with one class of transitions, and one label: a template has its own."""
    labels, label_set = np.zeros(corpus.n_tokens, np.int32), np.zeros(0, np.int32)
    return plain_transitions(corpus)._replace(labels=labels, label_set=label_set)


def check_known(layout, corpus, labels):
    """ValueError naming the first token whose known labels a rule, or a constraint, forbids."""
    position, length = corpus.position, np.repeat(corpus.lengths, corpus.lengths)
    for limits, ends, where in (
        (layout.start, position == 0, "first"),
        (layout.end, position == length - 1, "last"),
    ):
        for chain, name in enumerate(layout.chains):
            known = np.where(labels[:, chain] < 0, 0, labels[:, chain])
            bad = ends & (labels[:, chain] >= 0) & ~limits[layout.first[chain] + known]
            if bad.any():
                raise ValueError(
                    f"{corpus.place(int(np.argmax(bad)))}: the constraints forbid its label of {name!r} at "
                    f"the {where} token"
                )
    for table in layout.tables:
        if table.allowed is not None:
            tokens, cells = instances(table, corpus, labels)
            bad = tokens[~table.allowed.reshape(-1)[cells]]
            if len(bad):
                raise ValueError(
                    f"{corpus.place(int(bad.min()))}: the constraints forbid its labels of {table.name}"
                )
