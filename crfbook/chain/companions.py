"""Attributes that always come together: whose weights can be summed once per evaluation instead of at every
token.

Wherever the tag trigram DT|JJ|NN occurs, so do its three tags and its two bigrams at the same positions.
Attribute a can then carry them: its dense row holds the sum of all six rows, and they are left out of the
lists of those tokens. Which b accompany a is read off the corpus; no knowledge of templates is needed.
"""

from crfbook._jit import kernel


@kernel
def find_companions(attr_ptr, attr_idx, candidate, companion, n_companions, repeated, seen_buf):
    """companion[c] = attributes present at ALL tokens of candidate c:
    the intersection of those tokens' lists.

    Arguments: attr_ptr (N+1,), attr_idx (nnz,); candidate int32 (A,): number of a candidate carrier, or -1;
    out: companion int32 (C, W), at most W of them each; n_companions int32 (C,), -1 at the start; repeated
    uint8 (A,): 1 if a token lists the attribute twice; work: seen_buf int64 (A,), -1 at the start.
    Cost: O(nnz + sum of |companion[c]| over the candidates' occurrences). Source: closure of an item set,
    Pasquier et al. (1999), "Discovering frequent closed itemsets".
    """
    for t in range(attr_ptr.size - 1):
        lo, hi = attr_ptr[t], attr_ptr[t + 1]
        for i in range(lo, hi):
            if seen_buf[attr_idx[i]] == t:
                repeated[attr_idx[i]] = 1
            seen_buf[attr_idx[i]] = t
        for i in range(lo, hi):
            c = candidate[attr_idx[i]]
            if c < 0:
                continue
            n = 0
            if n_companions[c] < 0:
                for j in range(lo, hi):
                    if j != i and n < companion.shape[1]:
                        companion[c, n] = attr_idx[j]
                        n += 1
            else:
                for j in range(n_companions[c]):
                    if seen_buf[companion[c, j]] == t:
                        companion[c, n] = companion[c, j]
                        n += 1
            n_companions[c] = n


@kernel
def count_claims(attr_ptr, attr_idx, candidate, companion, n_companions, claims, state_buf):
    """claims[c, j] = number of tokens where candidate c gets companion[c, j],
    each attribute going to one carrier at most.

    In each token the later attributes of the list choose first (templates put their most specific tests
    last); what has been taken carries nothing, what carries something cannot be taken. A pair with as many
    claims as c has tokens can be kept for good: dropping the other pairs of any carrier never takes a claim
    away.

    Arguments: attr_ptr (N+1,), attr_idx (nnz,), candidate int32 (A,), companion (C, W), n_companions (C,) as
    in `find_companions`; out: claims int32 (C, W), added to; work: state_buf int64 (A,), -1 at the start.
    Cost: as `find_companions`. Source: greedy set cover; the rule is ours.
    """
    for t in range(attr_ptr.size - 1):
        carrying, taken = 2 * t, 2 * t + 1
        for i in range(attr_ptr[t + 1] - 1, attr_ptr[t] - 1, -1):
            a = attr_idx[i]
            c = candidate[a]
            if c < 0 or state_buf[a] == taken:
                continue
            for j in range(n_companions[c]):
                b = companion[c, j]
                if state_buf[b] < carrying:
                    state_buf[b] = taken
                    state_buf[a] = carrying
                    claims[c, j] += 1
