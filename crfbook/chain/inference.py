"""What a trained chain says about a corpus: best labels, marginals, log-probabilities. Arrays only,
no strings.

Common arguments: corpus (S sequences, N tokens), features (L labels, F weights), w (F,), constraints (or
None). Work goes through in stretches of whole sequences, so that memory does not grow with the corpus. All
functions raise ValueError for weights that are not finite and, naming it,
for a sequence all of whose paths are forbidden.
"""

from contextlib import suppress
from functools import partial
from itertools import pairwise
from queue import SimpleQueue

import numpy as np

from crfbook.chain.forms import table_edges
from crfbook.chain.forward_backward import (
    edge_marginal_log,
    edge_marginal_scaled,
    exp_nodes,
    forward_backward_log,
    forward_backward_scaled,
)
from crfbook.chain.likelihood import make_work, open_rows, spare_or_new
from crfbook.chain.numpy_form import Lattice, Steps, edge_scores, viterbi_by_steps
from crfbook.chain.objective import LOG_LOSS_FORMS, check_paths
from crfbook.chain.packing import (
    FEW_CLASSES,
    batch_rows,
    pack,
    padded,
)
from crfbook.chain.ready import (
    add_scores,
    known_well,
    large_sequences,
    log_chain,
    path_log_proba,
    ready_model,
    stretch_scores,
    stretches,
)
from crfbook.chain.sparse.choice import FormChooser, decoding_form, is_tiny
from crfbook.chain.sparse.default import default_viterbi_many
from crfbook.chain.sparse.potentials import (
    NodeLists,
    Tokens,
    default_scores,
    default_work,
    sparse_scores,
)
from crfbook.chain.sparse.viterbi import sparse_viterbi_many
from crfbook.chain.viterbi import viterbi_many
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import owners, ragged_index, slice_sequences, take_sequences
from crfbook.data.features import find
from crfbook.training.threads import one_blas_thread, run_pieces


def _dense_viterbi(log_node, edges, n_labels, *arguments):
    viterbi_many(log_node, edges.log_edge, *arguments)


DECODERS = {  # form: potentials from the weights, and Viterbi with them
    "dense": (table_edges, _dense_viterbi),
    "sparse": (sparse_scores, sparse_viterbi_many),
    "numpy": (edge_scores, viterbi_by_steps),
}


def decode(corpus, features, w, constraints=None, n_threads=1, form="auto"):
    """The most probable labels, int32 (N,); ties go to the smallest label at every step (Viterbi).

    form : "dense", "sparse", "numpy", or "auto": what takes less time, see chain/sparse/choice.py.
        All find the same path.
    """
    name = decoding_form(form, corpus, features, w, constraints)
    if name == "default":
        return _decode_by_default(corpus, features, w, constraints, n_threads)[0]
    potentials, viterbi = DECODERS[name]
    model = ready_model(corpus, features, w, constraints, potentials, name == "numpy")
    path, score = np.empty(corpus.n_tokens, np.int32), np.zeros(corpus.n_sequences)
    pieces = stretches(corpus.seq_ptr, features.n_labels)

    def piece(i):
        sequences, tokens = pieces[i]
        log_node = stretch_scores(corpus, model, *pieces[i])
        seq_ptr = corpus.seq_ptr[sequences.start : sequences.stop + 1] - tokens.start
        out = corpus.edge_class[tokens], seq_ptr, path[tokens], score[sequences]
        viterbi(log_node, model.edges, features.n_labels, *out)

    run_pieces(piece, len(pieces), n_threads)
    check_paths(score, np.arange(len(score)), constraints)
    return path


