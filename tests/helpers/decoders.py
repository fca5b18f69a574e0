"""What decoders are tested with: a call with arrays allocated, models of every kind, what exact means."""

import numpy as np
from helpers.chains import Chain, random_chain, run_viterbi_many

from crfbook import brute


def decode(decoder, tables, sequences):
    """(scores, paths, counters) of chains."""
    seq_ptr = np.cumsum([0, *(len(c.log_node) for c in sequences)]).astype(np.int64)
    log_node, edge_class = (np.concatenate([c[i] for c in sequences]) for i in (0, 2))
    path, score = np.full(len(log_node), -9, np.int32), np.full(len(sequences), np.nan)
    counters = np.zeros(3, np.int64)
    decoder(log_node, tables, edge_class, seq_ptr, path, score, counters)
    return score, np.split(path, seq_ptr[1:-1]), counters


def rounded(sequences, unit=1.0):
    """Chains with many ties: all scores are multiples of `unit`."""
    log_edge = np.round(sequences[0].log_edge) * unit
    return [c._replace(log_node=np.round(c.log_node) * unit, log_edge=log_edge) for c in sequences]


def check_exact(scores, paths, sequences, rtol=1e-9, atol=1e-9):
    """Scores are Viterbi's, bit for bit where the paths are the same; each path has the score that it is said
    to have, or is zeros if all is forbidden.

    The path is Viterbi's where a second decoding, with that path a little worse, has a clearly worse score.
    """
    wanted, best_paths = run_viterbi_many(sequences, skip=False)
    np.testing.assert_allclose(scores, wanted, rtol=rtol, atol=atol)
    for score, path, best, its_score, chain in zip(scores, paths, best_paths, wanted, sequences, strict=True):
        assert score == its_score or (path != best).any()
        if score == -np.inf:
            assert not path.any()
            continue
        t = np.arange(len(path))
        steps = chain.log_edge[chain.edge_class[1:], path[:-1], path[1:]]
        np.testing.assert_allclose(
            chain.log_node[t, path].sum() + steps.sum(), score, rtol=1e-9, atol=max(atol, 1e-9)
        )
        if (
            path != best
        ).any():  # then it must be a tie: decoded without the labels of `best` where they differ
            other = Chain(chain.log_node.copy(), *chain[1:])
            other.log_node[t[path != best], best[path != best]] = -np.inf
            np.testing.assert_allclose(
                run_viterbi_many([other], skip=False)[0][0], score, rtol=1e-12, atol=atol
            )


def check_enumeration(chain, score, path):
    """Score and path of a chain are those of a best path by enumeration; path is zeros if none is allowed."""
    best, all_best = brute.best_paths(*chain)
    if best == -np.inf:
        assert score == -np.inf and not path.any()
        return
    np.testing.assert_allclose(score, best, rtol=1e-13, atol=1e-13)
    assert any((path == p).all() for p in all_best)


def _sequences(rng, n_labels, make):
    """Lengths 0, 1 and more, that share log_edge."""
    sequences = [random_chain(rng, n, n_labels, 3) for n in (0, 1, 13, 2, 7)]
    return make(rng, [c._replace(log_edge=sequences[0].log_edge) for c in sequences])


def _scores(change):
    """Models whose scores are changed by change(rng, scores)."""

    def make(rng, sequences):
        log_edge = change(rng, sequences[0].log_edge)
        return [Chain(change(rng, c.log_node), log_edge, c.edge_class) for c in sequences]

    return lambda rng, n_labels: _sequences(rng, n_labels, make)


def _with(value, share):
    return lambda rng, x: np.where(rng.random(x.shape) < share, value, x)


def _peaked(rng, sequences):
    return [c._replace(log_node=6.0 * c.log_node) for c in sequences]


def _dead(rng, sequences):
    for chain in sequences:
        chain.log_node[len(chain.log_node) // 2 :] = -np.inf
    return sequences


def _padded(rng, sequences):
    """The last label is forbidden everywhere, unless it is the only one."""
    for chain in sequences:
        chain.log_node[:, 1:][:, -1:] = -np.inf
    return sequences


# name -> f(rng, number of labels) -> chains that share log_edge
CASES = {
    "gaussian": _scores(lambda rng, x: x),
    "ties": _scores(lambda rng, x: rng.integers(0, 3, x.shape).astype(float)),
    "uniform": _scores(lambda rng, x: np.zeros(x.shape)),
    "third": _scores(lambda rng, x: np.full(x.shape, 1.0 / 3.0)),
    "minus a million": _scores(_with(-1e6, 0.3)),
    "forbidden": _scores(_with(-np.inf, 0.4)),
    "nearly all forbidden": _scores(_with(-np.inf, 0.9)),
    "all forbidden": _scores(_with(-np.inf, 1.0)),
    "peaked": lambda rng, n_labels: _sequences(rng, n_labels, _peaked),
    "dead ends": lambda rng, n_labels: _sequences(rng, n_labels, _dead),
    "padded": lambda rng, n_labels: _sequences(rng, n_labels, _padded),
}
