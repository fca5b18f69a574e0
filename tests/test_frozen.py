"""What every learner and every form found before the house was turned: five iterations each,
on the built-in twins.

A rebuilding that changes a result by more than rounding fails here, and names the learner. `frozen.json`
beside this file was recorded once, at the commit it names; a kernel that adds in another order moves the last
bits, so numbers are compared at 1e-9, and the labels that are predicted exactly. Where this machine has the
libraries and the processor of the record, the record's hashes say whether even the bits are the same:
`python tests/test_frozen.py` prints that.

A number in frozen.json changes only when a result is meant to change; the commit then says which and why:

    python tests/test_frozen.py --record NAME [NAME ...]
"""

import hashlib
import json
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

RECORD = Path(__file__).with_name("frozen.json")
ITERATIONS = 5
RELATIVE = 1e-9  # rounding moves the last bits of a sum, and five iterations do not make more of that
# Coordinate descent accepts a move by comparing objectives, whose rounding hides moves of the square root of
# 2^-52: other bits make it take or leave such a move. Its weights are compared at 1e-5 of their length, its
# objectives at 1e-9 as all others.
BLURRED = {("cd", "weights"), ("cd", "marginals"), ("path, sbcd", "weights")}
# Words that three sentences do not tell apart have several best labels, and so has one sentence in which
# max-product ends: weights that move by 1e-14 change them. With other libraries or another processor these
# labels are not compared, and the objectives that have the score of that sentence roughly.
TIED = {("dynamic, memory", "labels"): None, ("dynamic, messages", "objective"): 0.02}
N_SHADOWS = 8


@cache
def chunking():
    from crfbook import load_dataset

    data = load_dataset("conll2000", source="builtin", verbose=False)
    return data.train[:100], data.test[:60]


@cache
def letters():
    """Transitions that depend on the letters: many edge classes."""
    from crfbook import load_dataset

    data = load_dataset("nettalk", source="builtin", verbose=False)
    return data.train[:150], data.test[:60]


