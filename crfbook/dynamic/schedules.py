"""In which order messages are sent: spanning trees, and the queue of the largest changes.

`graph` is a `Graph` (graphs.py). A spanning tree joins variables and factors: a factor of two variables is in
it with both slots or not at all, one of more may be in it with some of them.
"""

from crfbook._jit import kernel
from crfbook.dynamic.log_messages import log_sweep
from crfbook.dynamic.sum_product import sum_product_sweep


@kernel
def _root(x, above):
    """The representative of x; paths are halved."""
    while above[x] != x:
        above[x] = above[above[x]]
        x = above[x]
    return x


@kernel
def spanning_forest(factors, graph, used, picked, above):
    """picked <- 1 for the slots of a spanning forest, 0 for others; used is raised to it. Kruskal's way:
    factors with a slot that was never used first, slots that were never used first, each if it closes no
    loop. A factor that would keep one slot keeps none.

    Arguments: factors (n,), shuffled; graph; used uint8 (S,); out: picked uint8 (S,); work: above (V + F,).
    Cost: nearly linear. Source: Wainwright, Jaakkola and Willsky (2003); docs/SPEC.md, B.4.
    """
    n_vars = graph.n_labels.size
    picked[:] = 0
    for x in range(above.size):
        above[x] = x
    for turn in range(2):
        for i in range(factors.size):
            f = factors[i]
            first, last, n_used, n_picked = graph.factor_ptr[f], graph.factor_ptr[f + 1], 0, 0
            for s in range(first, last):
                n_used += used[s]
            if (n_used == last - first) != (turn == 1):
                continue
            for again in range(2):
                for s in range(first, last):
                    x, y = _root(graph.slot_var[s], above), _root(n_vars + f, above)
                    if used[s] == again and x != y:
                        above[x] = y
                        picked[s] = 1
                        n_picked += 1
            if n_picked == 1:
                picked[first:last] = 0
    for s in range(used.size):
        used[s] |= picked[s]


@kernel
def forest_order(variables, graph, picked, order, came_by, queue, entry):
    """order <- the slots of a forest as messages are sent: in each tree from the leaves to its first variable
    and back; how many. Each slot that is picked has one message.

    Arguments: variables (n,), of whole components; graph; picked uint8 (S,); out: order (S,); work: came_by
    (V,), queue (V,), entry (F,). Cost: linear. Source: docs/SPEC.md, B.4.
    """
    n = 0
    came_by[:] = -2
    for root in variables:
        if came_by[root] != -2:
            continue
        came_by[root], queue[0] = -1, root
        head, size, n_factors = 0, 1, 0
        while head < size:
            v = queue[head]
            head += 1
            for i in range(graph.var_ptr[v], graph.var_ptr[v + 1]):
                s = graph.var_slot[i]
                if picked[s] and s != came_by[v]:
                    entry[n_factors] = s
                    n_factors += 1
                    f = graph.slot_factor[s]
                    for e in range(graph.factor_ptr[f], graph.factor_ptr[f + 1]):
                        if picked[e] and e != s:
                            came_by[graph.slot_var[e]] = e
                            queue[size] = graph.slot_var[e]
                            size += 1
        for i in range(n_factors - 1, -1, -1):
            order[n] = entry[i]
            n += 1
        for i in range(n_factors):
            f = graph.slot_factor[entry[i]]
            for e in range(graph.factor_ptr[f], graph.factor_ptr[f + 1]):
                if picked[e] and e != entry[i]:
                    order[n] = e
                    n += 1
    return n


