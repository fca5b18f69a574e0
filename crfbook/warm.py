"""python -m crfbook.warm [--all] [chapter ...]: compile ahead what the chapters use; without a chapter what
a `CRF` of default parameters uses.

Kernels are compiled when they are first called and kept on disk. So this calls them: it trains and predicts
through the public API, on a built-in corpus, two processes at once. What was done before is left out.
"""

import argparse
import os
import sys
import time
import warnings
import zlib
from concurrent.futures import ProcessPoolExecutor, wait
from importlib import import_module
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

N_SENTENCES = 400  # so many that nothing here, prediction included, is small enough to go without kernels
SHORT = {"max_iterations": 2}
_TEMPLATE = "U:%x[0,word]\nU:%x[-1,word]\nB"


def crf(**parameters):
    """Train a CRF and ask it for all that it can tell."""

    def call(train):
        from crfbook import CRF, Tagger

        model = CRF(**{"template": _TEMPLATE, **SHORT, **parameters}).fit(train)
        asked(model, train)
        model.score(train)
        tagger, sentence = Tagger(model, kernels=True), next(iter(train.sentences(labels=False)))
        tagger.kbest(sentence, 2)
        tagger.marginal(tagger.tag(sentence)[0], 0)

    return call


def asked(model, train):
    model.predict(train)
    model.predict_marginals(train)
    list(model.predict_edge_marginals(train))
    model.log_proba(train)


def encoded(train, template=_TEMPLATE, **more):
    """(corpus, features) of a text; more : arguments of `observed`."""
    from crfbook import Encoder
    from crfbook.data.features import observed

    encoder = Encoder(template)
    corpus = encoder.fit_transform(train)
    return corpus, observed(corpus, encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs, **more)


def extreme(train):
    """Sequences whose probabilities underflow: every form and loss computes them once more in logarithms."""
    import numpy as np

    from crfbook.chain.inference import iter_edge_marginals, node_marginals
    from crfbook.chain.objective import Objective

    by_tags = "U:%x[0,word]\nB:%x[0,pos]\nB"  # transitions of many classes, which lose digits in differences
    cases = (_TEMPLATE, 1e3, ("batched", "sparse", "default")), (by_tags, 10.0, ("batched", "sparse"))
    for template, scale, forms in cases:
        corpus, features = encoded(train, template)
        w = np.random.default_rng(0).normal(scale=scale, size=features.n_features)
        for form in forms:
            objective = Objective(corpus, features, form=form)
            objective(w)
            objective.curvature(w)
            node_marginals(corpus, features, w, form=form)
        for loss in ("exp", "pointwise-log", "pointwise-exp"):
            Objective(corpus, features, loss=loss)(w)
        list(iter_edge_marginals(corpus, features, w))


def starts(train):
    """Learners that go on from weights; what they know of these before the first step."""
    from crfbook.chain.objective import Objective
    from crfbook.learners.online import perceptron
    from crfbook.learners.quasi_newton import minimize, proximal_gradient
    from crfbook.learners.stochastic import sdca

    corpus, features = encoded(train)
    w = perceptron(corpus, features, max_iterations=1).w
    perceptron(corpus, features, w, max_iterations=0)
    sdca(corpus, features, w, c2=1.0, max_iterations=1)
    objective = Objective(corpus, features)
    minimize(objective, w, c1=1.0, l1_method="owlqn", max_iterations=2)
    proximal_gradient(objective, w, c1=1.0, max_iterations=1)


def blocks(train):
    """Coordinate descent where Python makes the visit of a block: large ones, exact curvatures; and sequences
    whose probabilities underflow.
    """
    import numpy as np

    from crfbook.learners.coordinate import coordinate_descent

    corpus, features = encoded(train[:20])
    w = np.random.default_rng(0).normal(scale=1e3, size=features.n_features)
    for start in (None, w):
        options = {"c1": 1.0, "c2": 0.1, "curvature": "exact", "max_iterations": 1}
        coordinate_descent(corpus, features, start, **options)


def directed(train):
    """HMM and MEMM."""
    from crfbook import HMM, MEMM

    for model in (HMM(template="U:%x[0,word]\nB"), MEMM(template=_TEMPLATE, **SHORT)):
        asked(model.fit(train), train)


