"""Chunks of labels of any scheme, with any separator: what a report or a path counts in silence is what was
written down. All else is refused, or warned of.
"""

import warnings

import pytest
from helpers.attacks import attacks, one_sentence

from crfbook import CRF, regularization_path
from crfbook.evaluation import chunk_report
from crfbook.evaluation.schemes import EVERY_TAG, reading

pytestmark = pytest.mark.kernels
# how a chunk of n tokens begins, goes on, ends, stands alone; with {type}
SCHEMES = {
    "BIO": "BIIB", "IOE2": "IIEE", "BIOES": "BIES", "BMES": "BMES", "BILOU": "BILU", "BMEWO": "BMEW",
    "IO": "IIII", "IOB1": "IIII", "IOE1": "IIII",
}  # fmt: skip
FORMS = (
    "{0}-{1}",
    "{0}-{1}",
    "{0}-{1}",
    "{0}-{1}",
    "{0}_{1}",
    "{0}:{1}",
    "{0}/{1}",
    "{0}{1}",
    "{1}-{0}",
    "{1}",
    "{0}",
)
TYPES = "X", "Y", "A-B", "0", "", "ö", "x y", "PER", "np", "\ud800", "1"
ODD = (
    "-",
    "B-",
    "X-B",
    "Q-X",
    "B",
    "S",
    ".",
    "[",
    "]",
    "o",
    "",
    " O",
    "O-X",
    0,
    1,
    2.5,
    True,
    ("B", "X"),
    b"B-X",
)


def written(rng, scheme, form, types, n):
    """(labels of n tokens, their chunks (type, start, stop)) in a scheme."""
    labels, spans, t = [], [], 0
    begin, inner, end, alone = SCHEMES[scheme]
    while t < n:
        if rng.random() < 0.4:
            labels.append("O")
            t += 1
            continue
        size, kind = int(rng.integers(1, min(3, n - t) + 1)), rng.one_of(types)
        touches = bool(spans) and spans[-1][2] == t and spans[-1][0] == kind
        if scheme == "IO" and touches:
            labels.append("O")
            t += 1
            continue
        tags = alone if size == 1 else begin + inner * (size - 2) + end
        if scheme == "IOB1" and touches:
            tags = "B" + tags[1:]
        if scheme == "IOE1" and touches:
            labels[-1] = form.format("E", kind)
        labels += [form.format(tag, kind) for tag in tags]
        spans.append((kind, t, t + size))
        t += size
    return labels, spans


def counted(gold, found, scheme):
    """(correct, gold, predicted) chunks: the loop of conlleval over tokens, and what IOBES adds."""
    correct = n_gold = n_found = 0
    inside, a, b = False, ("O", ""), ("O", "")

    def parts(label):
        tag, dash, kind = str(label).partition("-")
        return (tag, "" if kind == "0" else kind) if dash else (tag, "")

    def ends(a, b):
        (p, kind), (q, other) = a, b
        plain = (p + q) in ("BB", "IB", "BO", "IO", "EE", "EI", "EO") or (
            kind != other and p not in ("O", ".")
        )
        return (
            plain
            or p in "[]"
            and p
            or scheme == "IOBES"
            and (p in ("E", "S") or p != "O" and q in ("B", "S"))
        )

    def starts(a, b):
        (p, kind), (q, other) = a, b
        plain = (p + q) in ("BB", "IB", "OB", "OI", "EE", "EI", "OE") or (
            kind != other and q not in ("O", ".")
        )
        return plain or q in "[]" and q or scheme == "IOBES" and (q in ("B", "S") or p == "S" and q != "O")

    for one, other in zip(gold, found, strict=True):
        for labels in [*zip(one, other, strict=True), ("O", "O")]:
            x, z = map(parts, labels)
            ended = bool(ends(a, x)), bool(ends(b, z))
            if inside and all(ended):
                inside, correct = False, correct + (a[1] == b[1])
            elif inside and (any(ended) or x[1] != z[1]):
                inside = False
            begun = bool(starts(a, x)), bool(starts(b, z))
            inside = inside or (all(begun) and x[1] == z[1])
            n_gold, n_found, a, b = n_gold + begun[0], n_found + begun[1], x, z
    return correct + inside, n_gold, n_found  # the end of the file closes what is open


