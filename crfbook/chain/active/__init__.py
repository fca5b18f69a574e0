"""Active sets: most labels of a token need no transitions of their own (chapter 10).

    sequence   forward-backward in which some labels of a token alone bring their stored pairs: Method 1,
               ours; what that leaves out of log Z, at most
    form       it behind the port: `ActiveObjective`
    tied       one potential for all pairs that are rare in training: Methods 3 and 4; Method 2 with eps;
               eq. (10) as printed; the pseudo-likelihood, a start for training

Source: Jeong, Lin and Lee (2009); docs/SPEC.md, D.1 to D.9.
"""

from crfbook.chain.active.form import ActiveObjective
from crfbook.chain.active.tied import (
    PseudoLikelihood,
    TiedObjective,
    after_another,
    near_default,
    printed,
    tied_features,
)

__all__ = [
    "ActiveObjective",
    "PseudoLikelihood",
    "TiedObjective",
    "after_another",
    "near_default",
    "printed",
    "tied_features",
]
