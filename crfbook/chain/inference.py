"""What a trained chain says about a corpus: best labels, marginals, log-probabilities. Arrays, no strings.

Common arguments: corpus (S sequences, N tokens), features (L labels, F weights), w (F,), constraints (or
None). A stretch of whole sequences is computed at a time, so that memory does not grow with the corpus. All
functions raise ValueError for weights that are not finite. They raise it, too, for a sequence all of whose
paths are forbidden, and name it.

`ready_model` is a feature set with its weights, and `stretch_scores` gives its scores of a stretch. Models
with scores of their own (models/directed.py) give them to `in_stretches`, `best_paths` and `log_form`.

Some sequences have scores so large that forms of inference would lose the digits of probabilities. All forms
hand them to `LogChain`, which bounds how far rounding may have moved its probabilities. A sequence whose
bound exceeds MOST_OFF is refused in one sentence.
"""

from contextlib import suppress
from functools import partial
from itertools import pairwise
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from crfbook.chain.forms import Edges, log_edge, padded_edges, table_edges
from crfbook.chain.forward_backward import (
    edge_marginal_log,
    edge_marginal_scaled,
    exp_nodes,
    forward_backward_log,
    forward_backward_scaled,
    node_marginals_log,
)
from crfbook.chain.likelihood import make_work, open_rows, queued_or_new
from crfbook.chain.numpy_form import (
    LARGE,
    MOST_OFF,
    LogChain,
    ScaledBatch,
    Steps,
    add_attribute_scores,
    edge_scores,
    viterbi_by_steps,
)
from crfbook.chain.objective import LOG_LOSS_FORMS, check_paths, check_weights
from crfbook.chain.packing import (
    FEW_CLASSES,
    batch_rows,
    many_weights,
    n_stretches,
    pack,
    padded,
    padded_bounds,
)
from crfbook.chain.scores import fill_dense, list_scores
from crfbook.chain.sparse.choice import FormChooser, decoding_form, is_tiny
from crfbook.chain.sparse.default import default_viterbi_many
from crfbook.chain.sparse.potentials import (
    NodeLists,
    SparseEdges,
    SparseScores,
    Tokens,
    default_scores,
    default_work,
    sparse_scores,
)
from crfbook.chain.sparse.viterbi import sparse_viterbi_many
from crfbook.chain.viterbi import decode_sequences, viterbi_tables
from crfbook.data.constraints import Bounds, bounds_of, check_label_set
from crfbook.data.corpus import (
    owners,
    place_of,
    plain_transitions,
    ragged_index,
    slice_sequences,
    take_sequences,
    without_attributes,
)
from crfbook.data.features import FeatureSet, find, from_keys
from crfbook.data.partial import Partial, hold
from crfbook.data.vocabulary import Numbering
from crfbook.training.threads import one_blas_thread, run_tasks

DENSE_BYTES = 1 << 21  # dense copies of frequent rows of weights take at most this


class _Model(NamedTuple):
    """A feature set with its weights: potentials, and dense copies of frequent rows of weights."""

    features: FeatureSet
    w: np.ndarray  # (F,)
    bounds: Bounds  # of M labels
    edges: Edges | SparseEdges | SparseScores | np.ndarray | None
    dense: np.ndarray  # (H, M or L); H may be 0
    dense_of: np.ndarray  # int32 (A',): dense row of attribute a < A', or -1
    tiny: bool  # no kernels
    may_overflow: bool  # weights or values so large that sums must be looked at


