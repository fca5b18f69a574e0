# wrong: swapped axes | test score
def score(path, log_node, log_edge):
    t = np.arange(len(path))
    return log_node[t, path].sum() + log_edge[path[1:], path[:-1]].sum()

# wrong: no max | test log_z
def log_z(log_node, log_edge):
    a = np.exp(log_node[0])
    for u in log_node[1:]:
        a = np.exp(u) * (a @ np.exp(log_edge))
    return np.log(a.sum())
