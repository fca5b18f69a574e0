"""Belief propagation and mean field in which each label chain is one block, summed exactly.

`ChainBlocks` takes single labels, transitions of chains, and links: pairs of labels of two chains at any
distance, or of given pairs of tokens (skip-chain). Forward-backward computes each chain, given the messages
of the others about its labels, until these no longer change (block_sweeps.py). A model without loops is
exact. A sequence whose numbers exceed scaled tables is computed again in logarithms, here.

Source: Sutton, Rohanimanesh and McCallum (2004), section 3.2, with chains as the trees of TRP; structured
mean field: Saul and Jordan (1996), "Exploiting tractable substructures in intractable networks".
"""

from __future__ import annotations

import numpy as np

from crfbook.chain.forward_backward import add_edge_marginals_log, forward_backward_log
from crfbook.data.corpus import offsets, positions
from crfbook.dynamic.block_batch import (
    BELIEFS,
    MEAN_FIELD,
    LinkedSums,
    SweepRule,
    close_dead,
    linked_chains,
    linked_work,
    open_blocks,
)
from crfbook.dynamic.block_sweeps import sweep_blocks
from crfbook.dynamic.graphs import links_of_batches
from crfbook.dynamic.junction import FormWork, JunctionTrees

KINDS = {"block": BELIEFS, "mean-field": MEAN_FIELD}


def block_chains(layout, schedule="block", links=()):
    """Why chain blocks cannot have a layout, in a few words; "" if they can.

    links : more tables, by their number, that join given pairs of tokens.
    """
    for number, table in enumerate(layout.tables):
        chains, span = {chain for _, chain in table.at}, table.span
        given = table.linked or number in links
        both = " and ".join(layout.chains[chain] for chain in sorted(chains))
        name = table.name if table.name != "constraints" else f"constraints of {both}"
        if len(table.at) > 2:
            return f"expected cliques of one or two labels, got {name}"
        if len(table.at) == 1:
            continue
        if table.row >= 0 and (given or span):
            return f"expected one table for all pairs of labels of two tokens, got {name} with attributes"
        if schedule == "mean-field":
            if len(chains) == 1 and (given or span > 1):
                return f"mean field: expected links of two chains, got {name}"
            if len(chains) == 2 and table.allowed is not None:
                return f"mean field: expected all pairs of labels of two chains allowed, got {name}"
    return ""


def _transitions(layout, links):
    """Numbers of the tables of neighbours in one chain; all other pairs are links."""
    return [
        n for n, table in enumerate(layout.tables)
        if len(table.at) == 2 and n not in links
        and table.at[0][1] == table.at[1][1] and [dt for dt, _ in table.at] == [0, 1]
    ]  # fmt: skip


def batch_links(layout, across, links, packing):
    """For each batch (link_ptr (G+1,), end int64 (2, E)): the rows that the links of each group join."""
    found = []
    for b, given in enumerate(links_of_batches(packing, links)):
        step, parts = packing.steps(b), [np.zeros((2, 0), np.int64)]
        for n in across:
            (dt, _), (last, _) = layout.tables[n].at
            if n not in given:
                late = np.arange(step[min(last - dt, len(step) - 1)], step[-1])
                early = np.searchsorted(step, late, side="right") - 1 - (last - dt)
                given[n] = np.stack([step[early] + positions(step)[late], late])
            parts.append(given[n])
        ptr = offsets([part.shape[1] for part in parts[1:]])
        found.append((ptr, np.ascontiguousarray(np.concatenate(parts, axis=1))))
    return found