def _decode_by_default(corpus, features, w, constraints, n_threads):
    """(`decode`, counts as default.py has them int64 (4,)): transitions as a default and stored pairs."""
    model = ready_model(corpus, features, w, constraints, default_scores, False, padding=False)
    scores, bounds = model.edges, model.bounds
    number = np.arange(corpus.n_tokens)
    tokens = Tokens(
        number, corpus.seq_ptr, corpus.attr_ptr, corpus.attr_idx, corpus.attr_val, corpus.edge_class,
        corpus.label_set,
    )  # fmt: skip
    limits = bounds.start, bounds.middle, bounds.end, bounds.label_sets
    lists = model.w, features.node_ptr, features.node_label, model.dense, model.dense_of
    nodes = NodeLists(*lists, *limits, np.array([model.may_overflow]))
    path, score = np.empty(corpus.n_tokens, np.int32), np.zeros(corpus.n_sequences)
    pieces, works, seen = (
        stretches(corpus.seq_ptr, features.n_labels),
        SimpleQueue(),
        np.zeros((4,), np.int64),
    )

    def piece(i):
        work = spare_or_new(works, partial(default_work, scores))
        first, stop, counts = pieces[i][0].start, pieces[i][0].stop, np.zeros(4, np.int64)
        default_viterbi_many(first, stop, tokens, nodes, scores, work, path, score, counts)
        works.put(work)
        seen[:] += counts

    run_pieces(piece, len(pieces), n_threads)
    for i in np.flatnonzero(np.isnan(score))[:1].tolist():  # says which token leaves float64
        stretch_scores(corpus, model, slice(i, i + 1), slice(*corpus.seq_ptr[i : i + 2].tolist()))
    check_paths(score, np.arange(len(score)), constraints)
    return path, seen


def node_marginals(corpus, features, w, constraints=None, n_threads=1, form="auto"):
    """p_node (N, L): probability that token t has label y, given its sequence. form: "batched",
    "sparse", "numpy" or "auto".
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

    spans : n triples (sequence, first token in it, label ids). Each takes two forward-backward passes over
        its sequence: log Z of the labellings that have the span, less log Z of all.
    Raises ValueError for a span that is not in its sequence, and for an unknown label.
    """
    n_labels, every = features.n_labels, np.ones(features.n_labels, bool)
    for i, (s, first, labels) in enumerate(spans):
        n = int(corpus.lengths[s]) if 0 <= s < corpus.n_sequences else 0
        if not (0 <= first < first + len(labels) <= n):
            got = f"{len(labels)} from token {first} on"
            raise ValueError(f"span {i}: expected some of the {n:,} tokens of sequence {s}, got {got}")
        if not all(0 <= y < n_labels for y in labels):
            raise ValueError(f"span {i}: expected label ids in 0..{n_labels - 1}, got {list(labels)}")
    part = take_sequences(corpus, np.array([span[0] for span in spans], np.int64))
    if constraints is None:
        constraints = Constraints(np.ones((n_labels, n_labels), bool), every, every)
    sets = np.zeros((0, n_labels), bool) if constraints.label_sets is None else constraints.label_sets
    sets, before = np.vstack([sets, every]), part.label_set
    before = before if len(before) else np.full(part.n_tokens, len(sets) - 1, np.int32)
    after, allowed = before.copy(), np.ones(len(spans), bool)
    for i, (_, first, labels) in enumerate(spans):
        tokens = part.seq_ptr[i] + first + np.arange(len(labels))
        allowed[i] = sets[before[tokens], labels].all()
        after[tokens] = len(sets) + np.asarray(labels)
    limits = constraints._replace(label_sets=np.vstack([sets, np.eye(n_labels, dtype=bool)]))
    of_all = log_partition(part._replace(label_set=before), features, w, limits, n_threads)
    out = np.full(len(spans), -np.inf)
    for i in np.flatnonzero(allowed):  # one by one: where no labelling has the span, there is no log Z
        one = slice_sequences(part._replace(label_set=after), i, i + 1)
        with suppress(ValueError):
            out[i] = min(0.0, log_partition(one, features, w, limits, n_threads)[0] - of_all[i])
    for i in large_sequences(part, features, w):
        chain = log_chain(i, part._replace(label_set=before), features, w, limits)
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
    """Yield p_edge (T-1, L, L) of each sequence: [t, yp, y] = p(y_t = yp, y_{t+1} = y); (0, L,
    L) if T < 2.
    """
    given = corpus, features, w, constraints
    large, tiny = set(large_sequences(corpus, features, w)), is_tiny(corpus, features)
    for i, p_edge in enumerate((_tiny_edge_marginals if tiny else _kernel_edge_marginals)(*given)):
        yield known_well(i, log_chain(i, *given)).p_edge()[1:] if i in large else p_edge


