"""Viterbi that looks at every label pair of every token, which other decoders are measured against.

``viterbi_many`` of chain/viterbi.py leaves out previous labels that cannot win; the decoders of the
literature were compared with a Viterbi that does not.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.viterbi import decode_sequence


@kernel
def plain_many(log_node, tables, edge_class, seq_ptr, path, score, counters):
    """Best path and score of every sequence; the recursion of ``viterbi``, four rows of pairs at a time.

    delta[t,y] = log_node[t,y] + max_yp(delta[t-1,yp] + log_edge[yp,y])
    Arguments: log_node (n, L); tables: (log_edge (K, L, L) as [class, previous, next], its transposes (K, L,
    L)); edge_class int32 (n,); seq_ptr int64 (S+1,); out: path int32 (n,); score (S,): 0 for an empty
    sequence, -inf (and a path of zeros) if all is forbidden; counters int64 (3,), added to: nodes, label
    pairs, sequences. Cost: n L^2 additions and maxima. Source: Viterbi (1967).
    """
    log_edge, log_edge_t = tables
    L, longest = log_node.shape[1], 1
    for s in range(score.size):
        longest = max(longest, seq_ptr[s + 1] - seq_ptr[s])
    delta, best, rows = np.empty((longest, L)), np.empty((longest, L)), np.empty(L, np.int64)
    nothing_is_left_out = np.empty((0, 0, 0))
    path[:] = 0
    for s in range(score.size):
        lo, hi = seq_ptr[s], seq_ptr[s + 1]
        score[s] = 0.0
        if lo < hi:
            work = path, delta, best, rows
            score[s] = decode_sequence(
                log_node, log_edge, log_edge_t, nothing_is_left_out, 0.0, edge_class, lo, hi, *work
            )
            counters[0] += (hi - lo) * L
            counters[1] += (hi - lo - 1) * L * L
            counters[2] += 1
