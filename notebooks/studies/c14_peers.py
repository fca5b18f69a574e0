"""Chapter 14: tools in Python as programs of their own, and the watch over any program.

    python c14_peers.py watch ARGUMENTS      # of `watch`, a dict as JSON; prints what it saw, as JSON
    python c14_peers.py train TOOL TEXT MODEL PARAMETERS
    python c14_peers.py tag TOOL TEXT MODEL ANSWER
    python c14_peers.py layer TOOL SCORES ANSWER

It imports the standard library alone before it knows what to do. So any Python runs it, and the watch stays
small: the system counts the memory of who starts a program as that program's.
"""

import json
import os
import re
import resource
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median

BATCH, MOST_CELLS = 128, 200_000_000  # sentences of a batch; numbers in torch-struct's tables, B T L^3
THREADS = dict.fromkeys(["OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"], "1")


def watch(command, line=None, goal=float("-inf"), limit=None, most=float("inf")):
    """What became of a program: [[CPU s, objective]] of its iterations, CPU s, MB, exit code, last words.

    line : expression that finds an objective in what it prints. The first of at most `goal` ends the program,
    and so does number `most`.
    limit : CPU seconds, after which the system ends it. Those of iterations count from a line "begin".
    """

    def spent():
        ticks = Path(f"/proc/{program.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")

    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": os.environ | THREADS}
    bound = f'ulimit -c 0; ulimit -t {limit or "unlimited"}; exec "$0" "$@"'
    program = subprocess.Popen(["sh", "-c", bound, *command], text=True, errors="replace", **pipes)
    trace, said, begun = [], [], 0.0
    for text in program.stdout:
        said = [*said[-2:], text.strip()]
        if text == "begin\n":
            begun = spent()
        elif line and (found := re.search(line, text)):
            trace.append([spent() - begun, float(found[1])])
            if trace[-1][1] <= goal or len(trace) >= most:
                program.kill()
    code, used = program.wait(), resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    return {"trace": trace, "cpu": seconds, "MB": used.ru_maxrss / 1e3, "code": code, "said": said}


def sentences(path, most=None):
    """The words of each line of each sentence, but for the first."""
    blocks = Path(path).read_text(encoding="utf-8").split("\n\n")[:-1][:most]
    return [[line.split(" ")[1:] for line in block.split("\n")] for block in blocks]


def as_taken(tool, rows):
    """Tokens as lists of attributes, or, for chaine, as dicts."""
    return [[dict.fromkeys(words, 1.0) for words in x] for x in rows] if tool == "chaine" else rows


def train(tool, text, model, parameters):
    """Fit a tool to a text with labels: it prints its objectives, after "begin", and writes its model."""
    rows, options = sentences(text), json.loads(parameters)
    y, X = [[words.pop() for words in one] for one in rows], as_taken(tool, rows)
    if tool == "crfbook":
        from crfbook import CRF

        CRF(**options | {"max_iterations": 2}).fit(X, y)  # compiles
        told = {"callback": lambda step, w: print("Loss:", step.objective, flush=True)}
        run = partial(CRF(model_filename=model, **options).fit, **told)
    elif tool == "chaine":
        from chaine import train

        run = partial(train, model_filepath=model, algorithm="lbfgs", **options)
    elif tool == "sklearn-crfsuite":
        from sklearn_crfsuite import CRF

        run = CRF(trainer_cls=printing(), model_filename=model, **options).fit
    else:
        run = partial(crfsuite, model, {name.replace("all_", "feature."): x for name, x in options.items()})
    print("begin", flush=True)
    run(X, y)


def printing():
    """A trainer of python-crfsuite that prints all messages."""
    import pycrfsuite

    told = {"message": lambda self, text: print(text, end="", flush=True)}
    return type("Trainer", (pycrfsuite.Trainer,), told)


def crfsuite(model, params, X, y):
    trainer = printing()("lbfgs", params, verbose=False)
    for pair in zip(X, y, strict=True):
        trainer.append(*pair)
    trainer.train(model)


def tag(tool, text, model, answer):
    """Write labels, and CPU seconds: to the first sentence, of all, of all one by one, of Viterbi alone."""
    one, many = opened(tool, model)
    one(as_taken(tool, sentences(text, 1))[0])
    found, X = {"start": time.process_time()}, as_taken(tool, sentences(text))
    found |= {"labels": [list(y) for y in many(X)], "whole": seconds(many, X)}
    found["one"] = seconds(lambda: [one(x) for x in X])
    if tool == "python-crfsuite":
        found["Viterbi"] = sum(one.__self__.set(x) or seconds(one, times=1) for x in X)
    Path(answer).write_text(json.dumps(found | {"version": version(tool)}), encoding="utf-8")