def _kernel_edge_marginals(corpus, features, w, constraints):
    """`iter_edge_marginals` with kernels."""
    few = corpus.n_classes <= FEW_CLASSES
    model = ready_model(corpus, features, w, constraints, table_edges if few else None)
    n_labels = features.n_labels
    for i in range(corpus.n_sequences):
        tokens = slice(int(corpus.seq_ptr[i]), int(corpus.seq_ptr[i + 1]))
        log_node = stretch_scores(corpus, model, slice(i, i + 1), tokens)
        edges, edge_class = model.edges, corpus.edge_class[tokens]
        if not few:  # tables of this sequence's classes: no more than what is yielded
            classes, edge_class = np.unique(edge_class, return_inverse=True)
            items, class_ptr = ragged_index(corpus.class_ptr, classes)
            edges = table_edges(features, w, class_ptr, corpus.class_attr[items], model.bounds)
        p_edge = _edge_marginals(log_node, edges, edge_class.astype(np.int32), i, constraints)
        yield np.ascontiguousarray(p_edge[1:, :n_labels, :n_labels])


def _tiny_edge_marginals(corpus, features, w, constraints):
    """`iter_edge_marginals` without kernels."""
    model, n_labels = ready_model(corpus, features, w, constraints, edge_scores), features.n_labels
    for i, (start, stop) in enumerate(pairwise(corpus.seq_ptr.tolist())):
        tokens = slice(start, stop)
        log_node = stretch_scores(corpus, model, slice(i, i + 1), tokens)[:, :n_labels]
        p_edge = np.zeros((1, n_labels, n_labels))
        if len(log_node):
            steps = Steps(np.arange(len(log_node) + 1), corpus.edge_class[tokens], corpus.n_classes)
            lattice = Lattice(steps, log_node, model.edges)
            check_paths(lattice.log_z, np.array([i]), constraints)
            p_edge = lattice.p_edge()
        yield p_edge[1:]


def _edge_marginals(log_node, edges, edge_class, i, constraints):
    """(T, M, M) of one sequence; the log form where the scaled one is not safe."""
    n_tokens, width = log_node.shape
    p_edge = np.zeros((n_tokens, width, width))
    if n_tokens == 0:
        return p_edge
    psi_node, alpha, beta = np.empty(log_node.shape), np.empty(log_node.shape), np.empty(log_node.shape)
    scale = np.empty(n_tokens)
    spread = edges.edge_spread[0] + exp_nodes(log_node, psi_node, np.empty(n_tokens))
    if not forward_backward_scaled(
        psi_node, edges.psi_edge, edges.psi_edge_t, edge_class, spread, alpha, beta, scale
    ):
        for t in range(1, n_tokens):
            edge_marginal_scaled(t, psi_node, edges.psi_edge, edge_class, alpha, beta, scale, p_edge[t])
        return p_edge
    log_z = forward_backward_log(log_node, edges.log_edge, edge_class, alpha, beta)
    check_paths(np.array([log_z]), np.array([i]), constraints)
    for t in range(1, n_tokens):
        edge_marginal_log(t, log_node, edges.log_edge, edge_class, alpha, beta, log_z, p_edge[t])
    return p_edge


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
    n_pieces = max(1, min(16, packing.n_batches))

    def piece(i):
        work = make_work(packing, padded(features.n_labels))
        work = kind.needs(work, packing, features.n_labels)
        for b in range(i, packing.n_batches, n_pieces):
            tokens, row_set = packing.row_token[packing.rows(b)], packing.row_set[packing.rows(b)]
            part = packing.steps(b), tokens, row_set, work.log_node[: len(tokens)]
            fill = partial(_fill_batch, corpus, model, *part)
            p = kind(b, packing, work).marginals(fill, model.edges, log_z)
            if p_node is not None:
                p_node[tokens] = p[:, : features.n_labels]

    run_pieces(piece, n_pieces, n_threads)
    check_paths(log_z, packing.sequence, constraints)
    out = np.zeros(corpus.n_sequences)
    out[packing.sequence] = log_z
    return out


def _tiny_forward_backward(corpus, features, w, constraints, p_node):
    """`_forward_backward` without kernels."""
    model, out = (
        ready_model(corpus, features, w, constraints, edge_scores, True),
        np.zeros(corpus.n_sequences),
    )
    packing = pack(corpus, max(1, corpus.n_tokens), n_shards=1, grouped=False)
    if packing.n_batches:
        scores = stretch_scores(corpus, model, slice(0, corpus.n_sequences), slice(0, corpus.n_tokens))
        steps = Steps(packing.steps(0), packing.row_class, corpus.n_classes)
        with one_blas_thread():
            lattice = Lattice(steps, scores[packing.row_token, : features.n_labels], model.edges)
        check_paths(lattice.log_z, packing.sequence, constraints)
        out[packing.sequence] = lattice.log_z
        if p_node is not None:
            p_node[packing.row_token] = lattice.p_node
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