def quiet(function, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


def crf(data=chunking, template="chunking", **parameters):
    """Weights, objectives, labels and marginals of a CRF after five iterations."""
    from crfbook import CRF

    train, test = data()
    parameters = {"max_iterations": ITERATIONS, "template": template} | parameters
    model = quiet(CRF(**parameters).fit, train)
    return model_results(model, test)


def model_results(model, test):
    marginals = np.concatenate(model.predict_marginals_array(test[:20])).ravel()
    return {
        "weights": model.weights_,
        "objective": model.history_["objective"].to_numpy(),
        "marginals": marginals,
        "labels": np.concatenate(model.predict_array(test)),
    }


def dictionary():
    return crf(constraints="BIO", tag_dictionary=5)


def few_sentences():
    """They are what is labelled, too: most words of others are unknown to so small a model,
    and their labels equally good.
    """
    train, _ = chunking()
    return train[:12], train[:12]


def increments(algorithm):
    """Two visits of `partial_fit`, the second with words that the first has not seen."""
    from crfbook import CRF

    train, test = chunking()
    model = CRF(algorithm=algorithm, template="chunking")
    classes = sorted({label for labels in train.labels_by_sequence() for label in labels})
    quiet(model.partial_fit, train[:40], classes=classes)
    quiet(model.partial_fit, train[40:80])
    marginals = np.concatenate(model.predict_marginals_array(test[:20])).ravel()
    return {
        "weights": model.weights_,
        "marginals": marginals,
        "labels": np.concatenate(model.predict_array(test)),
    }


def sparse_weights(n_features):
    """Weights of which nine in ten are zero."""
    rng = np.random.default_rng(5)
    return rng.normal(size=n_features) * (rng.random(n_features) < 0.1)


@cache
def letter_model():
    """Features of letters and their edge classes, random sparse weights; labelled corpora to evaluate on."""
    from crfbook import CRF

    train, test = letters()
    model = quiet(CRF(template="letter_tests", max_iterations=0).fit, train)
    model.weights_ = sparse_weights(len(model.weights_))
    return model, train, test


def encoded(model, data):
    return model.encoder_.transform(data)


def objective(form, **options):
    """Value and gradient of a corpus with edge classes; curvature where the loss has one."""
    from crfbook.chain.objective import Objective

    model, train, _ = letter_model()
    corpus = encoded(model, train)
    function = Objective(corpus, model.features_, c2=0.5, n_threads=2, form=form, **options)
    value, grad = function(model.weights_)
    found = {"objective": np.array([value]), "weights": grad}
    if function.curvature is not None:
        found["curvature"] = function.curvature(model.weights_)
    return found


def decoding(form):
    model, _, test = letter_model()
    return {"labels": np.concatenate(model.predict_array(test, form=form))}


def marginals(form):
    model, _, test = letter_model()
    return {"marginals": np.concatenate(model.predict_marginals_array(test, form=form)).ravel()}


def probabilities():
    """log p(y | x), edge marginals: what is there in one form only."""
    model, _, test = letter_model()
    edges = np.concatenate([p.ravel() for p in model.predict_edge_marginals(test[:10])])
    return {"objective": model.log_proba(test, test.labels_by_sequence()), "marginals": edges}


def hmm():
    from crfbook import HMM

    train, test = chunking()
    model = HMM(template="words").fit(train)
    tables = [model.start_, model.transition_, model.emission_, model.absent_, model.unknown_]
    return directed_results(model, np.concatenate([table.ravel() for table in tables]), test)


def memm():
    from crfbook import MEMM

    train, test = chunking()
    model = quiet(MEMM(template="chunking", max_iterations=ITERATIONS).fit, train)
    return directed_results(model, model.weights_, test) | {
        "objective": model.history_["objective"].to_numpy()
    }


def directed_results(model, weights, test):
    marginals = np.concatenate(model.predict_marginals_array(test[:20])).ravel()
    edges = np.concatenate([p.ravel() for p in model.predict_edge_marginals(test[:5])])
    return {
        "weights": weights,
        "marginals": np.concatenate([marginals, edges]),
        "labels": np.concatenate(model.predict_array(test)),
    }


def path(**parameters):
    from crfbook import CRF, regularization_path

    train, test = chunking()
    model = CRF(template="chunking", c2=0, max_iterations=ITERATIONS, **parameters)
    found = quiet(regularization_path, model, train, strengths=[4.0, 1.0, 0.25], X_dev=test)
    return {
        "weights": np.concatenate([fitted.weights_ for fitted in found.models]),
        "objective": found.frame["objective"].to_numpy(),
        "scores": found.frame["score"].to_numpy(),
        "labels": np.concatenate(found.best.predict_array(test)),
    }


def tuples():
    from crfbook.learners.tuples.tuple_chain import decode_tuples, train_tuples

    model, train, test = letter_model()
    corpus = encoded(model, train)
    found = train_tuples(
        corpus, model.features_, order=3, c1=0.3, max_rounds=2, max_iterations=ITERATIONS, n_threads=2
    )
    labels = decode_tuples(encoded(model, test), model.features_, found.w, found.tuples, found.nu)
    return {
        "weights": np.concatenate([found.w, found.nu]),
        "labels": labels,
        "objective": np.array([row["objective"] for row in found.rounds]),
    }


@cache
def chunk_model():
    """Features of chunks, random weights whose every tenth is not 0; labelled corpora."""
    from crfbook import CRF

    train, test = chunking()
    model = quiet(CRF(template="chunking", max_iterations=0).fit, train)
    return sparse_weights(len(model.weights_)), model.features_, encoded(model, train), encoded(model, test)


def active_sets():
    """Value, gradient and bound of Method 1 and of the default outside, by share and by mass; and a fit."""
    from crfbook.chain.active import ActiveObjective

    w, features, train, _ = chunk_model()
    values, grads = [], []
    for outside, rule in (("zero", "share"), ("default", "share"), ("default", "mass")):
        objective = ActiveObjective(train, features, c2=0.5, eps=0.02, outside=outside, rule=rule)
        value, grad = objective(w)
        values += [value, objective.error_bound, objective.n_kept]
        grads.append(grad)
    return crf(inference="active", eps=0.02, c2=1.0) | {
        "values": np.array(values), "gradients": np.concatenate(grads)
    }  # fmt: skip


def tied():
    """Methods 3 and 4, their decoding, eq. (10) as printed, and the pseudo-likelihood."""
    from crfbook.chain.active import PseudoLikelihood, TiedObjective, after_another, printed, tied_features
    from crfbook.chain.inference import decode
    from crfbook.chain.objective import Objective

    w, features, train, test = chunk_model()
    later, fewer = tied_features(train, features)
    found, labels = [PseudoLikelihood(train, features, c2=0.5)(w)], []
    for per_label in (False, True):
        objective = TiedObjective(Objective(later, fewer), c2=0.5, per_label=per_label)
        x = sparse_weights(len(objective.start()))
        found.append(objective(x))
        labels.append(decode(after_another(test), fewer, objective.fold(x)))
    labels.append(decode(test, features, printed(features, w)))
    return {
        "objective": np.array([value for value, _ in found]),
        "weights": np.concatenate([grad for _, grad in found]), "labels": np.concatenate(labels),
    }  # fmt: skip


def decoders():
    """Labels of every decoder of large label sets, what it looked at, and the best few with log Z."""
    from crfbook.chain import inference
    from crfbook.decoding import DECODERS, decode, kbest

    w, features, _, test = chunk_model()
    labels, counts = [], []
    for form in DECODERS:
        if form == "beam":  # a decoder that is gone had its place here: the hash that records name stays
            labels, counts = [*labels, labels[0]], [*counts, [12544, 1706, 0]]
        seen = np.zeros(3, np.int64)
        labels.append(
            decode(test, features, w, form=form, beam_width=3 if form == "beam" else 5, counters=seen)
        )
        counts.append(seen)
    labels += [inference.decode(test, features, w, form=form) for form in ("dense", "default")]
    best = kbest(test, features, w, k=3)
    return {
        "labels": np.concatenate([*labels, np.ravel(best.path)]), "counts": np.concatenate(counts),
        "objective": np.concatenate([best.score.ravel(), best.log_proba.ravel()]),
    }  # fmt: skip


def default_form():
    """Stored pairs beside a default: value and gradient of all pairs, and of those that occur."""
    from crfbook.chain.objective import Objective

    w, features, train, _ = chunk_model()
    value, grad = Objective(train, features, c2=0.5, form="default")(w)
    return {"objective": np.array([value]), "weights": grad}


@cache
def two_layers(links=False, n_train=60):
    """(training, test) columns word, pos, chunk; with links also which words are linked."""
    from crfbook import TokenColumns

    found = []
    for part, n in zip(chunking(), (n_train, 20), strict=True):
        columns, some = {**part.columns, "chunk": part.labels}, slice(0, part.seq_ptr[n])
        columns |= {"link": part.columns["word"]} if links else {}
        kept = {name: values[some] for name, values in columns.items()}
        found.append(TokenColumns(kept, part.seq_ptr[: n + 1]))
    return found


def dynamic_model(links=False, memories=False, **options):
    """Two chains, tags and chunks, after five iterations. options : of `factorial`, or the engine."""
    from crfbook import DCRF
    from crfbook.dynamic import factorial, memory, skip

    engine = options.pop("inference", "auto")
    cliques = [*factorial("pos", "chunk", **options), *(skip("chunk") if links else [])]
    cliques += [*memory("chunk", "last", "last other", ["O"])] if memories else []
    model = DCRF(
        cliques, ("pos", "chunk"), template="words", c2=0.1, max_iterations=ITERATIONS, inference=engine,
        link="link" if links else None,
    )  # fmt: skip
    return quiet(model.fit, two_layers(links, 3 if memories else 60)[0])


def dynamic(**options):
    """Weights, objectives, and the labels that are said exactly where that can be."""
    model = dynamic_model(**options)
    said = quiet(model.predict, two_layers("links" in options)[1])
    numbers = {name: {y: i for i, y in enumerate(sorted({y[k] for x in said for y in x}))}
               for k, name in enumerate(("pos", "chunk"))}  # fmt: skip
    return {
        "weights": model.weights_,
        "objective": model.history_["objective"].to_numpy(),
        "labels": np.array([[numbers["pos"][p], numbers["chunk"][c]] for x in said for p, c in x]).ravel(),
    }


def messages():
    """Beliefs of every schedule, converged and stopped; best labellings by messages and with certificates."""
    from crfbook.dynamic import OPTIONS, DynamicModel, decode, decode_dual, marginals, max_product
    from studies.c13 import SCHEDULES, engine_of

    model, test = dynamic_model(), two_layers()[1]
    corpus, beliefs, log_z = model.encoder_.transform(test.select(("word",))), [], []

    def asked(engine, options=OPTIONS):
        return DynamicModel(model.layout_, model.features_, model.weights_, engine, options=options)

    for name in ("elimination", *SCHEDULES):
        p, z = marginals(corpus, asked(*engine_of(name)) if name in SCHEDULES else asked(name))
        beliefs.append(p.sum(0))
        log_z.append(z)
    dual = decode_dual(corpus, asked("elimination"), max_sweeps=5, prune=False)
    best = (
        decode(corpus, asked("elimination"))[1],
        max_product(corpus, asked("sweep"))[1],
        dual.bound,
        dual.score,
    )
    return {"marginals": np.concatenate(beliefs), "objective": np.concatenate([*log_z, *best])}


CASES = {
    "lbfgs": lambda: crf(c2=1.0),
    "lbfgs, tiny": lambda: crf(few_sentences, c2=1.0),
    "lbfgs, BIO and a tag dictionary": dictionary,
    "lbfgs, two threads": lambda: crf(letters, "letter_tests", n_jobs=2),
    "lbfgs, elastic net": lambda: crf(algorithm="lbfgs", c1=0.3, c2=0.3),
    "exp": lambda: crf(loss="exp", clamp=8.0),
    "pointwise-log": lambda: crf(loss="pointwise-log"),
    "pointwise-exp": lambda: crf(loss="pointwise-exp", constraints="BIO"),
    "owlqn": lambda: crf(algorithm="owlqn", c1=0.5, c2=0.0, max_iterations=30),
    "sbcd": lambda: crf(letters, "letter_tests", algorithm="sbcd", c1=0.5, c2=0.0),
    "sbcd, virtual weights": lambda: crf(
        letters,
        "letter_tests",
        algorithm="sbcd",
        c1=0.5,
        c2=0.1,
        all_possible_states=True,
        all_possible_transitions=True,
    ),
    "cd": lambda: crf(few_sentences, "words", algorithm="cd", c1=0.5, c2=0.1),
    "auto": lambda: crf(algorithm="auto", c2=1.0),
    "sdca": lambda: crf(algorithm="sdca", c2=1.0),
    "sag": lambda: crf(algorithm="sag", c2=1.0),
    "sgd": lambda: crf(algorithm="sgd", c2=1.0),
    "sgd-l1": lambda: crf(algorithm="sgd-l1", c1=0.5),
    "perceptron": lambda: crf(algorithm="perceptron"),
    "pa": lambda: crf(algorithm="pa"),
    "arow": lambda: crf(algorithm="arow"),
    "boosting": lambda: crf(algorithm="boosting", template="words"),
    "partial_fit, perceptron": lambda: increments("perceptron"),
    "partial_fit, arow": lambda: increments("arow"),
    "partial_fit, sgd": lambda: increments("sgd"),
    "objective, batched": lambda: objective("batched"),
    "objective, sparse": lambda: objective("sparse"),
    "objective, auto": lambda: objective("auto"),
    "objective, exp": lambda: objective("batched", loss="exp", clamp=8.0),
    "objective, pointwise-log": lambda: objective("batched", loss="pointwise-log"),
    "decoding, dense": lambda: decoding("dense"),
    "decoding, sparse": lambda: decoding("sparse"),
    "marginals, batched": lambda: marginals("batched"),
    "marginals, sparse": lambda: marginals("sparse"),
    "probabilities": probabilities,
    "HMM": hmm,
    "MEMM": memm,
    "path": path,
    "path, sbcd": lambda: path(algorithm="sbcd"),
    "tuples": tuples,
    "active sets": active_sets,
    "tied potentials": tied,
    "decoders": decoders,
    "objective, default": default_form,
    "dynamic": dynamic,
    "dynamic, pairs": lambda: dynamic(features="supported", node_features="none"),
    "dynamic, memory": lambda: dynamic(memories=True),
    "dynamic, links": lambda: dynamic(links=True, inference="block"),
    **{f"dynamic, {name}": lambda name=name: dynamic(inference=name) for name in ("block", "random", "tree")},
    "dynamic, messages": messages,
}


TINY = {"lbfgs, tiny"}  # no kernels; the records of all others are those of kernels, however few sentences


def results(name):
    """Arrays of a case, computed with kernels or without as it was recorded."""
    from crfbook.chain.sparse import choice

    seconds, choice.TINY_SECONDS = choice.TINY_SECONDS, float("inf") if name in TINY else 0.0
    try:
        return CASES[name]()
    finally:
        choice.TINY_SECONDS = seconds


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def shadows(vector):
    """Length of a vector and its products with random ones: a vector that differs has other shadows."""
    rng = np.random.default_rng(len(vector))
    return [
        float(np.linalg.norm(vector)),
        *(float(rng.normal(size=len(vector)) @ vector) for _ in range(N_SHADOWS)),
    ]


def summary(results):
    """What is kept of the arrays of a case."""
    found = {}
    for name, array in results.items():
        kept = {"hash": digest(array), "size": int(np.size(array))}
        if name not in ("labels", "scores"):
            finite = np.where(np.isfinite(array), array, 0.0)
            kept["shadows"] = array.tolist() if np.size(array) <= N_SHADOWS else shadows(finite)
        found[name] = kept
    return found


def machine():
    """Whatever decides the last bits of a result."""
    import llvmlite.binding
    import numba
    import scipy
    from threadpoolctl import threadpool_info

    blas = sorted(
        f"{lib['internal_api']} {lib['version']} {lib.get('architecture')}" for lib in threadpool_info()
    )
    versions = [f"numpy {np.__version__}", f"scipy {scipy.__version__}", f"numba {numba.__version__}"]
    return [*versions, llvmlite.binding.get_host_cpu_name(), *blas]


def frozen():
    return json.loads(RECORD.read_text())


@pytest.mark.parametrize("name", CASES)
def test_what_was_found_is_found_again(name):
    record = frozen()
    wanted, found = record["cases"][name], summary(results(name))
    assert set(found) == set(wanted)
    for part, kept in wanted.items():
        assert found[part]["size"] == kept["size"], part
        here = bits_count(record, name)
        relative = TIED.get((name, part), 1e-5 if (name, part) in BLURRED else RELATIVE)
        if relative is None and not here:
            continue
        if "shadows" not in kept or here:
            assert found[part]["hash"] == kept["hash"], f"{part}: other bits"
        else:
            scale = (
                abs(kept["shadows"][0])
                if len(kept["shadows"]) > N_SHADOWS
                else np.abs(kept["shadows"]).max(initial=1.0)
            )
            np.testing.assert_allclose(
                found[part]["shadows"], kept["shadows"], rtol=relative, atol=relative * scale, err_msg=part
            )


def bits_count(record, name):
    """Are bits compared here, and not numbers at 1e-9? Kernels still add in the order of the record,
    and so does this machine.
    """
    return record["same bits"] and record.get("elsewhere", {}).get(name, record["machine"]) == machine()


def test_another_result_is_noticed():
    """A weight that moves by a millionth, one label that differs."""
    rng = np.random.default_rng(0)
    w, labels = rng.normal(size=2000), rng.integers(5, size=200)
    other, wrong = w.copy(), labels.copy()
    other[7] += 1e-6
    wrong[7] = (wrong[7] + 1) % 5
    before, after = summary({"weights": w, "labels": labels}), summary({"weights": other, "labels": wrong})
    assert not np.allclose(
        after["weights"]["shadows"], before["weights"]["shadows"], rtol=RELATIVE, atol=RELATIVE
    )
    assert before["labels"]["hash"] != after["labels"]["hash"]


def test_every_algorithm_is_frozen():
    from crfbook.models.parameters import ALGORITHMS

    assert set(ALGORITHMS) <= set(CASES) and set(CASES) == set(frozen()["cases"])


def main(arguments):
    """Print which results have the bits of the record; with --record, put the present ones in their place."""
    record = {"same bits": True, "cases": {}, "elsewhere": {}} | (frozen() if RECORD.exists() else {})
    if arguments[:1] == ["--record"]:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        if not arguments[1:]:
            record |= {"commit": commit, "machine": machine(), "elsewhere": {}}
        for name in arguments[1:] or CASES:
            record["cases"][name] = summary(results(name))
            record["elsewhere"].pop(name, None)
            if record["machine"] != machine():
                record["elsewhere"][name] = machine()
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        return
    print(
        "the machine of the record"
        if record["machine"] == machine()
        else "another machine than that of the record"
    )
    for name in CASES:
        now, then = summary(results(name)), record["cases"][name]
        other = [part for part in then if now[part]["hash"] != then[part]["hash"]]
        print(f"{name}: {'the same bits' if not other else 'other bits: ' + ', '.join(other)}")


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1] / "notebooks"))  # where studies is; pytest knows it
    main(sys.argv[1:])
