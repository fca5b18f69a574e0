"""What every learner shares: sums over all labellings of a chain, the best labelling, scores, the objective.

    forward_backward, viterbi               recursions, one sequence at a time and many (chapters 01 and 02)
    scores, vector_math                     from weights to scores and back; exp and log of rows
    forward_backward_batched, likelihood    the fast form: each time step of many sequences is one product
    sequence, token_layout                  what learners read that visit one sequence at a time
    packing                                 sequences in batches and shards
    forms                                   the port: tables here, `sparse` and `losses` beside it
    numpy_form                              the same without kernels, for tiny problems and huge scores
    objective                               value and gradient over a corpus (chapter 03)
    inference                               labels, marginals and probabilities of a corpus

Sources: docs/SPEC.md, 0.1 and 0.3, A.2 and F.3; each file names its own.
"""
