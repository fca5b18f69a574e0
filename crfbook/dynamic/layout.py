"""A template with its labels: where the weights of each clique are, and where its scores stand.

Weights that depend on the text become rows of scores, (n, M): first the labels of each chain, one block after
the other, then the cells of cliques of several labels. So attributes, layouts and gradients are those of a
linear chain with M "labels" (chain/likelihood.py). Weights that do not (the bias of each cell) are tables,
and take the place of a FeatureSet's edge weights: edge attribute c is clique c.

Chains that no clique joins, directly or through others, are independent given the text. Such groups are the
`Component`s of a layout: each has a layout of its own, and places in the rows and weights of the whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crfbook._checks import shown
from crfbook.chain.packing import padded
from crfbook.data.constraints import Bounds, Constraints, check_constraints
from crfbook.data.corpus import Corpus, offsets, place_of, positions, ragged_index
from crfbook.data.features import FeatureSet, distinct_keys, find, from_keys
from crfbook.dynamic.templates import LINKED, MEMORIES, check_template, reads_links, rule_table

MOST_CELLS = 1 << 22  # joint labels of a clique, or of all chains where elimination has them
MOST_IN_ALL = 4 * MOST_CELLS  # of all cliques


class Table(NamedTuple):
    """One clique: its labels, its weights, and what is forbidden."""

    name: str
    at: tuple[tuple[int, int], ...]  # (dt, chain), by dt, then by axis
    shape: tuple[int, ...]  # labels of each
    kind: str  # features, see templates.py
    row: int  # first column of its cells in a row of scores; -1: its scores do not depend on the text
    start: int  # first of its tables' weights; -1: none
    allowed: np.ndarray | None  # bool, of that shape; None: all
    linked: bool = False  # of a token and the next one that is linked with it, instead of the next token

    @property
    def size(self) -> int:
        """Its cells."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def cells(self) -> slice:
        """Columns of its cells in a row of scores."""
        return slice(self.row, self.row + self.size)

    @property
    def weights(self) -> slice:
        """Places of its weights among those that do not depend on the text."""
        return slice(self.start, self.start + self.size)

    @property
    def span(self) -> int:
        """dt of its last token, where its attributes are read."""
        return max(dt for dt, _ in self.at)


class TemplateLayout(NamedTuple):
    """All cliques of a template, for m chains of given labels."""

    chains: tuple[str, ...]
    sizes: tuple[int, ...]  # labels of each chain
    axes: tuple[int, ...]  # chains in the order in which elimination has them; () if it cannot
    tables: tuple[Table, ...]
    n_cells: int  # scores of a row
    start: np.ndarray  # bool (n_cells,): labels that may open a sequence; cells of other cliques: True
    end: np.ndarray  # bool (n_cells,)
    components: tuple[Component, ...] = ()  # where there are several

    @property
    def n_tables(self) -> int:
        """Weights that do not depend on the text."""
        return sum(table.size for table in self.tables if table.start >= 0)

    @property
    def first(self) -> np.ndarray:
        """int64 (m+1,): where the scores of each chain begin in a row."""
        return offsets(self.sizes)


class Component(NamedTuple):
    """Chains that no clique joins with the others."""

    chains: list[int]  # numbers of its chains in the whole
    layout: TemplateLayout  # of them alone
    cells: np.ndarray  # int64 (n_cells,): the column of each of its cells in a row of the whole
    tables: np.ndarray  # int64 (n_tables,): the same of its weights that do not depend on the text

    def features(self, whole):
        """(FeatureSet, int64 (F,)): its weights, and where they stand among those of the FeatureSet whole."""
        cell = place_of(self.cells, whole.n_labels)[whole.node_label]
        kept = np.flatnonzero(cell >= 0)
        keys = whole.node_attr[kept] * len(self.cells) + cell[kept]
        order = np.argsort(keys, kind="stable")
        nodes = from_keys(len(self.cells), whole.n_attrs, 1, keys[order], np.zeros(0, np.int64))
        return with_tables(nodes, self.layout), np.append(kept[order], whole.n_node + self.tables)