def path(train):
    from crfbook import CRF, regularization_path

    regularization_path(CRF(algorithm="owlqn", template=_TEMPLATE, **SHORT), train, n_strengths=2)


def tuples(train):
    """Weights on label tuples."""
    from crfbook.learners.tuples import decode_tuples, train_tuples

    corpus, features = encoded(train, all_transitions=True)
    found = train_tuples(corpus, features, c1=1.0, max_rounds=1, max_iterations=2)
    decode_tuples(corpus, features, found.w, found.tuples, found.nu)


def decoders(train):
    """Every decoder, and the k best labellings with tables and with stored pairs."""
    from crfbook.decoding import DECODERS, decode, kbest
    from crfbook.learners.online import perceptron

    corpus, features = encoded(train)
    w = perceptron(corpus, features, max_iterations=1).w
    for form in ("dense", "sparse", "default", *DECODERS):
        decode(corpus, features, w, form=form)
    for form in ("dense", "default"):
        kbest(corpus, features, w, k=2, form=form)


def many_labels(train):
    """What hundreds of labels choose: stored pairs, eight sequences side by side, and SGD on them."""
    from crfbook.chain.objective import Objective
    from crfbook.learners.stochastic import sgd, sgd_l1

    corpus, features = encoded(train)
    objective = Objective(corpus, features, form="default")
    w = sgd(corpus, features, c2=1.0, eps=1e-3, max_iterations=1, calibration_samples=10).w
    objective(w)
    objective.curvature(w)
    sgd_l1(corpus, features, c1=1.0, eps=1e-3, max_iterations=1)


def dynamic(train):
    """DCRF: two chains by elimination, and what goes through junction trees."""
    from crfbook import DCRF
    from crfbook.dynamic import factorial

    both = {"labels": ("pos", "chunk"), "template": _TEMPLATE, **SHORT}
    for cliques in (factorial("pos", "chunk"), factorial("pos", "chunk", skew=True)):
        model = DCRF(cliques, **both).fit(train)
        model.predict(train)
        model.predict_marginals(train)
    model.predict_kbest(train[:5], k=2)
    for inference in ("junction", "block", "sweep", "tree", "residual"):
        limits = {"chunk": "BIO"} if inference == "block" else None
        model = DCRF(inference=inference, constraints=limits, **both).fit(train[:5])
        model.predict(train[:5], form="exact" if inference == "junction" else "max-product")
        model.weights_ = 1e4 * model.weights_  # probabilities underflow
        model.predict_marginals(train[:5])
    model.predict(train[:5], form="dual")


# job -> what it calls, and the chapters that need it; the longest first
JOBS = {
    "crf": (crf(), "00 01 02 03 04 05 06 09 10 12 14 15 16 17"),
    "sbcd": (
        crf(algorithm="sbcd", c1=1.0, all_possible_states=True, all_possible_transitions=True),
        "07 08 09",
    ),
    "blocks": (blocks, "07 08 09"),
    "bio": (crf(constraints="BIO"), "00 02 16 17"),
    "directed": (directed, "01"),
    "exp": (crf(loss="exp"), "04"),
    "pointwise-log": (crf(loss="pointwise-log"), "04"),
    "pointwise-exp": (crf(loss="pointwise-exp"), "04"),
    "perceptron": (crf(algorithm="perceptron"), "05 11 14"),
    "pa": (crf(algorithm="pa"), "05"),
    "arow": (crf(algorithm="arow"), "05"),
    "boosting": (crf(algorithm="boosting"), "05"),
    "sgd": (crf(algorithm="sgd"), "05"),
    "sag": (crf(algorithm="sag"), "05"),
    "sdca": (crf(algorithm="sdca"), "05"),
    "auto": (crf(algorithm="auto"), "15"),
    "owlqn": (crf(algorithm="owlqn", c1=1.0), "06 09"),
    "sgd-l1": (crf(algorithm="sgd-l1", c1=1.0), "06"),
    "cd": (crf(algorithm="cd", c1=1.0), "07 08 09"),
    "tuples": (tuples, "08"),
    "decoders": (decoders, "11"),
    "active": (crf(inference="active"), "10"),
    "l1": (crf(c1=1.0), "06 09"),
    "starts": (starts, "05 06"),
    "extreme": (extreme, "04 06 10"),
    "many labels": (many_labels, "10"),
    "dynamic": (dynamic, "12 13"),
    "path": (path, "09"),
}
DEFAULT = ("crf",)


