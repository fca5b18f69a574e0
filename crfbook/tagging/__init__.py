"""One sentence a call: a trained chain as plain arrays, and `Tagger`, which needs no estimator."""