def lay_out_template(cliques, chains, labels, constraints=None) -> TemplateLayout:
    """The `TemplateLayout` of a template.

    chains : their names.
    labels : {chain: its labels}.
    constraints : {chain: Constraints, (chain, other): bool (labels of the first, labels of the other)}.
    Raises ValueError as `check_template` does, and for a clique of more than MOST_CELLS cells, or for cliques
    of more than MOST_IN_ALL cells together.
    """
    cliques = check_template(cliques, chains)
    number = {chain: i for i, chain in enumerate(chains)}
    sizes = tuple(len(labels[chain]) for chain in chains)
    axes = axis_order(cliques, number, sizes)
    place = {chain: axes.index(chain) if axes else chain for chain in range(len(chains))}
    start = np.ones(sum(sizes), bool)
    end, first = start.copy(), offsets(sizes)
    closed = {}
    for names, limits in (constraints or {}).items():
        if isinstance(limits, Constraints):
            check_constraints(limits, len(labels[names]))
            block = slice(first[number[names]], first[number[names] + 1])
            start[block], end[block] = limits.start, limits.end
            closed[(0, number[names]), (1, number[names])] = limits.allowed
        else:
            check_pair(names, limits, labels)
            pair = tuple(sorted(((0, number[name]) for name in names), key=lambda at: place[at[1]]))
            limits = limits if pair[0][1] == number[names[0]] else limits.T
            closed[pair] = limits & closed.get(pair, True)  # a user may give both orders
    for clique in cliques:
        if clique.rule in MEMORIES:  # nothing was before the first token
            own = number[clique.at[0][1]]
            start[first[own] + 1 : first[own + 1]] = False
    tables, n_cells, n_weights, in_all = [], int(first[-1]), 0, 0
    for clique in cliques:
        at = [(dt, number[chain]) for dt, chain in clique.at]
        order = sorted(range(len(at)), key=lambda i: (at[i][0], place[at[i][1]]))
        at = tuple(at[i] for i in order)
        shape = tuple(sizes[chain] for _, chain in at)
        size = int(np.prod(shape, dtype=np.float64))
        if size > MOST_CELLS:
            raise ValueError(
                f"clique {clique.name}: expected at most {MOST_CELLS:,} joint labels, "
                f"got {' x '.join(map(str, shape))} = {size:,}"
            )
        in_all += size
        if in_all > MOST_IN_ALL:
            raise ValueError(
                f"template: expected at most {MOST_IN_ALL:,} joint labels of all cliques, got more"
            )
        allowed = rule_table(clique, [labels[chain] for _, chain in clique.at])
        allowed = None if allowed is None else allowed.transpose(order)
        linked = clique.rule == LINKED
        if not linked and (limits := closed.pop(at, None)) is not None and not limits.all():
            allowed = limits if allowed is None else allowed & limits
        row = -1
        if len(at) == 1:
            row = int(first[at[0][1]])
        elif clique.features in ("supported", "all"):
            row, n_cells = n_cells, n_cells + size
        weights = -1 if clique.features == "none" else n_weights
        n_weights += size * (weights >= 0)
        tables.append(Table(clique.name, at, shape, clique.features, row, weights, allowed, linked))
    for at, limits in closed.items():  # constraints of labels that share no clique
        if not limits.all():
            tables.append(Table("constraints", at, limits.shape, "none", -1, -1, limits))
    free = np.ones(n_cells - len(start), bool)
    limits = (np.concatenate([limit, free]) for limit in (start, end))
    layout = TemplateLayout(tuple(chains), sizes, axes, tuple(tables), n_cells, *limits)
    groups = joined_chains(layout)
    if len(groups) == 1:
        return layout
    components = tuple(_component(layout, own, cliques, labels, constraints or {}) for own in groups)
    return layout._replace(components=components)


def joined_chains(layout):
    """[[numbers of chains], ...]: groups of chains that tables join, directly or through others."""
    group = list(range(len(layout.sizes)))
    for table in layout.tables:
        joined = {group[chain] for _, chain in table.at}
        group = [min(joined) if number in joined else number for number in group]
    return [[chain for chain, own in enumerate(group) if own == number] for number in sorted(set(group))]