def ready_model(corpus, features, w, constraints, transitions=None, tiny=None, padding=True):
    """`_Model` for a corpus, with dense copies if the corpus is large enough to repay them.

    transitions : (features, w, class_ptr, class_attr, bounds) -> edges; None: they are not needed.
    tiny : True: no kernels; None: as `is_tiny` says.
    padding : True: labels are padded to vector registers.
    """
    tiny = is_tiny(corpus, features) if tiny is None else tiny
    w = check_weights(w, features.n_features)
    check_label_set(corpus, constraints)
    make_bounds = padded_bounds if padding else bounds_of
    edges, bounds = None, make_bounds(constraints, features.n_labels)
    if transitions is not None:
        with one_blas_thread():
            edges = transitions(features, w, corpus.class_ptr, corpus.class_attr, bounds)
    n_labels = features.n_labels
    # Ids fall in frequency, so the rows worth copying are among the first ones.
    head = 0 if tiny else min(features.n_attrs, corpus.n_tokens // 4, DENSE_BYTES // (8 * n_labels))
    rows = np.flatnonzero(many_weights(features)[:head])
    dense_of = place_of(rows, head)
    dense = np.zeros((len(rows), n_labels))
    if not tiny:
        fill_dense(w, np.arange(len(rows) + 1), rows, features.node_ptr, features.node_label, dense)
    reach = float(np.abs(w).max(initial=0.0)) * max(1.0, float(np.abs(corpus.attr_val).max(initial=0.0)))
    may_overflow = not reach * (len(corpus.attr_idx) + 1.0) < 1e300
    return _Model(features, w, bounds, edges, dense, dense_of, tiny, may_overflow)


def stretches(seq_ptr, n_labels):
    """[(slice of sequences, slice of tokens)]: neighbouring whole sequences, about as many tokens in each as
    `n_stretches` says.
    """
    n = n_stretches(seq_ptr[-1], n_labels)
    cuts = np.searchsorted(seq_ptr, seq_ptr[-1] * np.arange(1, n) / n)
    cuts = np.unique(np.concatenate([[0], cuts, [len(seq_ptr) - 1]]))
    return [
        (slice(int(a), int(b)), slice(int(seq_ptr[a]), int(seq_ptr[b])))
        for a, b in zip(cuts[:-1], cuts[1:], strict=True)
    ]


def in_stretches(corpus, n_labels, scores, call, n_threads=1):
    """[call(log_node, edge_class, seq_ptr, sequences, tokens)] of all `stretches` of a corpus.

    scores : (slice of sequences, slice of tokens) -> log_node (n, >= L). seq_ptr counts from the first of
        these tokens.
    """
    cuts = stretches(corpus.seq_ptr, n_labels)

    def task(i):
        sequences, tokens = cuts[i]
        seq_ptr = corpus.seq_ptr[sequences.start : sequences.stop + 1] - tokens.start
        return call(scores(sequences, tokens), corpus.edge_class[tokens], seq_ptr, sequences, tokens)

    return run_tasks(task, len(cuts), n_threads)


def best_paths(corpus, n_labels, scores, search, n_threads=1):
    """(path int32 (N,), score (S,), what each search returned): search(log_node, edge_class, seq_ptr, path,
    score) on all stretches, see `in_stretches`.
    """
    path, score = np.empty(corpus.n_tokens, np.int32), np.zeros(corpus.n_sequences)

    def call(log_node, edge_class, seq_ptr, sequences, tokens):
        return search(log_node, edge_class, seq_ptr, path[tokens], score[sequences])

    return path, score, in_stretches(corpus, n_labels, scores, call, n_threads)


def add_scores(corpus, model, tokens, log_node):
    """log_node (n, >= L) += scores of the attributes of `tokens` int64 (n,).

    Raises ValueError for a sum that is +inf or nan: a decoder would not choose that label, without a word.
    """
    features = model.features
    if model.tiny:
        with np.errstate(over="ignore", invalid="ignore"):
            add_attribute_scores(corpus, features, model.w, tokens, log_node)
    else:
        lists = features.node_ptr, features.node_label, model.dense, model.dense_of
        list_scores(model.w, *lists, tokens, corpus.attr_ptr, corpus.attr_idx, corpus.attr_val, log_node)
    if model.may_overflow:
        bad = tokens[~(log_node < np.inf).all(axis=1)]
        if len(bad):
            raise ValueError(
                f"{corpus.place(bad.min())}: expected scores within float64, "
                "got a sum of weights that exceeds it"
            )


def stretch_scores(corpus, model, sequences, tokens):
    """log_node (n, M) of neighbouring sequences with start and end constraints, padding labels at -inf."""
    bounds = model.bounds
    seq_ptr = corpus.seq_ptr[sequences.start : sequences.stop + 1] - tokens.start
    filled = seq_ptr[:-1] < seq_ptr[1:]
    log_node = np.empty((tokens.stop - tokens.start, len(bounds.middle)))
    log_node[:] = bounds.middle
    log_node[seq_ptr[:-1][filled]] = bounds.start
    log_node[seq_ptr[1:][filled] - 1] += bounds.end
    if len(corpus.label_set):
        log_node += bounds.label_sets[corpus.label_set[tokens]]
    add_scores(corpus, model, np.arange(tokens.start, tokens.stop), log_node)
    return log_node


def dense_scores(features, w, class_ptr, class_attr, bounds):
    """log_edge (K, M, M) for decoding, which reads no exponentials."""
    return padded_edges(log_edge(features, w, class_ptr, class_attr), bounds)


def _dense_viterbi(log_node, tables, n_labels, *arguments):
    decode_sequences(log_node, *tables, *arguments)


DECODERS = {  # form: potentials from the weights, and Viterbi with them
    "dense": (dense_scores, _dense_viterbi),
    "sparse": (sparse_scores, sparse_viterbi_many),
    "numpy": (edge_scores, viterbi_by_steps),
}


def decode(corpus, features, w, constraints=None, n_threads=1, form="auto", rewards=None):
    """The most probable labels, int32 (N,); ties go to the smallest label at every step (Viterbi).

    form : "dense", "sparse", "default", "numpy", or "auto": what takes less time, see chain/sparse/choice.py.
        All find the same path.
    rewards : None, or (N, L), added to the scores of nodes; "dense" and "numpy" alone read them.
    """
    name = decoding_form(form, corpus, features, w, constraints)
    if name == "default":
        return _decode_by_default(corpus, features, w, constraints, n_threads)[0]
    potentials, viterbi = DECODERS[name]
    model = ready_model(corpus, features, w, constraints, potentials, name == "numpy")
    n_labels = features.n_labels
    edges = viterbi_tables(model.edges, corpus.n_tokens) if name == "dense" else model.edges

    def scores(sequences, tokens):
        log_node = stretch_scores(corpus, model, sequences, tokens)
        if rewards is not None:
            log_node[:, :n_labels] += rewards[tokens]
        return log_node

    def search(log_node, *arguments):
        viterbi(log_node, edges, n_labels, *arguments)

    path, score, _ = best_paths(corpus, n_labels, scores, search, n_threads)
    check_paths(score, np.arange(len(score)), constraints)
    return path


def decode_posterior(corpus, features, w, constraints=None, n_threads=1):
    """The labels that the constraints allow with the largest expected number of right tokens, int32 (N,):
    Viterbi with marginals in the place of scores. Without constraints each token has its most probable label.
    """
    p_node = node_marginals(corpus, features, w, constraints, n_threads)
    form, none = "numpy" if is_tiny(corpus, features) else "dense", np.zeros(0, np.int64)
    bare = without_attributes(plain_transitions(corpus))
    no_weights = from_keys(features.n_labels, 0, 1, none, none)
    return decode(bare, no_weights, np.zeros(0), constraints, n_threads, form, p_node)


def _decode_by_default(corpus, features, w, constraints, n_threads):
    """(`decode`, counts as default.py has them int64 (4,)): transitions as a default and stored pairs."""
    model = ready_model(corpus, features, w, constraints, default_scores, False, padding=False)
    scores, bounds, number = model.edges, model.bounds, np.arange(corpus.n_tokens)
    attributes = corpus.attr_ptr, corpus.attr_idx, corpus.attr_val
    tokens = Tokens(number, corpus.seq_ptr, *attributes, corpus.edge_class, corpus.label_set)
    limits = bounds.start, bounds.middle, bounds.end, bounds.label_sets
    lists = model.w, features.node_ptr, features.node_label, model.dense, model.dense_of
    nodes = NodeLists(*lists, *limits, np.array([model.may_overflow]))
    path, score = np.empty(corpus.n_tokens, np.int32), np.zeros(corpus.n_sequences)
    cuts, works, seen = stretches(corpus.seq_ptr, features.n_labels), SimpleQueue(), np.zeros(4, np.int64)

    def task(i):
        work = queued_or_new(works, partial(default_work, scores))
        first, stop, counts = cuts[i][0].start, cuts[i][0].stop, np.zeros(4, np.int64)
        default_viterbi_many(first, stop, tokens, nodes, scores, work, path, score, counts)
        works.put(work)
        seen[:] += counts

    run_tasks(task, len(cuts), n_threads)
    for i in np.flatnonzero(np.isnan(score))[:1].tolist():  # says which token leaves float64
        stretch_scores(corpus, model, slice(i, i + 1), slice(*corpus.seq_ptr[i : i + 2].tolist()))
    check_paths(score, np.arange(len(score)), constraints)
    return path, seen


def node_marginals(corpus, features, w, constraints=None, n_threads=1, form="auto"):
    """p_node (N, L): probability that token t has label y, given its sequence.

    form : "batched", "sparse", "default" (plain transitions), "numpy" or "auto".
    """
    out = np.empty((corpus.n_tokens, features.n_labels))
    _forward_backward(corpus, features, w, constraints, n_threads, out, form)
    return out


def log_partition(corpus, features, w, constraints=None, n_threads=1, form="auto"):
    """log Z of every sequence, (S,) in nats; 0 for a sequence of length 0. form: see `node_marginals`."""
    return _forward_backward(corpus, features, w, constraints, n_threads, None, form)


def log_proba(corpus, features, w, constraints=None, n_threads=1):
    """log p(labels | x) of every sequence, (S,) in nats; -inf where the constraints forbid the labels.

    Raises ValueError for a token without label.
    """
    log_z = log_partition(corpus, features, w, constraints, n_threads)
    with np.errstate(over="ignore"):  # exp(-1e308) is 0
        out = sequence_scores(corpus, features, w, constraints) - log_z
    for i in large_sequences(corpus, features, w):
        labels = corpus.labels[slice(*corpus.seq_ptr[i : i + 2])]
        out[i] = path_log_proba(i, log_chain(i, corpus, features, w, constraints), labels)
    return out


def span_log_proba(corpus, features, w, spans, constraints=None, n_threads=1):
    """log p(y_first = labels[0], y_(first+1) = labels[1], ... | x) of each span, (n,) in nats; -inf where it
    is forbidden. Pairs of labels are spans, too: L^2 numbers a token may be too many.

    spans : n triples (sequence, first token in it, labels): for each token a label id, or several, of which
        it has one. Each takes two forward-backward passes over its sequence: log Z of the labellings that
        have the span, less log Z of all.
    Raises ValueError for a span that is not in its sequence, and for an unknown label.
    """
    n_labels = features.n_labels
    for i, (s, first, labels) in enumerate(spans):
        n = int(corpus.lengths[s]) if 0 <= s < corpus.n_sequences else 0
        if not (0 <= first < first + len(labels) <= n):
            got = f"{len(labels)} from token {first} on"
            raise ValueError(f"span {i}: expected some of the {n:,} tokens of sequence {s}, got {got}")
        if not all(((ids := np.atleast_1d(y)) >= 0).all() and (ids < n_labels).all() for y in labels):
            raise ValueError(f"span {i}: expected label ids in 0..{n_labels - 1}, got {list(labels)}")
    part = take_sequences(corpus, np.array([span[0] for span in spans], np.int64))
    row, number = np.zeros(part.n_tokens, np.int32), Numbering({tuple(range(n_labels)): 0})
    for i, (_, first, labels) in enumerate(spans):
        for t, ids in enumerate(labels, part.seq_ptr[i] + first):
            row[t] = number[tuple(np.atleast_1d(ids).tolist())]
    sets = np.array([np.isin(np.arange(n_labels), ids) for ids in number])
    held = hold(part, constraints, Partial(row, sets))
    limits, own = held.limits(constraints), part._replace(label_set=held.row)
    of_all = log_partition(part, features, w, constraints, n_threads)
    out = np.full(len(spans), -np.inf)
    for i in range(len(spans)):  # one by one: a span that no labelling has makes log Z -inf
        with suppress(ValueError):
            one = slice_sequences(own, i, i + 1)
            out[i] = min(0.0, log_partition(one, features, w, limits, n_threads)[0] - of_all[i])
    for i in large_sequences(part, features, w):
        chain = log_chain(i, part, features, w, constraints)
        out[i] = path_log_proba(spans[i][0], chain, spans[i][2], spans[i][1])
    return out


def sequence_scores(corpus, features, w, constraints=None):
    """Score of the labels of every sequence, (S,) in nats, not normalised; -inf where they are forbidden.

    Raises ValueError for a token without label, naming sequence and token.
    """
    unknown = np.flatnonzero((corpus.labels < 0) | (corpus.labels >= features.n_labels))
    if len(unknown):
        raise ValueError(
            f"{corpus.place(unknown[0])}: expected a label id in 0..{features.n_labels - 1}, "
            f"got {corpus.labels[unknown[0]]}"
        )
    model = ready_model(corpus, features, w, constraints)
    edge = _edge_path_scores(corpus, features, w, constraints)
    for sequences, tokens in stretches(corpus.seq_ptr, features.n_labels):
        log_node = stretch_scores(corpus, model, sequences, tokens)
        edge[tokens] += log_node[np.arange(len(log_node)), corpus.labels[tokens]]
    return np.bincount(corpus.sequence, edge, minlength=corpus.n_sequences)


def node_scores(corpus, features, w):
    """log_node (N, L): summed weights of each token's attributes, in nats, without transitions.

    Raises ValueError, naming sequence and token, for a sum that exceeds float64.
    """
    model = ready_model(corpus._replace(label_set=corpus.label_set[:0]), features, w, None)
    out = np.zeros((corpus.n_tokens, features.n_labels))
    add_scores(corpus, model, np.arange(corpus.n_tokens), out)
    return out


def iter_edge_marginals(corpus, features, w, constraints=None):
    """Yield p_edge (T-1, L, L) of each sequence: [t, yp, y] = p(y_t = yp, y_{t+1} = y).
    It is (0, L, L) if T < 2.
    """
    given, n_labels = (corpus, features, w, constraints), features.n_labels
    large, tiny = set(large_sequences(corpus, features, w)), is_tiny(corpus, features)
    few = tiny or corpus.n_classes <= FEW_CLASSES
    transitions = edge_scores if tiny else table_edges
    model = ready_model(*given, transitions if few else None, tiny, padding=not tiny)
    marginals = _tiny_edge_marginals if tiny else _edge_marginals
    for i, (start, stop) in enumerate(pairwise(corpus.seq_ptr.tolist())):
        tokens = slice(start, stop)
        log_node = stretch_scores(corpus, model, slice(i, i + 1), tokens)
        edges, edge_class = model.edges, corpus.edge_class[tokens]
        if not few:  # tables of this sequence's classes: no more than what is yielded
            classes, edge_class = np.unique(edge_class, return_inverse=True)
            items, class_ptr = ragged_index(corpus.class_ptr, classes)
            edges = table_edges(features, w, class_ptr, corpus.class_attr[items], model.bounds)
        p_edge = np.zeros((1, n_labels, n_labels))
        if start < stop:
            p_edge, log_z = marginals(log_node, edges, edge_class.astype(np.int32))
            check_paths(np.array([log_z]), np.array([i]), constraints)
        if i in large:
            p_edge = known_well(i, log_chain(i, *given)).p_edge()
        yield np.ascontiguousarray(p_edge[1:, :n_labels, :n_labels])


def _tiny_edge_marginals(log_node, log_edge, edge_class):
    """(p_edge (T, L, L), zeros first; log Z) of one sequence, without kernels."""
    scaled = ScaledBatch(Steps(np.arange(len(log_node) + 1), edge_class, len(log_edge)), log_node, log_edge)
    return scaled.p_edge(), scaled.log_z[0]


def _edge_marginals(log_node, edges, edge_class):
    """(p_edge (T, M, M), zeros first; log Z, or 0.0) of one sequence; the log form where the scaled one is
    not safe.
    """
    n_tokens, width = log_node.shape
    psi_node, alpha, beta = np.empty((3, n_tokens, width))
    scale, p_edge = np.empty(n_tokens), np.zeros((n_tokens, width, width))
    spread = edges.edge_spread[0] + exp_nodes(log_node, psi_node, np.empty(n_tokens))
    if forward_backward_scaled(
        psi_node, edges.psi_edge, edges.psi_edge_t, edge_class, spread, alpha, beta, scale
    ):
        log_z, _, p_edge = log_form(log_node, edges.log_edge, edge_class)
        return p_edge, log_z
    for t in range(1, n_tokens):
        edge_marginal_scaled(t, psi_node, edges.psi_edge, edge_class, alpha, beta, scale, p_edge[t])
    return p_edge, 0.0


def log_form(log_node, log_edge, edge_class, edges=True):
    """(log Z, p_node (T, L), p_edge (T, L, L), zeros first) of one sequence, T >= 1, in logarithms.

    log_node (T, L), log_edge (K, L, L), edge_class int32 (T,). edges : False: p_edge is left 0.
    """
    (n_tokens, width), p_node = log_node.shape, np.empty_like(log_node)
    alpha, beta = np.empty((2, n_tokens, width))
    p_edge = np.zeros((n_tokens if edges else 1, width, width))
    log_z = forward_backward_log(log_node, log_edge, edge_class, alpha, beta)
    node_marginals_log(alpha, beta, log_z, p_node)
    for t in range(1, len(p_edge)):
        edge_marginal_log(t, log_node, log_edge, edge_class, alpha, beta, log_z, p_edge[t])
    return log_z, p_node, p_edge


def _forward_backward(corpus, features, w, constraints, n_threads, p_node, form):
    """log Z (S,); node marginals are written into p_node (N, L) unless that is None."""
    log_z = _forward_backward_by(form, corpus, features, w, constraints, n_threads, p_node)
    for i in large_sequences(corpus, features, w):
        chain = log_chain(i, corpus, features, w, constraints)
        log_z[i] = chain.log_z
        if p_node is not None:
            p_node[slice(*corpus.seq_ptr[i : i + 2])] = known_well(i, chain).p_node
    return log_z


def _forward_backward_by(form, corpus, features, w, constraints, n_threads, p_node):
    name = FormChooser(features, corpus, form, constraints=constraints).choose(w)
    if name == "numpy":
        return _tiny_forward_backward(corpus, features, w, constraints, p_node)
    model = ready_model(corpus, features, w, constraints, LOG_LOSS_FORMS[name].potentials, False)
    unit = corpus._replace(seq_weight=corpus.seq_weight[:0])  # a sequence's weight is not asked for here
    rows, grouped = batch_rows(corpus.n_classes, features.n_labels), True if name == "sparse" else None
    packing = pack(unit, rows, n_shards=1, grouped=grouped)
    kind = LOG_LOSS_FORMS[name].batch
    log_z = np.zeros(len(packing.sequence))
    n_tasks = max(1, min(16, packing.n_batches))

    def task(i):
        work = make_work(packing, padded(features.n_labels))
        work = kind.needs(work, packing, features.n_labels)
        for b in range(i, packing.n_batches, n_tasks):
            tokens, row_set = packing.row_token[packing.rows(b)], packing.row_set[packing.rows(b)]
            part = packing.steps(b), tokens, row_set, work.log_node[: len(tokens)]
            fill = partial(_fill_batch, corpus, model, *part)
            p = kind(b, packing, work).marginals(fill, model.edges, log_z)
            if p_node is not None:
                p_node[tokens] = p[:, : features.n_labels]

    run_tasks(task, n_tasks, n_threads)
    check_paths(log_z, packing.sequence, constraints)
    out = np.zeros(corpus.n_sequences)
    out[packing.sequence] = log_z
    return out


def _tiny_forward_backward(corpus, features, w, constraints, p_node):
    """`_forward_backward` without kernels."""
    model = ready_model(corpus, features, w, constraints, edge_scores, True)
    out = np.zeros(corpus.n_sequences)
    packing = pack(corpus, max(1, corpus.n_tokens), n_shards=1, grouped=False)
    if packing.n_batches:
        scores = stretch_scores(corpus, model, slice(0, corpus.n_sequences), slice(0, corpus.n_tokens))
        steps = Steps(packing.steps(0), packing.row_class, corpus.n_classes)
        with one_blas_thread():
            scaled = ScaledBatch(steps, scores[packing.row_token, : features.n_labels], model.edges)
        check_paths(scaled.log_z, packing.sequence, constraints)
        out[packing.sequence] = scaled.log_z
        if p_node is not None:
            p_node[packing.row_token] = scaled.p_node
    return out


def _fill_batch(corpus, model, step_ptr, tokens, row_set, log_node):
    """log_node (n, M) of the rows of a batch, in place."""
    open_rows(step_ptr, row_set, model.bounds, log_node)
    add_scores(corpus, model, tokens, log_node)


def _edge_path_scores(corpus, features, w, constraints=None):
    """Score of the transition into each token between the labels of the corpus (N,), 0 at first tokens,
    -inf if forbidden.
    """
    n_labels, out = features.n_labels, np.zeros(corpus.n_tokens)
    token = corpus.inner
    before, here = corpus.labels[token - 1].astype(np.int64), corpus.labels[token].astype(np.int64)
    items, ptr = ragged_index(corpus.class_ptr, corpus.edge_class[token])
    owner = owners(ptr)
    key = (corpus.class_attr[items].astype(np.int64) * n_labels + before[owner]) * n_labels + here[owner]
    where, hit = find(features.edge_keys, key)
    np.add.at(out, token[owner[hit]], w[features.n_node + where[hit]])
    if constraints is not None:
        out[token[~constraints.allowed[before, here]]] = -np.inf
    return out


def large_sequences(corpus, features, w, n_parts=1):
    """Numbers of the sequences whose weights add up to more than LARGE: all forms hand them to `log_chain`.

    n_parts : number of scores that a labelling has at a token.
    """
    value, most = (float(np.abs(x).max(initial=1.0)) for x in (corpus.attr_val, w))
    n_edges = int(np.diff(corpus.class_ptr).max(initial=0))
    if most * value * n_parts * (len(corpus.attr_idx) + corpus.n_tokens * n_edges) <= LARGE:
        return []
    node, edge = (float(np.abs(x).max(initial=0.0)) for x in np.split(w, [features.n_node]))
    counts = n_parts * np.diff(corpus.attr_ptr[corpus.seq_ptr])
    with np.errstate(over="ignore"):
        edges = n_parts * corpus.lengths * (edge * n_edges)
        found = np.flatnonzero(counts * min(node * value, 1e308) + edges > LARGE)
    if len(found) and len(corpus.attr_val):  # large values may meet small weights
        part = take_sequences(corpus, found)._replace(label_set=corpus.label_set[:0])
        part = part._replace(attr_val=np.abs(part.attr_val))
        model = ready_model(part, features, np.abs(w), None, padding=False)
        cut = stretches(part.seq_ptr, features.n_labels)
        rows = [stretch_scores(part, model, *place).max(axis=1) for place in cut]
        nodes = n_parts * np.bincount(part.sequence, np.concatenate(rows), minlength=len(found))
        found = found[edges[found] + nodes > LARGE]
    return found.tolist()


@np.errstate(over="ignore", invalid="ignore")
def log_chain(i, corpus, features, w, constraints):
    """`LogChain` of sequence i, with what rounding may have done to its scores."""
    one = take_sequences(corpus, [i])
    classes, edge_class = np.unique(one.edge_class, return_inverse=True)
    items, class_ptr = ragged_index(one.class_ptr, classes)
    one = one._replace(edge_class=edge_class, class_ptr=class_ptr, class_attr=one.class_attr[items])
    sized = one._replace(attr_val=np.abs(one.attr_val), label_set=one.label_set[:0])
    (node, edge), (node_size, edge_size) = (
        (stretch_scores(text, model, slice(0, 1), slice(0, text.n_tokens)), model.edges)
        for text, weights, limits in ((one, w, constraints), (sized, np.abs(w), None))
        for model in [ready_model(text, features, weights, limits, edge_scores, True, padding=False)]
    )
    # of n terms n - 1 additions round, and each product with a value
    n_node, n_edge = np.diff(one.attr_ptr) - (len(one.attr_val) == 0), np.diff(class_ptr) - 1
    off = [np.maximum(n_node, 0)[:, None] * node_size, n_edge[:, None, None] * edge_size]
    return LogChain(node, edge, edge_class, *(np.finfo(float).eps * part for part in off))


def known_well(i, chain):
    """The chain of sequence i; ValueError where its probabilities are lost in the rounding of scores."""
    refuse(i, chain.off, MOST_OFF)
    return chain


def path_log_proba(i, chain, labels, first=0):
    """`LogChain.log_proba`; ValueError where rounding of scores may move it by more than MOST_OFF and by more
    than 1e-6 of it. A value of 0 is exact where no other label is possible.
    """
    found = chain.log_proba(labels, first)
    if found < 0.0 or chain.off:
        refuse(i, chain.path_off(labels, first), max(MOST_OFF, 1e-6 * -found))
    return found


def refuse(i, off, most=MOST_OFF):
    """ValueError for sequence i if its log probabilities may be off by more than `most` nats."""
    if not off <= most:
        raise ValueError(
            f"sequence {i}: expected scores whose differences float64 knows, got some so large that log "
            f"probabilities may be off by {off:.1g} nats: scale values or weights down"
        )
