"""What every learner shares: sums over all labellings of a chain, the best labelling, scores, the objective.

    forward_backward, viterbi, sequence     to read: one sequence a call (chapters 01 to 03)
    forward_backward_batched, likelihood    fast: many sequences at once, in lanes
    objective, forms, packing, batch        value and gradient of the likelihood over a corpus
    inference                               labels and marginals of a corpus

`losses` and `sparse` are further forms of the same quantities. Source: docs/SPEC.md, A.1.
"""