@kernel
def _sift(i, size, queue):
    """Move entry i of a heap of `size` slots up or down to where its priority belongs."""
    heap, place, priority = queue.heap, queue.place, queue.priority
    s = heap[i]
    while i > 0 and priority[heap[(i - 1) // 2]] < priority[s]:
        heap[i] = heap[(i - 1) // 2]
        place[heap[i]] = i
        i = (i - 1) // 2
    while 2 * i + 1 < size:
        below = 2 * i + 1
        if below + 1 < size and priority[heap[below + 1]] > priority[heap[below]]:
            below += 1
        if priority[heap[below]] <= priority[s]:
            break
        heap[i] = heap[below]
        place[heap[i]] = i
        i = below
    heap[i], place[s] = s, i


@kernel
def _propose(s, c, graph, potentials, domain, msg, queue, state, work):
    """queue.new[s] <- the message along slot s of component c, its priority <- the change."""
    queue.one[0], state.change[c] = s, 0.0
    what = graph, potentials, msg, queue.new, 0.0
    if domain == 0:
        sum_product_sweep(queue.one, *what, state.change, state.lost, work)
    else:
        log_sweep(queue.one, *what, domain - 1, state.change, state.lost, work)
    queue.priority[s] = state.change[c]


@kernel
def residual_messages(components, graph, potentials, domain, msg, tol, most, queue, state, work):
    """Always the message that would change most, until none would change by tol, or most * slots are sent,
    those of earlier calls included.

    The new messages of all slots wait in a heap. Where one is sent, those that depend on it are computed
    again.
    Arguments: components (n,); graph; potentials; domain, see loopy.py; out: msg (S, W); tol; most; work:
    queue, a `Queue`; out: state, a `State` (both loopy.py); work, a `Buffers`. Returns how many messages were
    computed. Cost: a message and the depth of the heap for each neighbour of what is sent. Source: Elidan,
    McGraw and Koller (2006), Residual belief propagation.
    """
    n_computed = 0
    for c in components:
        lo = graph.factor_ptr[graph.first_factor[c]]
        size = graph.factor_ptr[graph.first_factor[c + 1]] - lo
        for i in range(size):
            _propose(lo + i, c, graph, potentials, domain, msg, queue, state, work)
            queue.heap[i] = lo + i
            _sift(i, i + 1, queue)
        n_computed += size
        sent, left = 0, (most - state.sweeps[c]) * size
        while sent < left and queue.priority[queue.heap[0]] >= tol and not state.lost[c]:
            best = queue.heap[0]
            v = graph.slot_var[best]
            for y in range(msg.shape[1]):
                msg[best, y] = queue.new[best, y]
            queue.priority[best] = 0.0
            _sift(0, size, queue)
            sent += 1
            for i in range(graph.var_ptr[v], graph.var_ptr[v + 1]):
                f = graph.slot_factor[graph.var_slot[i]]
                for e in range(graph.factor_ptr[f], graph.factor_ptr[f + 1]):
                    if graph.var_slot[i] != best and e != graph.var_slot[i]:
                        _propose(e, c, graph, potentials, domain, msg, queue, state, work)
                        _sift(queue.place[e], size, queue)
                        n_computed += 1
        state.change[c] = queue.priority[queue.heap[0]] if size else 0.0
        state.sweeps[c] += -(-sent // size) if size else 0
    return n_computed


@kernel
def copy_tables(log_tables, graph, copies):
    """copies <- each table once for each of its axes, that axis last; what pads it is left as it is.

    Arguments: log_tables (cells,); graph; out: copies (graph.copy_ptr[-1],). Cost: arity a cell. Source:
    docs/SPEC.md, B.4.
    """
    for k in range(graph.table_arity.size):
        size = graph.cell_ptr[k + 1] - graph.cell_ptr[k]
        behind = size
        for axis in range(graph.table_arity[k]):
            n = graph.table_shape[k, axis]
            behind //= n
            for before in range(size // (n * behind)):
                for y in range(n):
                    cell = graph.cell_ptr[k] + (before * n + y) * behind
                    copy = graph.copy_ptr[4 * k + axis] + before * behind * (n + 3 & -4) + y
                    for r in range(behind):
                        copies[copy + r * (n + 3 & -4)] = log_tables[cell + r]
