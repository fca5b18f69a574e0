"""From texts to shards. Each text is read once, into parts with alphabets of their own, which are merged.

    1. encode     a text -> parts with alphabets of their own      (task; parts are files)
    2. merge      alphabets -> the one of the whole                 (here; exact, see `Encoder.merged`)
    3. renumber   a part -> the same with the ids of the whole, and what weights it shows   (task)
    4. choose     weights of the whole, as `CRF.fit` would          (here)
    5. cut        a part -> shards, each with its own weights       (task)

A part has at least LEAST tokens, but the last of a text: what alphabets cost does not grow with the number of
shards.

Every step writes files that name their sources. A second call with the same texts and settings goes on where
the first one was stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from crfbook._checks import File, ModelFileError, file_name, shown, whole
from crfbook.data.constraints import constraints_from, violations
from crfbook.data.corpus import make_corpus, slice_sequences, without_zeros
from crfbook.data.features import empirical_counts, from_keys, observed, with_every
from crfbook.data.files import part_of, prefixed
from crfbook.distributed.engine import Branch, engine_of, joined
from crfbook.distributed.places import (
    is_address,
    is_there,
    load_arrays,
    make_folder,
    names_in,
    place_of,
    remove,
    save_arrays,
)
from crfbook.distributed.reading import digest_of, is_file, lengths_of, named, pieces, same_file
from crfbook.distributed.shards import (
    ALPHABET,
    MANIFEST,
    SHARD,
    LargestValues,
    ShardError,
    Shards,
    check_crf,
    empty_corpus,
    is_intact,
    read_alphabet,
    settings_of,
    shard_name,
    shard_of,
    write_alphabet,
    write_manifest,
    write_shard,
)
from crfbook.encoding.encoder import Encoder, renumbered
from crfbook.models.crf import CRF
from crfbook.models.inputs import (
    encoder_from_state,
    encoder_state,
    kept_weights,
    obey,
    require_labels,
    weighted,
)

PARTS = ".crfbook-parts"  # folder of what is needed until the shards are there
PART = "part"  # kind of its files
DONE = ".done"  # end of the names of those that stay: what was made of which text
LOCK = "lock"
LEAST = 250_000  # tokens of a part; more where a shard has more


def write_shards(
    texts: Iterable[Any], folder: File, crf: CRF, *, client: Any = None,
    columns: Iterable[str | None] | None = None, label: str = "label", shard_tokens: int = 250_000,
    verbose: bool = False,
) -> Shards:  # fmt: skip
    """Write training texts as shards for `fit`: files that any number of processes can train on.

    Parameters
    ----------
    texts : an iterable, read one by one. Each is a path (a file of columns, or .parquet with a row a sentence
        and lists of strings); TokenColumns with labels; (X, y) or (X, y, sample_weight) as `CRF.fit` takes
        them; a pandas.DataFrame with a row a sentence. Or a Dask bag of pairs (x, y), or a Dask DataFrame
        with a row a sentence: its partitions are the texts. (Of a frame of pandas Dask makes strings of lists
        unless its option dataframe.convert-string is False.)
    folder : where shards go; it is made. With a client it must be one that all workers see under this name.
        Or an address such as s3://bucket/shards, which fsspec and what it needs beside it read (places.py).
    crf : CRF, not fitted. Read are template, constraints, on_violation, min_freq, all_possible_states and
        all_possible_transitions; shards are for CRFs in which these are the same.
    client : dask.distributed.Client, or None: this process does it all.
    columns : of files of columns: the name of each column, the label's among them; None leaves one out.
    label : name of the column that holds labels.
    shard_tokens : a text of more tokens becomes several shards of about so many (whole sentences). Smaller
        shards save no memory here: a process encodes at least 250,000 tokens of a text at a time.
    verbose : print what is done.

    Returns `Shards`. Encoder and weights are those that `CRF.fit` would have found in all texts together.
    (min_freq is compared with sums of attribute values, part by part: where these are no whole numbers, a sum
    may differ in its last bit.) The same call goes on where a stopped one ended. Complete shards of the same
    texts and settings are read once more, and left as they are. Warns of sequences left out because of
    on_violation="drop".

    Raises ValueError or TypeError in one sentence that names the text, sequence and token. Of a text in
    several parts it names the part, in which sequences are counted. So does a file that changes while it is
    read, or passes a limit of `predict_files`. ShardError where the folder has shards of other texts or
    settings, or a damaged one, or where another write_shards is at work in it. OSError as the file system
    says, of a full disk for instance.
    """
    shard_tokens = int(whole("shard_tokens", shard_tokens, 1))
    engine = engine_of(client)
    check_crf(crf)
    if crf.tag_dictionary is not None:
        raise ValueError(f"write_shards: expected tag_dictionary=None, got {shown(crf.tag_dictionary)}")
    settings, columns = settings_of(crf), None if columns is None else tuple(columns)
    read = {"columns": columns, "label": label, "n_tokens": shard_tokens, "template": settings["template"]}
    read["least"] = max(shard_tokens, LEAST)
    folder = place_of(folder)
    parts = os.path.join(folder, PARTS)
    make_folder(parts)
    with _alone_in(parts):
        found = _encoded(texts, parts, engine, read, is_there(os.path.join(folder, MANIFEST)))
        of_texts = [[row[name] for name in ("source", "n_tokens", "extremes")] for row in found]
        made_of = hashlib.sha256(json.dumps([settings, of_texts], sort_keys=True).encode()).hexdigest()
        if not is_there(os.path.join(folder, MANIFEST)):
            say = print if verbose else lambda *_: None
            try:
                about = settings | {"made_of": made_of}
                _finish(folder, found, engine, crf.constraints, about, shard_tokens, say)
            except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
                told = f"{parts}: expected what an earlier call left there, {error!r}: remove this folder"
                raise ShardError(told) from error
        shards = _same(Shards(folder), made_of, engine)
        for name in names_in(parts):  # a folder of our own
            if not name.endswith((DONE, LOCK)):
                remove(os.path.join(parts, name))
        known = {os.path.basename(path) for path, _ in shards.files}
        for name in filter(SHARD.fullmatch, names_in(folder)):  # of a call that was stopped
            if name not in known:
                remove(os.path.join(folder, name))
    if shards.n_dropped:
        sentence = f"{shards.n_dropped} training sequences violate the constraints and were left out"
        warnings.warn(sentence, UserWarning, stacklevel=2)
    return shards


def _encoded(texts, parts, engine, read, finished):
    """Step 1: [{"file", "path", "name", "source", "n_tokens", "extremes"}] of all parts."""
    names = []

    def jobs():
        for i, text in enumerate(_texts(texts)):
            names.append(str(text) if is_file(text) else f"text {i}")
            yield text, os.path.join(parts, f"text-{i:05d}"), read, names[i], finished

    found = []
    for i, rows in enumerate(engine.run(encode, jobs())):
        for k, row in enumerate(rows):
            own = {"path": os.path.join(parts, row["file"]), "name": _name_of_part(names[i], k)}
            found.append(row | own)
    if not found:
        raise ValueError("texts: expected at least one, got none")
    if not any(row["n_tokens"] for row in found):
        raise ValueError(f"nothing to learn from: {len(found)} texts hold no token")
    if not any(row["extremes"][1] for row in found):
        raise ValueError("sample_weight: expected a weight above 0, got only zeros")
    return found


def _finish(folder, found, engine, limits, settings, shard_tokens, say):
    """Steps 2 to 5."""
    say(f"{len(found)} parts, {sum(row['n_tokens'] for row in found):,} tokens encoded")
    encoder = _merged([row for row in found if row["n_tokens"]])
    limits = constraints_from(limits, encoder.labels_)
    bare = os.path.join(folder, PARTS, "encoder")
    beside = write_alphabet(bare, encoder, _no_weights(encoder), limits)
    say(f"{encoder.n_attrs:,} attributes, {encoder.n_labels} labels")

    how = settings["on_violation"] == "drop", settings["min_freq"] > 0
    jobs = [(row["path"], row["name"], row["source"], bare, beside, *how) for row in found]
    n_dropped, n_tokens, stops = 0, 0, []

    def weights():
        nonlocal n_dropped, n_tokens
        for path, dropped, lengths in engine.run(renumber, jobs):
            n_dropped, n_tokens = n_dropped + dropped, n_tokens + sum(lengths)
            stops.append(_ends(lengths, shard_tokens))
            arrays = load_arrays(path, PART)[1]
            yield arrays["keys"], arrays["counts"]

    seen = in_pairs(weights(), len(jobs), _joined)
    if not n_tokens:
        raise ValueError(f"all {n_dropped} training sequences with tokens violate the constraints")
    features = _choose(encoder, *seen, settings, limits)
    alphabet = write_alphabet(os.path.join(folder, ALPHABET), encoder, features, limits)
    say(f"{features.n_features:,} weights")

    of_all = os.path.join(folder, ALPHABET), alphabet
    first = np.cumsum([0, *map(len, stops)]).tolist()
    jobs = [
        (f"{row['path']}.ids", row["source"], ends, folder, i, *of_all)
        for row, ends, i in zip(found, stops, first, strict=False)
    ]
    rows = [shard for shards in engine.run(cut, jobs) for shard in shards]
    extremes = LargestValues(*(max(row["extremes"][k] for row in found) for k in range(2)))
    write_manifest(folder, settings, alphabet, n_dropped, rows, extremes)


@contextlib.contextmanager
def _alone_in(folder):
    """Context manager: no other call writes there meanwhile. ShardError where one does.

    It locks the folder until the process ends. On a file system without locks, and at an address, other calls
    are not noticed.
    """
    if is_address(folder):
        yield
        return
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(os.path.join(folder, LOCK), "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            where = os.path.dirname(folder)
            raise ShardError(f"{where}: another write_shards is at work in this folder") from None
        except OSError:
            pass
        yield


def in_pairs(parts, n, add):
    """The sum of n parts in the tree of engine.py: a part takes part in log2 n additions, not in n."""
    leaves = (Branch(i, 1, part) for i, part in enumerate(parts))
    return joined(leaves, n, add)[0].sums


def _merged(rows):
    """The encoder of all parts."""

    def add(left, right):
        try:
            return left[0].merged(right[0]), left[1]
        except ValueError as error:
            raise named(error, right[1]) from None

    parts = ((_restored(*load_arrays(row["path"], PART)), row["name"]) for row in rows)
    return in_pairs(parts, len(rows), add)[0]


def _same(shards, made_of, engine):
    """Finished shards, if they were made of the same and are all there, undamaged; ShardError if not."""
    if shards.settings.get("made_of") != made_of:
        raise ShardError(
            f"{shards.folder}: expected a new folder, or shards of the same texts and settings; "
            "the shards there are of others: name another folder, or delete this one"
        )
    jobs = [("shard", *file) for file in shards.files]
    jobs.append(("alphabet", os.path.join(shards.folder, ALPHABET), shards.alphabet))
    for (_, path, _), intact in zip(jobs, engine.run(is_intact, jobs), strict=True):
        if not intact:
            what = f"{os.path.basename(path)} is {'damaged' if is_there(path) else 'missing'}"
            raise ShardError(
                f"{shards.folder}: {what}: remove {MANIFEST} there, and the same call writes it again"
            )
    return shards


def _texts(texts):
    """Each text; of a Dask collection its partitions. ValueError where a path comes twice."""
    one = hasattr(texts, "seq_ptr") or (hasattr(texts, "columns") and not hasattr(texts, "to_delayed"))
    if is_file(texts) or one or not hasattr(texts, "__iter__"):
        raise TypeError(f"texts: expected a list of texts, got {shown(texts)}")
    if hasattr(texts, "to_delayed"):
        yield from texts.to_delayed()
        return
    seen = {}
    for i, text in enumerate(texts):
        if is_file(text):
            path = os.path.realpath(file_name(text))
            if path in seen:
                raise ValueError(f"texts: expected each file once, got {text} as number {seen[path]} and {i}")
            seen[path] = i
        yield _in_hand(text)


def _in_hand(text):
    """A text that can be read twice: iterators, which `CRF.fit` accepts, become lists."""
    if not isinstance(text, tuple) or hasattr(text, "_fields"):
        return text
    return tuple(list(part) if isinstance(part, Iterator) else part for part in text)


def _name_of_part(name, k):
    return f"{name}, part {k}" if k else name


# ---- 1. encode


def encode(text, place, read, name, finished):
    """A text -> files of parts: [{"file", "source", "n_tokens", "extremes"}]. A task.

    finished : the folder has its shards, so that parts need not be there any more.
    """
    if hasattr(text, "compute"):  # a partition of a Dask collection
        text = text.compute(scheduler="synchronous")
        text = list(text) if not hasattr(text, "columns") and not isinstance(text, list | tuple) else text
    file = same_file(text) if is_file(text) else None
    digest = digest_of(text) if file is None else file.raw.digest
    source = hashlib.sha256(f"{digest} {json.dumps(read, sort_keys=True)}".encode()).hexdigest()
    rows = _done(place, source, finished)
    if rows is not None:
        return rows
    # a task of a failed call may still run, on another text: its files must have other names
    rows, own = [], f"{place}-{source[:12]}"
    try:
        for X, y, weights in pieces(text, read["least"], read["columns"], read["label"], file):
            k = len(rows)
            rows.append(_encode_piece(X, y, weights, f"{own}-{k:04d}", f"{source}-{k}", read["template"]))
    except (ValueError, TypeError) as error:
        raise named(error, name if is_file(text) else _name_of_part(name, len(rows))) from None
    if not rows:
        rows.append(_save_part(f"{own}-0000", f"{source}-0", None, empty_corpus()))
    save_arrays(f"{place}{DONE}", PART, {"source": source, "rows": rows}, {})
    return rows


def _done(place, source, finished):
    """The rows of an earlier call for the same text, if all its files are there."""
    try:
        header, _ = load_arrays(f"{place}{DONE}", PART)
        paths = [os.path.join(os.path.dirname(place), row["file"]) for row in header["rows"]]
        _ = [
            sum(row["extremes"], row["n_tokens"]) + len(row["source"]) for row in header["rows"]
        ]  # if they are
        there = header["source"] == source and (finished or all(map(is_there, paths)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return header["rows"] if there else None


def _encode_piece(X, y, weights, path, source, template):
    if not any(lengths_of(X)):
        return _save_part(path, source, None, empty_corpus())
    encoder = Encoder(template)
    corpus = require_labels(encoder.fit_transform(X, y))
    # the whole text must have a weight above 0, a part need not
    if weights is not None and not np.any(weights):
        corpus = corpus._replace(seq_weight=np.zeros(corpus.n_sequences))
    else:
        corpus = weighted(corpus, weights)
    return _save_part(path, source, encoder, corpus)


def _save_part(path, source, encoder, corpus):
    arrays, state = prefixed("corpus", corpus._asdict()), {}
    if encoder is not None:
        state, of_encoder = encoder_state(encoder)
        arrays |= prefixed("encoder", of_encoder)
        arrays["edge_counts"] = getattr(encoder.attributes, "edge_counts", np.zeros(0, np.int64))
    save_arrays(path, PART, {"source": source, "encoder": state}, arrays)
    largest = [float(np.abs(x).max(initial=0.0)) for x in (corpus.attr_val, corpus.weights)]
    return {
        "file": os.path.basename(path),
        "source": source,
        "n_tokens": corpus.n_tokens,
        "extremes": largest,
    }


def _restored(header, arrays):
    encoder = encoder_from_state(header["encoder"], part_of("encoder", arrays), trust=True)
    if hasattr(encoder.attributes, "edge_counts"):
        encoder.attributes.edge_counts = arrays["edge_counts"]
    return encoder


# ---- 3. renumber


def renumber(path, name, source, bare, digest, drop, counted):
    """A part with the ids of the whole -> (path, sequences left out, tokens of each other one). A task."""
    new, made_of = f"{path}.ids", [source, digest, drop, counted]
    with contextlib.suppress(OSError, ModelFileError):
        header, _ = load_arrays(new, PART)
        if header["made_of"] == made_of:
            return new, header["n_dropped"], header["lengths"]
    encoder, features, limits = read_alphabet(bare, digest)
    header, arrays = load_arrays(path, PART)
    corpus, n_dropped = make_corpus(**part_of("corpus", arrays)), 0
    if corpus.n_tokens:
        corpus = renumbered(corpus, _restored(header, arrays), encoder)
        try:
            corpus, n_dropped = _obedient(corpus, limits, encoder.labels_, drop)
        except ValueError as error:
            raise named(error, name) from None
        features = observed(corpus, *features.sizes)
    counts = np.zeros(features.n_features)
    if counted:
        counts = empirical_counts(corpus._replace(seq_weight=np.zeros(0)), features)
    arrays = prefixed("corpus", without_zeros(corpus)._asdict())
    keys = np.append(features.node_keys, features.n_attrs * features.n_labels + features.edge_keys)
    about = {"made_of": made_of, "n_dropped": n_dropped, "lengths": corpus.lengths.tolist()}
    save_arrays(new, PART, about, arrays | {"keys": keys, "counts": counts})
    return new, n_dropped, about["lengths"]


def _obedient(corpus, limits, labels, drop):
    """`obey`, but a part may end up without sequences."""
    guilty = {sequence for sequence, _, _ in violations(corpus, limits, labels)}
    if drop and len(guilty) == np.count_nonzero(corpus.lengths):
        return empty_corpus(), len(guilty)
    return obey(corpus, limits, labels, drop)


# ---- 4. choose


def _no_weights(encoder):
    return from_keys(encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs, *np.zeros((2, 0), np.int64))


def _joined(seen, more):
    """(keys of weights, their counts) of two parts together. Edge keys stand A L higher."""
    keys, counts = map(np.concatenate, zip(seen, more, strict=True))
    order = np.argsort(keys, kind="stable")  # two rising rows: a merge
    keys = keys[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.add.reduceat(counts[order], first) if len(first) else counts


def _choose(encoder, keys, counts, settings, limits):
    """The `FeatureSet` of the whole, as `choose_features` would have chosen it."""
    first_edge = encoder.n_attrs * encoder.n_labels
    node, edge = np.split(keys, [np.searchsorted(keys, first_edge)])
    features = from_keys(encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs, node, edge - first_edge)
    if settings["min_freq"] > 0:
        return kept_weights(features, counts, settings["min_freq"], limits)
    every = settings["all_possible_states"], settings["all_possible_transitions"]
    return kept_weights(with_every(features, *every), None, 0, limits)


# ---- 5. cut


def _ends(lengths, n_tokens):
    """Where a shard ends: numbers of sequences. A shard has at least n_tokens tokens, but the last one."""
    ends, tokens = [], 0
    for i, length in enumerate(lengths, 1):
        tokens += length
        if tokens >= n_tokens or i == len(lengths):
            ends.append(i)
            tokens = 0
    return ends or [0]


def cut(path, source, ends, folder, first, alphabet_path, alphabet):
    """A part -> its `Shard`s, each with its own weights. A task.

    ends : numbers of sequences at which they end.
    first : number of the first one.
    """
    _, features, limits = read_alphabet(alphabet_path, alphabet)
    corpus, shards = None, []
    for i, (start, stop) in enumerate(pairwise([0, *ends])):
        target, name = os.path.join(folder, shard_name(first + i)), f"{source}-{start}-{stop}"
        shard = shard_of(target, alphabet, name)
        if shard is None:
            corpus = corpus or make_corpus(**part_of("corpus", load_arrays(path, PART)[1]))
            own = slice_sequences(corpus, start, stop)
            shard = write_shard(target, own, features, limits, alphabet, name)
        shards.append(shard)
    return shards