def opened(tool, path):
    """Functions that tag a sentence and a list of them."""
    if tool == "sklearn-crfsuite":
        from sklearn_crfsuite import CRF

        return (model := CRF(model_filename=path)).predict_single, model.predict
    if tool == "chaine":
        from chaine.crf import Model

        return (model := Model(path)).predict_single, model.predict
    if tool == "crfbook":
        from crfbook import Tagger
    else:
        from pycrfsuite import Tagger
    (tagger := Tagger()).open(path)
    return tagger.tag, getattr(tagger, "tag_many", lambda X: list(map(tagger.tag, X)))


def seconds(run, *arguments, times=3):
    """Median of the CPU seconds of some calls."""
    spent = []
    for _ in range(times):
        begin = time.process_time()
        run(*arguments)
        spent.append(time.process_time() - begin)
    return median(spent)


# ---- layers: scores are given ----


def layer(tool, scores, answer):
    """Write log p of all labels, and CPU seconds: of it with its gradient, of Viterbi."""
    import numpy as np

    log_p, step, viterbi = LAYERS[tool](**np.load(scores))
    found = {"log p": log_p(), "pass": seconds(step), "Viterbi": seconds(viterbi), "version": version(tool)}
    Path(answer).write_text(json.dumps(found), encoding="utf-8")


def of_crfbook(node, edge, seq_ptr, labels):
    """Each token has an attribute of its own, whose weights are the scores of its labels."""
    import numpy as np

    from crfbook import make_corpus
    from crfbook.chain.inference import decode
    from crfbook.chain.objective import Objective
    from crfbook.data.features import observed

    n, n_labels = node.shape
    corpus = make_corpus(seq_ptr, np.arange(n + 1), np.arange(n), labels=labels)
    features = observed(corpus, n_labels, n, 1, all_states=True, all_transitions=True)
    w, objective = np.concatenate([node.ravel(), edge.ravel()]), Objective(corpus, features)
    return lambda: -objective(w)[0], lambda: objective(w), lambda: decode(corpus, features, w)


def batches(node, seq_ptr, labels, size=BATCH):
    """(scores (B, T, L), labels (B, T), mask (B, T)) of sentences of similar length, padded, float32."""
    import numpy as np
    import torch

    torch.set_num_threads(1)
    length = np.diff(seq_ptr)
    order = np.argsort(length, kind="stable")
    for some in np.split(order, range(size, len(order), size)):
        place = np.minimum(seq_ptr[some, None] + np.arange(length[some[-1]]), len(node) - 1)
        scores = torch.tensor(node[place], dtype=torch.float32, requires_grad=True)
        mask = torch.tensor(np.arange(length[some[-1]]) < length[some, None])
        yield scores, torch.tensor(labels[place]), mask


def over(work, log_p, viterbi):
    """Functions of all batches, from those of one."""
    import torch

    best = torch.no_grad()(lambda: [viterbi(*batch) for batch in work])
    step = lambda: [log_p(*batch).backward() for batch in work]  # noqa: E731
    return lambda: sum(log_p(*batch).item() for batch in work), step, best


def of_pytorch_crf(node, edge, seq_ptr, labels):
    import torch
    from torchcrf import CRF

    crf, work = CRF(len(edge), batch_first=True), list(batches(node, seq_ptr, labels))
    for weights, values in zip(crf.parameters(), (0.0, 0.0, edge), strict=True):  # of starts, ends, pairs
        weights.data[:] = torch.as_tensor(values)
    log_p = partial(crf, reduction="sum")
    return over(work, log_p, lambda x, y, mask: crf.decode(x, mask))


def of_torch_struct(node, edge, seq_ptr, labels):
    import torch
    from torch_struct import LinearChainCRF

    size = int(min(BATCH, max(1, MOST_CELLS // (max(seq_ptr[1:] - seq_ptr[:-1]) * len(edge) ** 3))))
    pairs = torch.tensor(edge, dtype=torch.float32, requires_grad=True)

    def chain(x, mask):
        """Of tables (B, T - 1, L, L): [label, label before]; the scores of first tokens join the first."""
        tables = pairs.T + x[:, 1:, :, None]
        first = torch.nn.functional.pad(x[:, :1, None], (0, 0, 0, 0, 0, tables.shape[1] - 1))
        return LinearChainCRF(tables + first, lengths=mask.sum(1))

    def log_p(x, y, mask):
        log_z = x[:, 0].logsumexp(1)  # of sentences of one token, which have no table
        if x.shape[1] > 1:
            log_z = torch.where(mask[:, 1], chain(x, mask).partition, log_z)
        own = (x.gather(2, y[..., None])[..., 0] * mask).sum()
        return own + (pairs[y[:, :-1], y[:, 1:]] * mask[:, 1:]).sum() - log_z.sum()

    def viterbi(x, y, mask):
        return chain(x, mask).argmax if x.shape[1] > 1 else x.argmax(2)

    return over(list(batches(node, seq_ptr, labels, size)), log_p, viterbi)


LAYERS = {"crfbook": of_crfbook, "pytorch-crf": of_pytorch_crf, "torch-struct": of_torch_struct}


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    if what == "watch":
        print(json.dumps(watch(**json.loads(given[0]))))
    else:
        {"train": train, "tag": tag, "layer": layer}[what](*given)