class ChainBlocks(JunctionTrees):
    """Chain blocks; further arguments than those of `JunctionTrees`:

    options : of `check_options`; its schedule is "block" (belief propagation, log Z is Bethe's) or
        "mean-field" (log Z is a lower bound). A sequence is done when no chain's last update changed a
        message, which sums to one, by tol or more; mean field: a belief at a link.
    links : {number of a table: int64 (E, 2), tokens of the corpus whose labels it joins}.
    """

    def __init__(self, problem, layout, label_sets, limit, options, links=None):
        super().__init__(problem, layout, label_sets, limit)
        links, packing = links or {}, problem.packing
        if reason := block_chains(layout, options.schedule, links):
            raise ValueError(f"inference={options.schedule!r}: {reason}; 'tree' takes any template")
        self.rule = SweepRule(KINDS[options.schedule], options.tol, options.damping, options.max_sweeps)
        self.along = _transitions(layout, links)
        self.across = [
            n for n, table in enumerate(layout.tables) if len(table.at) == 2 and n not in self.along
        ]
        self.links = batch_links(layout, self.across, links, packing)

    def prepare(self, w, what):
        super().prepare(w, what)
        mean_field = self.rule.kind == MEAN_FIELD
        self.blocks = linked_chains(self.layout, self.tables, self.along, self.across, mean_field)

    def work(self, work):
        return FormWork(*work, self._work(len(work.gain), len(work.flags), [ptr for ptr, _ in self.links]))

    def _work(self, n, wide, ptrs):
        ends = [tuple(chain for _, chain in self.layout.tables[g].at) for g in self.across]
        return linked_work(self.layout.sizes, ends, n, wide, ptrs)

    def begin(self):
        blocks = self.blocks
        return LinkedSums(
            np.zeros_like(blocks.psi_pair), np.zeros_like(blocks.psi_link), np.zeros(len(self.bounds.middle))
        )

    def batch_sums(self, batch, work, log_z, sums):
        b, sums = batch.place[0], self.begin() if sums is None else sums
        n_flagged = sweep_blocks(
            batch.step_ptr, self.links[b], batch.weight, batch.log_node, self.blocks, self.rule, log_z,
            batch.p_node, sums, self.stats[self.shard_of[b]], work.own,
        )  # fmt: skip
        sums.row[:] += batch.p_node.sum(axis=0)
        return n_flagged > 0

    def finish(self, sums, part):
        blocks = self.blocks
        link = sums.link if self.rule.kind == MEAN_FIELD else sums.link * blocks.psi_link
        self._add(sums._replace(pair=sums.pair * blocks.psi_pair, link=link), part)

    def _add(self, sums, part):
        """Add whole sums to part (n_tables,)."""
        blocks, tables = self.blocks, self.layout.tables
        begins = {n: (sums.pair, blocks.pair_start[tables[n].at[0][1]]) for n in self.along}
        begins |= {n: (sums.link, link[2]) for n, link in zip(self.across, blocks.link, strict=True)}
        for n, table in enumerate(tables):
            if table.start >= 0:
                found, start = (sums.row, table.row) if table.row >= 0 else begins[n]
                part[table.weights] += found[start : start + table.size]

    def redo(self, batch, r, log_z, part):
        b, rows, weight = batch.place[0], batch.rows(r), batch.weight[r]
        ptr, end = self.links[b]
        here = np.isin(end[0], rows)
        ptr = np.append(0, np.cumsum(here))[ptr]
        p, sums = batch.p_node[: len(rows)].copy(), self.begin()
        p[:] = 0.0
        end = np.searchsorted(rows, end[:, here])
        log_z[r], *stats = self._sums_in_logs(batch.log_node[rows], (ptr, end), p, sums)
        batch.p_node[rows] = weight * p
        self._add(LinkedSums(*(weight * array for array in sums)), part)
        self.stats[self.shard_of[b]] += (1, *stats)

    def _sums_in_logs(self, scores, links, p, sums):
        """(log Z, statistics but the first) of a sequence of T tokens; fills p (T, M) and `sums`.

        scores (T, M). links : (link_ptr (G+1,), end (2, E)), in its tokens.
        """
        blocks, n_steps, first = self.blocks, len(scores), self.layout.first
        (ptr, end), step_ptr = links, np.arange(n_steps + 1)
        work = self._work(n_steps, 1, [ptr])
        if open_blocks(step_ptr, links, scores, blocks, self.rule.kind, work) or blocks.is_hard:
            close_dead(scores, blocks, work)
            if work.done[0]:
                return -np.inf, 0, 0, 0
        chains, groups = [], []
        for size, lo, at in zip(self.layout.sizes, first, blocks.pair_start, strict=False):
            u = work.u[lo * n_steps : (lo + size) * n_steps].reshape(n_steps, size)
            pair = blocks.log_pair[at : at + size * size] if at >= 0 else np.zeros(size * size)
            chains.append(LogBlock(u, pair.reshape(1, size, size)))
        for g, (a, b, at, row) in enumerate(blocks.link):
            ends, shape = end[:, ptr[g] : ptr[g + 1]], (self.layout.sizes[a], self.layout.sizes[b])
            size = shape[0] * shape[1]
            cells = scores[ends[1], row : row + size] if row >= 0 else blocks.log_link[None, at : at + size]
            groups.append(LogLinks((a, b), ends, cells.reshape(-1, *shape)))
        converged, n_sweeps = sweep_in_logs(chains, groups, self.rule)
        log_z = n_messages = 0
        for chain, lo, at in zip(chains, first, blocks.pair_start, strict=False):
            log_z += chain.log_z - chain.energy
            p[:, lo : lo + chain.u.shape[1]] = np.exp(chain.log_p)
            if at >= 0:
                n_messages += 2 * (n_steps - 1) * chain.n_runs
                sums.pair[at : at + chain.log_pair.size] = chain.transitions().reshape(-1)
        for links, (_, _, at, row) in zip(groups, blocks.link, strict=True):
            total, q = links.beliefs(self.rule.kind)
            log_z, n_messages, size = log_z + total, n_messages + links.n_sent, int(np.prod(q.shape[1:]))
            if row >= 0:
                p[links.end[1], row : row + size] = q.reshape(len(q), -1)
            else:
                sums.link[at : at + size] = q.sum(axis=0).reshape(-1)[:size]
        sums.row[:] = p.sum(axis=0)
        return log_z, not converged, n_sweeps, n_messages