def _component(layout, own, cliques, labels, constraints):
    """The `Component` of the chains with the numbers `own`. The axes of its tables may have another order."""
    names = [layout.chains[chain] for chain in own]
    limits = {
        key: limits for key, limits in constraints.items()
        if set(key if isinstance(key, tuple) else [key]) <= set(names)
    }  # fmt: skip
    part = lay_out_template([clique for clique in cliques if clique.at[0][1] in names], names, labels, limits)
    cells = [np.arange(*layout.first[chain : chain + 2]) for chain in own]
    tables = [np.zeros(0, np.int64)]
    shared = (table for table in layout.tables if table.at[0][1] in own)
    for table, ours in zip(shared, part.tables, strict=True):
        order = [table.at.index((dt, own[chain])) for dt, chain in ours.at]
        place = np.arange(table.size).reshape(table.shape).transpose(order).reshape(-1)
        if len(table.at) > 1 and table.row >= 0:
            cells.append(table.row + place)
        if table.start >= 0:
            tables.append(table.start + place)
    return Component(own, part, np.concatenate(cells), np.concatenate(tables))


def check_pair(names, limits, labels):
    """ValueError unless `limits` is a boolean table of the labels of two different chains."""
    if len(names) != 2 or names[0] == names[1]:
        raise ValueError(f"constraints: expected a chain, or two different ones, got {shown(names)}")
    shape = tuple(len(labels[name]) for name in names)
    if limits.shape != shape or limits.dtype != bool:
        raise ValueError(
            f"constraints {names}: expected a boolean table {shape}, got {limits.dtype} {limits.shape}"
        )


def axis_order(cliques, number, sizes):
    """Chains as axes of elimination, small ones first; () where elimination cannot take the cliques.

    An old label is eliminated after the new labels that it has a potential with have been added.
    """
    if np.prod(sizes, dtype=np.float64) > MOST_CELLS or reads_links(cliques):
        return ()
    after, wide = {chain: set() for chain in number.values()}, 0
    for clique in cliques:
        dts, chains = [dt for dt, _ in clique.at], [number[chain] for _, chain in clique.at]
        if max(dts) == 0:
            if clique.features in ("supported", "all") and len(chains) > 1:
                wide += 1
                if len(chains) < len(sizes) or wide > 1:  # a row has one table of a token's labels
                    return ()
        elif sorted(dts) != [0, 1]:
            return ()
        else:
            old, new = (chain for _, chain in sorted(zip(dts, chains, strict=True)))
            if old != new:
                if clique.features in ("supported", "all"):
                    return ()
                after[new].add(old)
    order = []
    while len(order) < len(sizes):
        ready = [chain for chain in after if chain not in order and after[chain] <= set(order)]
        if not ready:
            return ()
        order.append(min(ready, key=lambda chain: (sizes[chain], -chain)))
    return tuple(order)


def instances(table, corpus, labels):
    """(tokens, cells): the last token of each instance of a clique all of whose labels are known, and which
    cell they are. labels int32 (N, m), -1: unknown.
    """
    if table.linked:
        of_dt = corpus.linked.T
    else:
        tokens = np.flatnonzero(corpus.position >= table.span)
        of_dt = [tokens - table.span + dt for dt in range(table.span + 1)]
    tokens = of_dt[-1]
    cells = np.zeros(len(tokens), np.int64)
    known = np.ones(len(tokens), bool)
    for (dt, chain), size in zip(table.at, table.shape, strict=True):
        label = labels[of_dt[dt], chain]
        known &= label >= 0
        cells = cells * size + label
    return tokens[known], cells[known]


def _occurrences(layout, corpus, labels, n_attrs):
    """For each clique with weights that depend on the text: (attribute * n_cells + cell, value * weight) of
    each occurrence.
    """
    weight, values = corpus.token_weights, corpus.values
    for table in layout.tables:
        if table.row < 0 or table.kind not in ("supported", "all"):
            continue
        tokens, cells = instances(table, corpus, labels)
        items, ptr = ragged_index(corpus.attr_ptr, tokens)
        owner = np.repeat(np.arange(len(tokens)), np.diff(ptr))
        inside = corpus.attr_idx[items] < n_attrs
        items, owner = items[inside], owner[inside]
        keys = corpus.attr_idx[items].astype(np.int64) * layout.n_cells + table.row + cells[owner]
        yield table, keys, values[items] * weight[tokens[owner]]


