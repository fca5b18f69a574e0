"""One encoder from encoders of parts of a text: the one that the whole text would have given, ids included.

    encoder = a.merged(b).merged(c)            # of encoders fitted on parts, in any order
    corpus = renumbered(corpus, a, encoder)    # as if `encoder` had encoded that part

Ids depend on what occurs how often, not on where; so names and counts of the parts are all that is needed.
Nothing of the text is read again.
"""

from collections import Counter

import numpy as np

from crfbook.data.corpus import make_corpus, owners
from crfbook.data.features import row_offsets
from crfbook.data.vocabulary import falling_order, look_up
from crfbook.encoding.families import recoded
from crfbook.encoding.given_attributes import ItemAttributes, MatrixAttributes
from crfbook.encoding.template_attributes import CellValues, TemplateAttributes


def merged_attributes(a, counts_a, b, counts_b):
    """(attributes of both, their counts by falling count).

    a, b : attributes of one kind, learnt without min_freq.
    counts_a, counts_b : occurrences of each (A,).
    """
    return _MERGE[type(a)](a, counts_a, b, counts_b)


def renumbered(corpus, old, new):
    """The corpus that `new` would have made of a text that `old` has encoded.

    old : encoder.
    new : encoder merged from `old` and others.

    The attributes of a token may stand in another order.
    """
    node, edge = _PLACES[type(old.attributes)](old.attributes, new.attributes)
    number = {label: i for i, label in enumerate(new.labels_)}
    label = np.array([*map(number.__getitem__, old.labels_), -1], np.int32)  # -1 is the last place
    val, weight = (x if len(x) else None for x in (corpus.attr_val, corpus.seq_weight))
    return make_corpus(
        corpus.seq_ptr, corpus.attr_ptr, node[corpus.attr_idx], attr_val=val, seq_weight=weight,
        labels=label[corpus.labels], **_edge_classes(corpus, edge),
    )  # fmt: skip


def _edge_classes(corpus, edge):
    """edge_class, class_ptr, class_attr with other ids; classes are numbered by their sets, as before."""
    owner = owners(corpus.class_ptr)
    attr = edge[corpus.class_attr]
    order = np.lexsort((attr, owner))
    attr = attr[order]
    sizes = np.diff(corpus.class_ptr)
    table = np.full((len(sizes), int(sizes.max(initial=0))), -1, np.int64)  # shorter sets come first
    table[owner, np.arange(len(attr)) - corpus.class_ptr[owner]] = attr
    by_set = np.lexsort(table.T[::-1])
    rank = np.empty(len(by_set), np.int32)
    rank[by_set] = np.arange(len(by_set), dtype=np.int32)
    order = np.argsort(rank[owner], kind="stable")
    class_ptr = row_offsets(rank[owner][order], len(sizes))
    first = np.ones(corpus.n_tokens, bool)
    first[corpus.inner] = False
    edge_class = rank[corpus.edge_class] if len(rank) else corpus.edge_class
    return {"edge_class": np.where(first, np.int32(0), edge_class), "class_ptr": class_ptr,
            "class_attr": attr[order]}  # fmt: skip


# ---- templates


def _merge_templates(a, counts_a, b, counts_b):
    new, parts = TemplateAttributes(a.template), (a, b)
    n_boundaries = len(new.boundaries)
    for source in new.template.sources:
        values = sorted({*parts[0].cells[source].values, *parts[1].cells[source].values})
        new.cells[source] = CellValues(source, values, n_boundaries)
    new.node_order, counts = _merge_families(new, "node", parts, (counts_a, counts_b), 0)
    edge_counts = a.edge_counts, b.edge_counts
    new.edge_order, new.edge_counts = _merge_families(new, "edge", parts, edge_counts, 1)
    return new, counts


def _merge_families(new, name, parts, counts_by_id, first_id):
    """(order, counts by falling count) of all families "node" or "edge"; they get their keys and ids."""
    families, counts = getattr(new, name), []
    for f, family in enumerate(families):
        codes = np.concatenate([recoded(getattr(part, name)[f], part.cells, new.cells) for part in parts])
        seen = [n[getattr(part, name)[f].ids - first_id] for part, n in zip(parts, counts_by_id, strict=True)]
        family.keys, place = np.unique(family.encode(codes, new.cells), return_inverse=True)
        counts.append(np.bincount(place, np.concatenate(seen), len(family.keys)).astype(np.int64))
    together = np.concatenate([np.zeros(0, np.int64), *counts])
    order, rank = falling_order(together)
    rank, low = rank + first_id, 0
    for family in families:
        family.ids = rank[low : low + len(family.keys)].astype(np.int32)
        low += len(family.keys)
    return order, together[order]


def _template_places(old, new):
    node, edge = np.zeros(old.n_attrs, np.int32), np.zeros(old.n_edge_attrs, np.int32)
    for place, name in ((node, "node"), (edge, "edge")):
        for before, after in zip(getattr(old, name), getattr(new, name), strict=True):
            place[before.ids] = after.place(recoded(before, old.cells, new.cells), new.cells)
    return node, edge


# ---- attribute strings, and columns of numbers


def _merge_items(a, counts_a, b, counts_b):
    counts = Counter(dict(zip(a.names, counts_a.tolist(), strict=True)))
    counts.update(dict(zip(b.names, counts_b.tolist(), strict=True)))
    names = sorted(counts)
    counts = np.array([counts[name] for name in names], np.int64)
    order, _ = falling_order(counts)
    new = ItemAttributes()
    new.names = [names[i] for i in order.tolist()]
    return new, counts[order]


def _item_places(old, new):
    number = {name: i for i, name in enumerate(new.names)}
    return look_up(number, old.names, len(old.names)), np.zeros(1, np.int32)


def _merge_matrices(a, counts_a, b, counts_b):
    if a.n_columns != b.n_columns:
        both = f"{a.n_columns} and {b.n_columns}"
        raise ValueError(f"columns of numbers: expected the same in all parts of a text, got {both}")
    new = MatrixAttributes(a.column_names)
    new.n_columns = a.n_columns
    counts = np.zeros(new.n_columns, np.int64)
    counts[a.columns] += counts_a
    counts[b.columns] += counts_b
    kept = np.flatnonzero(counts)
    new.columns = kept[falling_order(counts[kept])[0]]
    return new, counts[new.columns]


def _matrix_places(old, new):
    number = np.full(new.n_columns, -1, np.int32)
    number[new.columns] = np.arange(new.n_attrs, dtype=np.int32)
    return number[old.columns], np.zeros(1, np.int32)


_MERGE = {
    TemplateAttributes: _merge_templates, ItemAttributes: _merge_items, MatrixAttributes: _merge_matrices,
}  # fmt: skip
_PLACES = {
    TemplateAttributes: _template_places, ItemAttributes: _item_places, MatrixAttributes: _matrix_places,
}  # fmt: skip