class LogBlock:
    """A chain of a sequence of T tokens: scores u (T, L), transitions log_pair (1, L, L)."""

    def __init__(self, u, log_pair):
        self.u, self.log_pair, self.n_runs, self.energy = u, log_pair, 0, 0.0
        self.classes = np.zeros(len(u), np.int32)

    def run(self, mine):
        """Given the messages of its links: [(links, side)]."""
        self.scores, (self.alpha, self.beta) = self.u.copy(), np.empty((2, *self.u.shape))
        for links, side in mine:
            np.add.at(self.scores, links.end[side], links.message[side])
        given = self.scores, self.log_pair, self.classes
        self.log_z = forward_backward_log(*given, self.alpha, self.beta)
        self.log_p = self.alpha + self.beta
        self.log_p -= log_sum(self.log_p)[:, None]
        self.n_runs += 1

    def transitions(self):
        """Their expected counts."""
        counts = np.zeros(self.log_pair.shape)
        given = self.scores, self.log_pair, self.classes, self.alpha, self.beta, self.log_z
        add_edge_marginals_log(*given, 1.0, counts)
        return counts


class LogLinks:
    """The E links of a group in a sequence: chains (a, b), end int64 (2, E), table (E or 1, L_a, L_b)."""

    def __init__(self, chains, end, table):
        self.chains, self.end, self.table, self.n_sent = chains, end, table, 0
        shapes = [(end.shape[1], size) for size in table.shape[1:]]
        self.message = [np.zeros(shape) for shape in shapes]
        self.cavity = [np.full(shape, -1.0) for shape in shapes]

    def take(self, side, log_p, rule):
        """(energy, moved) from the beliefs of the chain at that side; see `take_cavities`."""
        log_p, into = log_p[self.end[side]], self.message[side]
        if rule.kind == MEAN_FIELD:
            q, old = np.exp(log_p), self.cavity[side]
            self.cavity[side] = q
            return (q * into).sum(), not (np.abs(q - old) < rule.tol).all()
        self.cavity[side] = np.subtract(log_p, into, out=log_p, where=log_p > -np.inf)
        return 0.0, False

    def send(self, side, rule):
        """Messages from that side; whether one moved."""
        table, source = self.table if side else self.table.swapaxes(1, 2), self.cavity[side]
        self.n_sent += len(source)
        if rule.kind == MEAN_FIELD:
            self.message[1 - side] = (table * source[:, None, :]).sum(axis=2)
            return False
        old, new = self.message[1 - side], log_sum(table + source[:, None, :])
        new -= log_sum(new)[:, None] - np.log(new.shape[1])
        if rule.damping:
            new = np.logaddexp(np.log1p(-rule.damping) + new, np.log(rule.damping) + old)
        self.message[1 - side] = new
        return not (np.abs(np.exp(new) - np.exp(old)) < rule.tol * new.shape[1]).all()

    def beliefs(self, kind):
        """(what they add to log Z, beliefs (E, L_a, L_b))."""
        left, right = self.cavity
        if kind == MEAN_FIELD:
            q = left[:, :, None] * right[:, None, :]
            return (q * self.table).sum(), q
        q = left[:, :, None] + self.table + right[:, None, :]
        total = log_sum(log_sum(q))
        return total.sum(), np.exp(q - total[:, None, None])


def log_sum(x):
    """log sum exp over the last axis."""
    return np.logaddexp.reduce(x, axis=-1)


def sweep_in_logs(chains, groups, rule):
    """(converged, sweeps): what `sweep_blocks` does, for one sequence."""
    quiet = 0
    for sweep in range(rule.max_sweeps + 1):
        for k, chain in enumerate(chains):
            mine = [(links, side) for links in groups for side in (0, 1) if links.chains[side] == k]
            chain.run(mine)
            found = [links.take(side, chain.log_p, rule) for links, side in mine]
            chain.energy = sum(energy for energy, _ in found)
            if sweep < rule.max_sweeps:
                sent = [links.send(side, rule) for links, side in mine]
                quiet = 0 if any(sent) or any(moved for _, moved in found) else quiet + 1
                if quiet >= len(chains):
                    return True, sweep + 1
    return False, rule.max_sweeps