def dynamic_features(layout, corpus: Corpus, labels, n_attrs, min_freq=0) -> FeatureSet:
    """The weights of a template on training data, as a FeatureSet of n_cells "labels".

    labels : int32 (N, m), -1: unknown.
    min_freq : weights of (attribute, cell) that are rarer do not exist.
    """
    keys = [np.zeros(0, np.int64)]
    for table, found, counts in _occurrences(layout, corpus, labels, n_attrs):
        if table.kind == "all":
            cells = table.row + np.arange(table.size)
            keys.append((np.arange(n_attrs)[:, None] * layout.n_cells + cells).reshape(-1))
            continue
        kept = distinct_keys(found.copy())
        if min_freq > 0:
            total = np.bincount(np.searchsorted(kept, found), counts, minlength=len(kept))
            kept = kept[total >= min_freq]
        keys.append(kept)
    node_keys = distinct_keys(np.concatenate(keys))
    return with_tables(from_keys(layout.n_cells, n_attrs, 1, node_keys, np.zeros(0, np.int64)), layout)


def with_tables(nodes, layout):
    """The FeatureSet with these node weights, and the tables of a layout in place of its edge weights."""
    sizes = [table.size if table.start >= 0 else 0 for table in layout.tables]
    last, ptr = np.repeat([table.shape[-1] for table in layout.tables], sizes), offsets(sizes)
    prev, following = (cells.astype(np.int32) for cells in np.divmod(positions(ptr), last))
    return nodes._replace(n_edge_attrs=len(sizes), edge_ptr=ptr, edge_prev=prev, edge_next=following)


def gold_counts(layout, corpus, features, labels):
    """Counts (F,) of the weights where all labels of a clique are known, times the sequences' weights."""
    counts = np.zeros(features.n_features)
    node_keys = features.node_keys
    for _, keys, values in _occurrences(layout, corpus, labels, features.n_attrs):
        place, hit = find(node_keys, keys)
        counts[: features.n_node] += np.bincount(place[hit], values[hit], minlength=features.n_node)
    weight = corpus.token_weights
    for table in layout.tables:
        if table.start >= 0:
            tokens, cells = instances(table, corpus, labels)
            counts[features.n_node :][table.weights] = np.bincount(cells, weight[tokens], table.size)
    return counts


def log_tables(layout, features, w):
    """The scores of each clique that do not depend on the text: bias, -inf where a cell is not allowed."""
    found = []
    for table in layout.tables:
        scores = np.zeros(table.shape)
        if table.start >= 0:
            scores += w[features.n_node :][table.weights].reshape(table.shape)
        if table.allowed is not None:
            scores[~table.allowed] = -np.inf
        found.append(scores)
    return found


def row_bounds(layout, tables, label_sets) -> Bounds:
    """What each row of scores begins with: bias and rules of cliques that have a place in it, and limits.

    tables : of `log_tables`. label_sets : bool (D, n_cells), see `Constraints`.
    """
    width, n_cells = padded(layout.n_cells), layout.n_cells
    middle = np.full(width, -np.inf)
    middle[:n_cells] = 0.0
    for table, scores in zip(layout.tables, tables, strict=True):
        if table.row >= 0:
            middle[table.cells] += scores.reshape(-1)

    def closed(allowed):
        out = np.full((*allowed.shape[:-1], width), -np.inf)
        out[..., :n_cells][allowed] = 0.0
        return out

    opening = middle.copy()
    opening[:n_cells][~layout.start] = -np.inf
    return Bounds(opening, middle, closed(layout.end), np.zeros((0, 0)), closed(label_sets))


def known_sets(layout, labels):
    """(label_set int32 (N,), label_sets bool (D, n_cells)): what known labels leave of each token's cells.

    labels int32 (N, m), -1: unknown. Cells of other cliques stay free: their labels are held by the chains.
    """
    rows, which = np.unique(labels, axis=0, return_inverse=True)
    sets = np.ones((len(rows), layout.n_cells), bool)
    for chain, (first, size) in enumerate(zip(layout.first[:-1], layout.sizes, strict=True)):
        known = rows[:, chain] >= 0
        sets[known, first : first + size] = rows[known, chain][:, None] == np.arange(size)
    return which.reshape(-1).astype(np.int32), sets
