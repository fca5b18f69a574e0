"""Templates of dynamic CRFs: which labels of neighbouring tokens share a potential, and which weights it has.

A *chain* is one column of labels: "pos", "chunk". A *clique* names the labels that one potential reads, each
as (dt, chain): ((0, "pos"), (1, "pos")) are the tags of a token and of the next one. A template is a list of
cliques. Unrolled over a sentence of T tokens, a clique has one instance for each t with 0 <= t + dt < T for
all its dt; instances beyond the sentence do not exist. All instances share their weights:

    p(y | x) = 1/Z(x) prod_c prod_t exp( bias_c[v] + sum_{a fires at t} W_c[a, v] ),   v: labels of c at t

Source: Sutton, Rohanimanesh and McCallum (2004), section 3.1, eq. (3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from crfbook._checks import one_of, shown, whole

FEATURES = ("none", "bias", "supported", "all")
LINKED = "linked"
RULES = ("", "copy unless", "last other", "seen", LINKED)
MEMORIES = ("last other", "seen")


class Clique(NamedTuple):
    """One clique of a template.

    at : ((dt, chain), ...): the labels that it reads, the first one changing slowest in its cells. The
        smallest dt is 0 (others are shifted).
    features : "bias": one weight a cell (joint label). "supported": also one for each (attribute, cell) seen
        together in training. "all": for each attribute and cell. "none": no weights, the rule alone.
        Attributes are those of the clique's last token.
    rule : a hard constraint, by name: see `rule_table`; "linked": see `skip`; "" is none.
    labels : what the rule reads.
    """

    at: tuple[tuple[int, str], ...]
    features: str = "bias"
    rule: str = ""
    labels: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """As in "pos(t-1), pos(t)"."""
        last = max(dt for dt, _ in self.at)
        if self.rule == LINKED:
            return f"{self.at[0][1]}(t), {self.at[1][1]}(linked)"
        return ", ".join(f"{chain}(t{dt - last:+d})" if dt < last else f"{chain}(t)" for dt, chain in self.at)


def nodes(*chains: str, features: str = "supported") -> list[Clique]:
    """A clique of one label for each chain: weights of a label and the text."""
    return [Clique(((0, chain),), features) for chain in chains]


def linear(*chains: str, features: str = "bias", node_features: str = "supported") -> list[Clique]:
    """A linear-chain CRF for each chain, without potentials between chains."""
    return [
        *nodes(*chains, features=node_features),
        *(Clique(((0, chain), (1, chain)), features) for chain in chains),
    ]


def factorial(
    *chains: str, features: str = "bias", node_features: str = "supported", skew: bool = False
) -> list[Clique]:
    """A factorial CRF: linear chains, and a clique of each two neighbouring chains at the same token.

    features : of the pairs. The paper's eq. (4): node_features="none", features="supported".
    skew : also a label with the next one of the chain after it, ((0, a), (1, b)).
    """
    between = [Clique(((0, a), (0, b)), features) for a, b in zip(chains, chains[1:], strict=False)]
    skewed = [Clique(((0, a), (1, b)), features) for a, b in zip(chains, chains[1:], strict=False)]
    return [*linear(*chains, features=features, node_features=node_features), *between, *skewed * skew]


def second_order(chain: str, features: str = "bias") -> list[Clique]:
    """A chain whose potentials read three labels in a row; and two, for the first ones."""
    return [*linear(chain), Clique(((0, chain), (1, chain), (2, chain)), features)]


def skip(chain: str, other: str = "", features: str = "bias") -> list[Clique]:
    """A clique of the labels of a token and of the next one linked with it, however far away.

    A column of the text says which tokens are linked, see `DCRF`. other : the chain of the second label; "":
    the same.
    Source: Sutton and McCallum (2004), Collective segmentation and labeling of distant entities.
    """
    return [Clique(((0, chain), (1, other or chain)), features, LINKED)]


def memory(chain: str, name: str, rule: str, labels: Iterable[Any], features: str = "bias") -> list[Clique]:
    """A chain `name` of what was before a token, and a clique of it and the token's label.

    rule : "last other": the last label before the token that is not among `labels` ("O"), None before the
        first one; "seen": whether one of `labels` was before it (False, True).
    The column `name` of labels follows from those of `chain`: `DCRF` makes it.
    """
    one_of("rule", rule, MEMORIES)
    labels = (labels,) if isinstance(labels, str) else tuple(labels)
    update = Clique(((0, name), (0, chain), (1, name)), "none", rule, labels)
    return [update, Clique(((0, name), (0, chain)), features)]


def hierarchical(upper: str, lower: str, end: str, features: str = "bias") -> list[Clique]:
    """Two levels: the label of `upper` can change only after a token whose label in `end` is true.

    The lower chain restarts wherever the label of the upper one ends. Source: the paper's Figure 2c.
    """
    return [
        *nodes(upper, lower, end),
        Clique(((0, upper), (0, lower), (0, end)), features),
        Clique(((0, upper), (0, end), (1, upper)), features, "copy unless"),
        Clique(((0, lower), (0, end), (1, upper), (1, lower)), features),
    ]


def check_template(cliques: Iterable[Clique], chains: Sequence[str]) -> list[Clique]:
    """`check_cliques` of a template for these label columns: each has a clique, and each clique has them.

    chains : names of the label columns.
    """
    cliques = check_cliques(cliques)
    for number, clique in enumerate(cliques):
        unknown = [chain for _, chain in clique.at if chain not in chains]
        if unknown:
            raise ValueError(
                f"clique {number}: expected a chain among {', '.join(map(repr, chains))}, got {unknown[0]!r}"
            )
    missing = [chain for chain in chains if not any(chain == own for q in cliques for _, own in q.at)]
    if missing:
        raise ValueError(f"template: expected a clique for each chain, got none with {missing[0]!r}")
    return cliques


def check_cliques(cliques: Iterable[Clique]) -> list[Clique]:
    """The cliques as `Clique`s, dt from 0 on, each once; whether their chains exist is left open.

    ValueError for what is no list of cliques, a clique without labels, the same label twice, the same labels
    again in another order, and a rule that needs other labels.
    """
    if not hasattr(cliques, "__iter__"):
        raise ValueError(f"cliques: expected a list of cliques, got {shown(cliques)}")
    found = {}
    for number, clique in enumerate(cliques):
        clique = clique if isinstance(clique, Clique) else Clique(clique)
        where = f"clique {number}"
        if not isinstance(clique.at, tuple | list) or not len(clique.at):
            raise ValueError(f"{where}: expected labels as (dt, chain), got {shown(clique.at)}")
        at = []
        for label in clique.at:
            if not isinstance(label, tuple | list) or len(label) != 2:
                raise ValueError(f"{where}: expected labels as (dt, chain), got {shown(label)}")
            dt, chain = label
            if not isinstance(chain, str):
                raise ValueError(f"{where}: expected a string as the name of a chain, got {shown(chain)}")
            at.append((whole(f"{where}: dt", dt, -1000), chain))
        first = min(dt for dt, _ in at)
        at = tuple((dt - first, chain) for dt, chain in at)
        if len(set(at)) < len(at):
            raise ValueError(f"{where}: expected each label once, got {shown(at)}")
        one_of(f"{where}: features", clique.features, FEATURES)
        one_of(f"{where}: rule", clique.rule, RULES)
        if isinstance(clique.labels, str) or not hasattr(clique.labels, "__iter__"):
            raise ValueError(f"{where}: expected a tuple of labels for its rule, got {shown(clique.labels)}")
        clique = clique._replace(at=at, labels=tuple(clique.labels))
        own = at[0][1]
        if clique.rule == LINKED:
            if [dt for dt, _ in at] != [0, 1] or clique.features not in ("none", "bias"):
                raise ValueError(
                    f"{where}: expected ((0, chain), (1, chain)) and a bias alone for the rule 'linked', "
                    f"got {shown(at)} and {clique.features!r}"
                )
        elif clique.rule and len(at) != 3:
            raise ValueError(f"{where}: expected three labels for the rule {clique.rule!r}, got {shown(at)}")
        if clique.rule in MEMORIES and ([dt for dt, _ in at] != [0, 0, 1] or at[2][1] != own):
            raise ValueError(
                f"{where}: expected ((0, name), (0, chain), (1, name)) for the rule {clique.rule!r}, "
                f"got {shown(at)}"
            )
        if (frozenset(at), clique.rule) in found:
            raise ValueError(f"{where}: expected each clique once, got {clique.name} again")
        found[frozenset(at), clique.rule] = clique
    return list(found.values())


def rule_table(clique: Clique, labels: Sequence[list[Any]]) -> np.ndarray | None:
    """Which cells of a clique its rule allows: bool, one axis for each of its labels; None without a rule.

    labels : those of the chain of each label that it reads. Rules, for a clique of labels a, b, c:
        "copy unless"  c = a, unless b is true
        "last other"   c = a if b is among the clique's labels, else c = b
        "seen"         c = (a is true, or b is among the clique's labels)
    """
    if clique.rule in ("", LINKED):
        return None
    first, second, third = labels
    after = {
        "copy unless": lambda a, b: third if b else [a],
        "last other": lambda a, b: [a if b in clique.labels else b],
        "seen": lambda a, b: [bool(a) or b in clique.labels],
    }[clique.rule]
    table = np.zeros((len(first), len(second), len(third)), bool)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            allowed = after(a, b)
            table[i, j] = [c in allowed for c in third]
    return table


def memory_labels(clique: Clique, labels: list[Any]) -> list[Any]:
    """The labels of a memory: the one before anything was seen comes first. labels : those of its chain."""
    if clique.rule == "seen":
        return [False, True]
    return [None, *(label for label in labels if label not in clique.labels)]


def memory_column(clique: Clique, labels: list[Any], own: list[Any], ids: Any, seq_ptr: Any) -> np.ndarray:
    """int32 (N,): what a memory holds at each token; -1 after a label that is unknown.

    labels, own : those of its chain and its own. ids int32 (N,): of its chain, -1: unknown. seq_ptr (S+1,).
    """
    table = rule_table(clique, [own, labels, own]).argmax(axis=2)
    column = np.zeros(len(ids), np.int32)
    for start, stop in zip(seq_ptr[:-1].tolist(), seq_ptr[1:].tolist(), strict=True):
        for t in range(start + 1, stop):
            unknown = column[t - 1] < 0 or ids[t - 1] < 0
            column[t] = -1 if unknown else table[column[t - 1], ids[t - 1]]
    return column


def reads_links(cliques: Iterable[Clique]) -> bool:
    """Whether a template has a clique of linked tokens."""
    return any(clique.rule == LINKED for clique in cliques)


def memories_of(cliques: Iterable[Clique]) -> list[str]:
    """Names of the chains that a template adds to the columns of labels."""
    return [clique.at[0][1] for clique in cliques if clique.rule in MEMORIES]


def add_memories(cliques: Iterable[Clique], classes: dict[str, Any], numbers: Any, seq_ptr: Any) -> Any:
    """Label ids (N, m + memories), with those of memory chains, whose labels are added to `classes`.

    ValueError for a memory that has the name of another chain.
    """
    for clique in cliques:
        if clique.rule not in MEMORIES:
            continue
        (_, name), (_, chain), _ = clique.at
        if name in classes:
            raise ValueError(f"cliques: expected another name of a memory than {name!r}, a chain has it")
        if chain in classes:  # else `check_template` says so
            ids = numbers[:, list(classes).index(chain)]
            classes[name] = memory_labels(clique, classes[chain])
            column = memory_column(clique, classes[chain], classes[name], ids, seq_ptr)
            numbers = np.column_stack([numbers, column])
    return numbers
