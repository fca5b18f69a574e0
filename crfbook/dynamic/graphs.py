"""Factor graphs as flat arrays: variables, factors of two to four of them, and the tables that factors share.

A *slot* is one end of one factor. A message goes from the factor to the variable of a slot. Scores of single
variables are not factors: they are rows `log_phi` (V, W), -inf behind a variable's labels. Tables stand one
after the other in `log_tables` (cells,), row-major; `split_tables` and `join_tables` translate.

A graph may consist of many *components*, one a sentence: variables and factors of each stand together, and
each converges by itself. Source: docs/SPEC.md, B.1 and B.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from crfbook._checks import shown
from crfbook.chain.packing import padded
from crfbook.data.corpus import offsets, owners, positions

MOST = 4  # variables of a factor
MOST_CELLS = 1 << 40  # of all tables: more would not fit any memory, and many more no int64


class Graph(NamedTuple):
    """V variables, F factors with S slots, K tables, C components; int64 arrays."""

    n_labels: np.ndarray  # (V,)
    component: np.ndarray  # (V,)
    step: np.ndarray  # (V,): where a variable stands in a sweep from left to right
    var_ptr: np.ndarray  # (V+1,): slots at variable v are var_slot[var_ptr[v]:var_ptr[v+1]]
    var_slot: np.ndarray  # (S,)
    factor_ptr: np.ndarray  # (F+1,): slots of factor f, in the order of the axes of its table
    factor_table: np.ndarray  # (F,)
    slot_var: np.ndarray  # (S,)
    slot_factor: np.ndarray  # (S,)
    slot_copy: np.ndarray  # (S,): where the copy of its table begins whose last axis is the slot's
    first_var: np.ndarray  # (C+1,): variables of component c
    first_factor: np.ndarray  # (C+1,)
    table_shape: np.ndarray  # (K, 4), ones behind the axes
    table_arity: np.ndarray  # (K,)
    cell_ptr: np.ndarray  # (K+1,): cells of tables
    copy_ptr: np.ndarray  # (4 K + 1,): cells of their copies, one for each axis; the last axis is padded
    width: int  # W: columns of rows
    most_rows: int  # the largest product of the labels of a factor's other variables

    @property
    def n_components(self) -> int:
        return len(self.first_var) - 1

    @property
    def factor_component(self) -> np.ndarray:
        return np.repeat(np.arange(self.n_components), np.diff(self.first_factor))

    @property
    def slot_component(self) -> np.ndarray:
        return self.component[self.slot_var]

    @property
    def first_slot(self) -> np.ndarray:
        return self.factor_ptr[self.first_factor]


def factor_graph(
    n_labels: Sequence[int], scopes: Sequence[Sequence[int]], table_of: Sequence[int] | None = None
) -> Graph:
    """The `Graph` of explicit factors, one component.

    n_labels : labels of each variable.
    scopes : the two to four variables of each factor.
    table_of : the table of each factor, numbered from 0; None: each has its own.
    Several factors of the same variables, variables without a factor, and no factor at all are fine.
    Raises ValueError naming the first factor that cannot be.
    """
    sizes = _whole_numbers("n_labels", n_labels)
    if (sizes < 1).any():
        v = int(np.argmin(sizes))
        raise ValueError(f"variable {v}: expected at least one label, got {sizes[v]}")
    ends = np.full((len(scopes), MOST), -1, np.int64)
    for f, scope in enumerate(scopes):
        if not 2 <= len(scope) <= MOST:
            raise ValueError(
                f"factor {f}: expected 2 to {MOST} variables, got {len(scope)} (scores of one are log_phi)"
            )
        for v in scope:
            if not 0 <= v < len(sizes):
                raise ValueError(f"factor {f}: expected variables from 0 to {len(sizes) - 1}, got {v}")
        if len(set(scope)) < len(scope):
            raise ValueError(f"factor {f}: expected different variables, got {tuple(scope)}")
        ends[f, : len(scope)] = _whole_numbers(f"factor {f}", scope)
    tables = np.arange(len(scopes)) if table_of is None else _whole_numbers("table_of", table_of)
    if tables.shape != (len(scopes),):
        raise ValueError(
            f"table_of: expected one table for each of {len(scopes)} factors, got {tables.shape}"
        )
    used, first = np.unique(tables, return_index=True)
    if len(used) and not np.array_equal(used, np.arange(len(used))):
        raise ValueError(
            f"table_of: expected the numbers from 0 to {len(used) - 1}, got {shown(used.tolist())}"
        )
    shape = np.where(ends >= 0, np.append(sizes, 1)[ends], 0)
    if len(bad := np.flatnonzero((shape != shape[first][tables]).any(axis=1))):
        f = bad[0]
        wanted, got = (" x ".join(str(n) for n in row if n) for row in (shape[first][tables[f]], shape[f]))
        raise ValueError(
            f"factor {f}: expected variables of {wanted} labels, those of table {tables[f]}, got {got}"
        )
    cells = np.prod(np.maximum(shape[first], 1), axis=1, dtype=float)
    if cells.sum() > MOST_CELLS:
        f = first[np.argmax(cells)]
        raise ValueError(f"factor {f}: expected tables of at most {MOST_CELLS:,} cells in all, got more")
    component = np.zeros(len(sizes), np.int64)
    return _graph(sizes, component, np.arange(len(sizes)), ends, tables, shape[first], 1)


def _whole_numbers(name, values):
    """int64 (n,); ValueError for what has no whole numbers."""
    found = np.asarray(values).reshape(-1)
    if found.size and found.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected integers, got {shown(values)}")
    return found.astype(np.int64)


def _graph(n_labels, component, step, ends, tables, shape, n_components):
    """ends (F, 4): variables of each factor, -1 behind them; by component. shape (K, 4): 0 behind."""
    arity = np.count_nonzero(ends >= 0, axis=1)
    factor_ptr = offsets(arity)
    slot_var = ends[ends >= 0]
    slot_factor = owners(factor_ptr)
    var_slot = np.argsort(slot_var, kind="stable")
    table_arity = np.count_nonzero(shape, axis=1)
    shape = np.maximum(shape, 1).reshape(-1, MOST)
    cells = shape.prod(axis=1)
    copies = np.where(np.arange(MOST) < table_arity[:, None], cells[:, None] // shape * padded(shape), 0)
    copy_ptr = offsets(copies.reshape(-1))
    axis = np.arange(len(slot_var)) - factor_ptr[slot_factor]
    first_var = np.searchsorted(component, np.arange(n_components + 1))
    first_factor = np.searchsorted(component[ends[:, 0]], np.arange(n_components + 1))
    var_ptr = offsets(np.bincount(slot_var, minlength=len(n_labels)))
    slot_copy = copy_ptr[MOST * tables[slot_factor] + axis]
    sizes = int(padded(n_labels.max(initial=1))), int((cells[:, None] // shape).max(initial=1))
    return Graph(
        n_labels, component, np.asarray(step, np.int64), var_ptr, var_slot, factor_ptr, tables, slot_var,
        slot_factor, slot_copy, first_var, first_factor, shape, table_arity, offsets(cells), copy_ptr, *sizes,
    )  # fmt: skip


class Instances(NamedTuple):
    """The factors of one table of a layout in a graph."""

    number: int  # of the table in layout.tables
    tables: slice  # tables of the graph: one for all, or one for each factor
    token: np.ndarray  # (E,): that has the scores of each, as `SentenceGraph` counts tokens


class SentenceGraph(NamedTuple):
    """Sentences as one graph: variable k m + j is the label of chain j at token k, sentence by sentence."""

    graph: Graph
    row: np.ndarray  # (n,): where the scores of each token stand
    instances: list[Instances]


def by_sentence(step_ptr):
    """(rows of a batch sentence by sentence, the sentence of each, its position); see chain/packing.py."""
    t, r = owners(step_ptr), positions(step_ptr)
    row = np.argsort(r, kind="stable")
    return row, r[row], t[row]


def links_of_batches(packing, links):
    """For each batch {number of a table: int64 (2, E)}, rows of the batch.

    links : {number of a table: int64 (E, 2), tokens of the corpus}, both of one sequence; or None.
    """
    out, row_of = [{} for _ in range(packing.n_batches)], np.argsort(packing.row_token)
    for number, pairs in (links or {}).items():
        ends = row_of[np.reshape(pairs, (-1, 2)).T]
        batch = np.searchsorted(packing.row_ptr, ends[0], side="right") - 1
        order = np.argsort(batch, kind="stable")
        cuts = np.searchsorted(batch[order], np.arange(packing.n_batches + 1))
        for b, found in enumerate(out):
            found[number] = ends[:, order[cuts[b] : cuts[b + 1]]] - packing.row_ptr[b]
    return out


def layout_graph(layout, tokens, n_sentences, links=None) -> SentenceGraph:
    """The `SentenceGraph` of sentences, one component each.

    tokens : (row, sentence, position) of each, as `by_sentence` gives them.
    links : {number of a table: int64 (2, E), rows}. Such a table joins the tokens of these rows in place of
        neighbours.
    """
    row, component, position = tokens
    m, links, token_of = len(layout.sizes), links or {}, np.argsort(row)
    ends, tables, shape, instances, n_tables = [np.zeros((0, MOST), np.int64)], [], [], [], 0
    for number, table in enumerate(layout.tables):
        if len(table.at) == 1:
            continue
        if number in links:
            joined = token_of[links[number]].T
            token = joined[:, 1]
        else:
            token = np.flatnonzero(position >= table.span)
            joined = np.stack([token - table.span + dt for dt, _ in table.at], axis=1)
        at = np.full((len(token), MOST), -1, np.int64)
        at[:, : len(table.at)] = joined * m + [chain for _, chain in table.at]
        n_own = 1 if table.row < 0 else len(token)
        ends.append(at)
        tables.append(n_tables + (np.zeros(len(token), np.int64) if table.row < 0 else np.arange(len(token))))
        shape += [[*table.shape, *[0] * (MOST - len(table.at))]] * n_own
        instances.append(Instances(number, slice(n_tables, n_tables + n_own), token))
        n_tables += n_own
    ends, tables = np.concatenate(ends), np.concatenate([np.zeros(0, np.int64), *tables])
    order = np.argsort(ends.max(axis=1), kind="stable")
    sizes = np.tile(np.array(layout.sizes, np.int64), len(row))
    shape = np.array(shape, np.int64).reshape(-1, MOST)
    each = (np.repeat(part, m) for part in (component, position))
    return SentenceGraph(_graph(sizes, *each, ends[order], tables[order], shape, n_sentences), row, instances)


def rows_scores(layout, rows, log_tables, log_node):
    """(log_phi (V, W), log_tables (cells,)) of a graph. log_tables : those of a layout. log_node (n, M)."""
    graph, m = rows.graph, len(layout.sizes)
    log_phi, log_node = np.full((len(rows.row) * m, graph.width), -np.inf), log_node[rows.row]
    for chain, (size, first) in enumerate(zip(layout.sizes, layout.first, strict=False)):
        log_phi[chain::m, :size] = log_node[:, first : first + size]
    parts = [np.zeros(0)]
    for found in rows.instances:
        table = layout.tables[found.number]
        cells = log_tables[found.number] if table.row < 0 else log_node[found.token, table.cells]
        parts.append(cells.reshape(-1))
    return log_phi, np.concatenate(parts)


def rows_counts(layout, rows, weight, p_var, p_table, p_node, counts):
    """Fill p_node (n, M) with beliefs of the cells of rows, and add to counts (n_tables,), if it is not None.

    p_var (V, W) of each variable, weight (C,) of each sentence; p_table (cells,), weights included.
    """
    graph, m, p_node[:] = rows.graph, len(layout.sizes), 0.0
    p_row = np.zeros((len(rows.row), p_node.shape[1]))
    for chain, (size, first) in enumerate(zip(layout.sizes, layout.first, strict=False)):
        p_row[:, first : first + size] = weight[graph.component[chain::m], None] * p_var[chain::m, :size]
    counts = np.zeros(layout.n_tables) if counts is None else counts
    for found in rows.instances:
        table = layout.tables[found.number]
        p = p_table[graph.cell_ptr[found.tables.start] : graph.cell_ptr[found.tables.stop]]
        p = p.reshape(-1, table.size)
        if table.row >= 0:
            np.add.at(p_row[:, table.cells], found.token, p)
        if table.start >= 0:
            counts[table.weights] += p.sum(axis=0)
    for table in layout.tables:
        if len(table.at) == 1 and table.start >= 0:
            counts[table.weights] += p_row[:, table.cells].sum(axis=0)
    p_node[rows.row] = p_row


def join_tables(graph, tables):
    """log_tables (cells,) from a table for each number; ValueError where one has the wrong shape."""
    if len(tables) != len(graph.table_arity):
        raise ValueError(f"tables: expected {len(graph.table_arity)}, got {len(tables)}")
    for k, (table, shape, n) in enumerate(zip(tables, graph.table_shape, graph.table_arity, strict=True)):
        if np.shape(table) != tuple(shape[:n]):
            raise ValueError(f"table {k}: expected shape {tuple(shape[:n].tolist())}, got {np.shape(table)}")
    return np.concatenate([np.zeros(0), *(np.asarray(table, float).reshape(-1) for table in tables)])


def split_tables(graph, cells):
    """The tables of `join_tables` again, from cells (cells,)."""
    parts = np.split(cells, graph.cell_ptr[1:-1]) if len(graph.table_arity) else []
    shapes = zip(parts, graph.table_shape, graph.table_arity, strict=True)
    return [part.reshape(shape[:n]) for part, shape, n in shapes]