def plain(rows, read):
    """Labels as B-x, whatever the separator, with E and S for L and U."""
    same = str.maketrans("LU", "ES")
    parts = [[read.split(y) for y in row] for row in rows]
    return [
        [f"{tag.translate(same)}-{kind or '_'}" if tag != "O" else tag for tag, kind in row] for row in parts
    ]


def f1(counts):
    return 2 * counts[0] / (counts[1] + counts[2]) if counts[1] + counts[2] else 0.0


def attempt(call, *arguments, **more):
    """(its result or None, what it said in warnings or a sentence)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result, said = call(*arguments, **more), []
        except (ValueError, TypeError) as error:
            assert one_sentence(error), error
            result, said = None, [str(error)]
    mine = [str(w.message) for w in caught]
    assert all(one_sentence(w) for w in mine), mine
    return result, said + [w for w in mine if "chunks" in w]


def test_chunks_are_what_was_written_or_the_user_is_told():
    for rng in attacks("schemes"):
        scheme, form = rng.one_of(SCHEMES), rng.one_of(FORMS)
        types = [rng.one_of(TYPES) for _ in range(3)]
        types = [kind for kind in types if kind != "0" or "" not in types]  # to conlleval "0" is no type
        if form == "{1}-{0}":  # of "B-X" nobody can tell which part is the type
            types = [kind for kind in types if not set(kind) & set("BIESO.")] or ["X"]
        types = [""] if form == "{0}" else types
        made = [written(rng, scheme, form, types, int(rng.integers(0, 7))) for _ in range(4)]
        gold, honest = [labels for labels, _ in made], True
        if rng.random() < 0.4:  # broken, or of no scheme
            honest = False
            every = (
                [*ODD, *(label for labels in gold for label in labels)]
                if rng.random() < 0.5
                else [*sum(gold, []), "O"]
            )
            gold = [[rng.one_of(every) if rng.random() < 0.5 else y for y in labels] for labels in gold]
        found = [
            [rng.one_of([*sum(gold, []), "O"]) if rng.random() < 0.4 else y for y in labels]
            for labels in gold
        ]
        case = rng.number, scheme, form, gold
        n_spans = sum(len(spans) for _, spans in made)

        for how in ("conlleval", "IOBES"):
            report, told = attempt(chunk_report, gold, found, how)
            if report is None:  # refused: another separator, several of them, or labels of another scheme
                several = told[0].endswith("join tag and type of all labels in one way")
                auto = told[0].endswith("scheme='auto' reads them") or told[0].startswith("scheme='IOBES'")
                assert auto or several and not honest, case
                continue
            pair = gold, found
            if how == "IOBES":
                read = reading(set(sum(gold + found, [])), how)
                pair = plain(gold, read), plain(found, read)
            want = counted(*pair, how)
            assert (report.n_correct, report.n_gold, report.n_predicted) == want, (case, how)
            assert report.f1 == pytest.approx(f1(want), abs=1e-12)
            if honest and not told:
                assert attempt(chunk_report, gold, gold, how)[0].n_gold == n_spans, (case, how)
        check_path(rng, gold, case, n_spans if honest else None)


def check_path(rng, gold, case, n_spans):
    """What scoring="f1" says of the last two sequences, after a model of the others."""
    X = [[[f"a{rng.integers(4)}", "b"] for _ in labels] for labels in gold]
    names = set(sum(gold, []))
    constraints = rng.one_of([None, None, "BIO", "BIOES", "IOB1", "IOBES"])
    path, told = attempt(
        regularization_path, CRF(c2=0.1, max_iterations=3, constraints=constraints), X, gold, X_dev=X[2:],
        y_dev=gold[2:], strengths=[0.01], scoring="f1",
    )  # fmt: skip
    if path is None:
        return
    read = reading(names, "auto", gold)
    tags = {read.split(y)[0] for y in names} - {"O"}
    assert tags <= set(EVERY_TAG), case
    scheme = "IOBES" if tags & set("SLU") or {"B", "E"} <= tags else "conlleval"
    counts = counted(plain(gold[2:], read), plain(path.models[0].predict(X[2:]), read), scheme)
    assert path.frame["score"].iloc[0] == pytest.approx(f1(counts), abs=1e-12), (case, constraints)
    if n_spans is not None and not told:
        assert counted(plain(gold, read), plain(gold, read), scheme) == (n_spans,) * 3, (case, constraints)
