"""Chapter 17: are probabilities what they say, what decoders that use them gain, what abstaining is worth.

CoNLL-2000 chunks and Spanish names, each with a penalty of c2 = 1 and with one that is far too small. The
temperature is fitted on text that neither training nor test has: the last tenth of the training sentences of
CoNLL-2000, testa of the Spanish names.
"""

import copy
from functools import cache

import numpy as np

from crfbook import CRF
from crfbook.evaluation import SCHEMES, abstention, paired_test, reliability
from crfbook.evaluation.schemes import chunk_lists, reading_of

from .harness import quiet, study
from .records import cells, each, rounded
from .work import TASKS, dataset

SHARES = 0.0, 0.1, 0.25, 0.5
OPTIONS = {"constraints": "BIO", "on_violation": "drop", "tol": 1e-4, "max_iterations": 1000}


@cache
def fitted(corpus, c2, temperature):
    """(the model, test sentences, their labels); it has the temperature 1, or one fitted on held-out text."""
    data, n = dataset(corpus), len(dataset(corpus).train) * 9 // 10
    train, dev = (data.train, data.dev) if "dev" in data.splits else (data.train[:n], data.train[n:])
    if temperature == "fitted":
        model = copy.deepcopy(first := fitted(corpus, c2, "1")[0]).calibrate(known(first, dev))
    else:
        with quiet():
            model = CRF(template=TASKS[corpus].template, c2=c2, **OPTIONS).fit(train)
    return model, data.test, data.test.labels_by_sequence()


def known(model, text):
    """Its sentences whose labels the model can give: seen in training, and allowed."""
    rows, seen = text.labels_by_sequence(), set(model.classes_)
    spans = chunk_lists(rows, reading_of(rows, "BIO"))
    return text.take([i for i, y in enumerate(rows) if set(y) <= seen and written(spans[i], y) == y])


def calibration_rows(corpus, c2, temperature):
    """Expected calibration error (ECE) of tokens and of spans, beside that of a calibrated model."""
    model, test, gold = fitted(corpus, c2, temperature)
    fit = {"value of T": float(getattr(model, "temperature_", 1.0)), "iterations": model.n_iter_}
    fit["gap"] = float(model.history_["violation"].iloc[-1] / model.objective_)
    fit["nats a token"] = float(-model.log_proba(some := known(model, test)).sum() / some.n_tokens)
    for of, said in (("tokens", model.predict_marginals(test)), ("spans", model.predict_spans(test))):
        r = reliability(gold, said, of)
        means = (float(np.average(part, weights=r.size)) for part in r[:2])
        row = dict(zip(("probability", "right", "ECE", "low", "high"), (*means, *r.ece), strict=True))
        yield {"of": of, "n": int(r.size.sum())} | row | {"ECE, calibrated": r.ece_calibrated} | fit


def spans_of(rows):
    """{(sentence, type, start, stop), ...}"""
    return {(i, *span) for i, some in enumerate(chunk_lists(rows, reading_of(rows, "BIO"))) for span in some}


def written(spans, labels):
    """BIO labels that say these spans, as many as `labels`."""
    parts, _ = SCHEMES["BIO"].write([span[:3] for span in spans], len(labels))
    return ["-".join(filter(None, part)) for part in parts]


def decoding_rows(corpus, c2, temperature, n_samples=100):
    """F1 and accuracy of decoders, tests against Viterbi, and what the model itself expects of their F1."""
    model, test, gold = fitted(corpus, c2, temperature)
    listed = enumerate(model.predict_spans(test, "all", least=1e-9))
    p = {(i, *span[:3]): span.probability for i, some in listed for span in some}
    samples = [spans_of(labels) for labels in zip(*model.sample(test, n_samples, 0), strict=True)]
    found = {"Viterbi": model.predict(test), "posterior": model.predict(test, "posterior")}
    found["expected F1"] = list(map(written, model.predict_spans(test, "expected-f1"), gold))
    for decoder, labels in found.items():
        f1, right = (paired_test(gold, found["Viterbi"], labels, metric) for metric in ("f1", "accuracy"))
        mine = spans_of(labels)
        ratio = 2 * sum(map(p.get, mine)) / (len(mine) + sum(p.values()))
        drawn = np.array([2 * len(mine & some) / (len(mine) + len(some)) for some in samples])
        row = {"decoder": decoder, "F1": 100 * f1.value_b, "accuracy": 100 * right.value_b}
        row |= {"p F1": f1.p_value, "p accuracy": right.p_value, "ratio of expectations": 100 * ratio}
        yield row | {"E F1": 100 * drawn.mean(), "its error": 100 * drawn.std(ddof=1) / n_samples**0.5}


def abstention_rows(corpus, c2, temperature, n_random=10):
    """F1 of sentences that are kept, and share of tokens left to a person, by what ranks the sentences."""
    model, test, gold = fitted(corpus, c2, temperature)
    best, length, entropy = model.predict(test), np.array(list(map(len, gold))), model.entropy(test)
    ranks = {"entropy": -entropy, "best labelling": model.log_proba(test, best), "length": -length}
    ranks["entropy a token"] = -entropy / np.maximum(length, 1)
    ranks |= {f"random {k}": np.random.default_rng(k).random(len(length)) for k in range(n_random)}
    for by, rank in ranks.items():
        kept = 100 * np.cumsum(length[np.argsort(-rank, kind="stable")]) / length.sum()
        f1 = 100 * abstention(gold, best, rank, shares=SHARES, scheme="BIO").score
        row = {"by": by} | {f"F1 at {share}": score for share, score in zip(SHARES, f1, strict=True)}
        yield row | {f"tokens at {s}": 100 - kept[len(kept) - 1 - int(s * len(kept))] for s in SHARES}


@study("17_calibration.csv", "17_decoding.csv", "17_abstention.csv", frozen=("lbfgs", "probabilities"))
def how_sure(corpora=("chunking", "ner"), c2=(1.0, 0.001)):
    """Calibration, decoders that use probabilities, and abstention; half an hour."""
    keys = cells(corpus=corpora, c2=c2, temperature=("1", "fitted"))
    for make in (calibration_rows, decoding_rows, abstention_rows):
        name = make.__name__.removesuffix("_rows")
        yield f"17_{name}.csv", each(rounded(make), keys), list(map(dataset, corpora))