def run(job):
    """Do one job in this process. Returns the number of kernels that it compiled."""
    from crfbook import _jit, load_dataset

    before = _jit.COUNTER.n_done
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(?!.*_jit)")  # two iterations reach no optimum
        JOBS[job][0](load_dataset("conll2000", source="builtin", verbose=False).train[:N_SENTENCES])
    mark = done(job)
    if mark is not None and _jit.all_kept():
        mark.touch()
    return _jit.COUNTER.n_done - before


def done(job):
    """The file that says: this job was done, with this Python and numba, on such a processor.
    None: no folder.
    """
    from llvmlite.binding import get_host_cpu_name

    from crfbook._jit import CACHE_FOLDER

    about = f"{version('numba')} {get_host_cpu_name()}"  # numba drops what another version has kept
    stamp = zlib.crc32(Path(__file__).read_bytes() + about.encode())
    name = f"{job}-{sys.implementation.cache_tag}-{stamp:08x}.warm"
    return None if CACHE_FOLDER is None else Path(CACHE_FOLDER) / name


def jobs_of(chapters):
    """The jobs that these chapters ("03" or "03_features_and_training") need, in the order of the table."""
    wanted = {name[:2] for name in chapters}
    return [job for job, (_, users) in JOBS.items() if wanted & set(users.split())]


def warm(jobs):
    """Do these jobs. Returns {job: number of kernels, or what went wrong}."""
    from tqdm import tqdm

    found, pool = {}, ProcessPoolExecutor(2, get_context("spawn"))
    try:
        with tqdm(total=len(jobs), unit="job", desc="compiling kernels", disable=None) as bar:
            under_way = {pool.submit(run, job): job for job in jobs}
            while under_way:
                for future in wait(under_way, timeout=0.5, return_when="FIRST_COMPLETED").done:
                    job, error = under_way.pop(future), future.exception()
                    found[job] = future.result() if error is None else error
                    bar.update()
                bar.refresh()
    except BaseException:  # Ctrl-C: what is under way is given up, not waited for
        for process in list(pool._processes.values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return found


def main(argv=None):
    chapters = sorted({number for _, users in JOBS.values() for number in users.split()})
    parser = argparse.ArgumentParser(
        prog="python -m crfbook.warm",
        description="compile kernels ahead: of these chapters, or of a CRF with default parameters",
    )
    parser.add_argument("chapters", nargs="*", metavar="chapter", help=", ".join(chapters))
    parser.add_argument("--all", action="store_true", help="those of all chapters")
    options = parser.parse_args(argv)
    unknown = [name for name in options.chapters if name[:2] not in chapters]
    if unknown:
        parser.error(f"expected chapters among {', '.join(chapters)}; got {', '.join(unknown)}")
    jobs = list(JOBS) if options.all else jobs_of(options.chapters) or list(DEFAULT)
    start = time.perf_counter()
    try:
        if import_module("crfbook._jit").config.DISABLE_JIT:
            print("NUMBA_DISABLE_JIT is set: there is nothing to compile")
            return 0
        left = [job for job in jobs if done(job) is None or not done(job).exists()]
        if not left:
            print("all kernels are in the cache: nothing to compile")
            return 0
        found = warm(left)
    except KeyboardInterrupt:
        print("interrupted: what was compiled is kept", file=sys.stderr)
        return 130
    failed = {job: error for job, error in found.items() if isinstance(error, BaseException)}
    n_kernels = sum(n for job, n in found.items() if job not in failed)
    print(f"{n_kernels} kernels compiled in {time.perf_counter() - start:.0f} s ({', '.join(left)})")
    for job, error in failed.items():
        print(f"{job} failed: {type(error).__name__}: {error}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # two processes share the processors
    sys.exit(main())
