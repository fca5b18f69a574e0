"""From texts to shards: each text is read once, and its attributes are numbered by its own alphabet; then
alphabets are merged, and numbers replaced.

    1. encode     a text -> parts with alphabets of their own      (task; parts are files)
    2. merge      alphabets -> the one of the whole                 (here; exact, see encoding/merging.py)
    3. renumber   a part -> the same with the ids of the whole, and what weights it shows   (task)
    4. choose     weights of the whole, as `CRF.fit` would          (here)
    5. cut        a part -> a shard with its own weights            (task)

Every step leaves files that say what they were made of. Whoever calls again with the same texts and settings
goes on where the call before was stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from crfbook._checks import ModelFileError, shown, whole
from crfbook.data.constraints import constraints_from, violations
from crfbook.data.corpus import make_corpus, without_zeros
from crfbook.data.features import empirical_counts, from_keys, observed, with_every
from crfbook.distributed.engine import engine_of
from crfbook.distributed.reading import is_file, n_tokens_of, pieces, text_digest
from crfbook.distributed.shards import (
    ALPHABET,
    MANIFEST,
    Extremes,
    ShardError,
    Shards,
    empty_corpus,
    part_of,
    prefixed,
    read_alphabet,
    settings_of,
    shard_of,
    write_alphabet,
    write_manifest,
    write_shard,
)
from crfbook.encoding.encoder import Encoder
from crfbook.encoding.merging import renumbered
from crfbook.models.inputs import encoder_from_state, encoder_state, obey, require_labels, weighted
from crfbook.models.saving import load_arrays, save_arrays
from crfbook.models.weights import kept_weights

if TYPE_CHECKING:
    from crfbook._types import CRF, File, Iterable

PARTS = "parts"  # folder of what is needed until the shards are there
PART = "part"  # kind of its files
DONE = ".done"  # end of the names of those that stay: what was made of which text


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
        with a row a sentence: its partitions are the texts.
    folder : where shards go; it is made. With a client it must be one that all workers see.
    crf : CRF, not fitted. Read are template, constraints, on_violation, min_freq, all_possible_states and
        all_possible_transitions; shards are for CRFs in which these are the same.
    client : dask.distributed.Client, or None: this process does it all.
    columns : of files of columns: the name of each column, the label's among them; None leaves one out.
    label : name of the column that holds labels.
    shard_tokens : a text of more tokens becomes several shards of about so many (whole sentences).
    verbose : print what is done.

    Returns `Shards`. Encoder and weights are those that `CRF.fit` would have found in all texts together. A
    call that was stopped is gone on with by the same call. Shards that are complete and of the same texts and
    settings are left as they are; of others: ShardError.

    Raises ValueError or TypeError in one sentence that names the text, sequence and token; OSError as the
    file system says, a full disk for instance.
    """
    whole("shard_tokens", shard_tokens, 1)
    engine = engine_of(client)
    folder = os.path.realpath(os.fspath(folder))
    parts = os.path.join(folder, PARTS)
    os.makedirs(parts, exist_ok=True)
    settings = settings_of(crf)
    if crf.tag_dictionary is not None:
        raise ValueError(f"write_shards: expected tag_dictionary=None, got {shown(crf.tag_dictionary)}")
    say = print if verbose else lambda *_: None

    columns = None if columns is None else tuple(columns)
    read = {"columns": columns, "label": label, "n_tokens": shard_tokens, "template": settings["template"]}
    finished = os.path.exists(os.path.join(folder, MANIFEST))
    sources = (
        (text, os.path.join(parts, f"text-{i:05d}"), read, _name_of(i, text), finished)
        for i, text in enumerate(_texts(texts))
    )
    found = [row for rows in engine.run(encode, sources) for row in rows]
    if not found:
        raise ValueError("texts: expected at least one, got none")
    encoded = [row for row in found if row["n_tokens"]]
    if not encoded:
        raise ValueError(f"nothing to learn from: {len(found)} texts hold no token")
    made_of = hashlib.sha256(json.dumps([settings, found], sort_keys=True).encode()).hexdigest()
    if finished:
        return _same(Shards(folder), made_of)
    say(f"{len(found)} parts, {sum(row['n_tokens'] for row in found):,} tokens encoded")

    encoder = reduce(Encoder.merged, (_encoder_of(row["path"]) for row in encoded))
    limits = constraints_from(crf.constraints, encoder.labels_)
    bare = os.path.join(parts, "encoder")
    beside = write_alphabet(bare, encoder, _no_weights(encoder), limits)
    say(f"{encoder.n_attrs:,} attributes, {encoder.n_labels} labels")

    drop = settings["on_violation"] == "drop"
    jobs = [(row["path"], row["source"], bare, beside, drop, settings["min_freq"] > 0) for row in found]
    n_dropped, keys = 0, None
    for path, dropped in engine.run(renumber, jobs):
        n_dropped += dropped
        keys = _joined(keys, load_arrays(path, PART)[1])
    features = _choose(encoder, keys, settings, limits)
    alphabet = write_alphabet(os.path.join(folder, ALPHABET), encoder, features, limits)
    say(f"{features.n_features:,} weights")

    of_all = os.path.join(folder, ALPHABET), alphabet
    jobs = [
        (f"{row['path']}.ids", row["source"], os.path.join(folder, f"shard-{i:05d}.crfbook"), *of_all)
        for i, row in enumerate(found)
    ]
    rows = list(engine.run(cut, jobs))
    extremes = Extremes(*(max(row["extremes"][k] for row in found) for k in range(2)))
    write_manifest(folder, settings | {"made_of": made_of}, alphabet, n_dropped, rows, extremes)
    for name in os.listdir(parts):
        if not name.endswith(DONE):
            os.unlink(os.path.join(parts, name))
    return Shards(folder)


def _same(shards, made_of):
    """Finished shards, if they were made of the same; ShardError if not."""
    if shards.settings.get("made_of") != made_of:
        raise ShardError(
            f"{shards.folder}: expected a new folder, or shards of the same texts and settings; "
            "the shards there are of others"
        )
    return shards


def _texts(texts):
    """Each text; of a Dask collection its partitions. ValueError where a path comes twice."""
    if is_file(texts) or hasattr(texts, "seq_ptr"):
        raise TypeError(f"texts: expected a list of texts, got {shown(texts)}")
    if hasattr(texts, "to_delayed"):
        yield from texts.to_delayed()
        return
    seen = {}
    for i, text in enumerate(texts):
        if is_file(text):
            path = os.path.realpath(text)
            if path in seen:
                raise ValueError(f"texts: expected each file once, got {text} as number {seen[path]} and {i}")
            seen[path] = i
        yield text


def _name_of(i, text):
    return str(text) if is_file(text) else f"text {i}"


# ---- 1. encode


def encode(text, place, read, name, finished):
    """A text -> files of parts: [{"path", "source", "n_tokens", "extremes"}]. A task.

    finished : the folder has its shards, so that parts need not be there any more.
    """
    if hasattr(text, "compute"):  # a partition of a Dask collection
        text = text.compute(scheduler="synchronous")
        text = list(text) if not hasattr(text, "columns") and not isinstance(text, list | tuple) else text
    source = hashlib.sha256(f"{text_digest(text)} {json.dumps(read, sort_keys=True)}".encode()).hexdigest()
    rows = _done(place, source, finished)
    if rows is not None:
        return rows
    rows = []
    for k, (X, y, weights) in enumerate(pieces(text, read["n_tokens"], read["columns"], read["label"])):
        try:
            rows.append(_encode_piece(X, y, weights, f"{place}-{k:04d}", f"{source}-{k}", read["template"]))
        except (ValueError, TypeError) as error:
            raise type(error)(f"{name}{f', part {k}' if k else ''}: {error}") from None
    if not rows:
        rows.append(_save_part(f"{place}-0000", f"{source}-0", None, empty_corpus()))
    save_arrays(f"{place}{DONE}", PART, {"source": source, "rows": rows}, {})
    return rows


def _done(place, source, finished):
    """The rows of an earlier call for the same text, if all its files are there."""
    try:
        header, _ = load_arrays(f"{place}{DONE}", PART)
    except (OSError, ModelFileError):
        return None
    there = finished or all(os.path.exists(row["path"]) for row in header["rows"])
    return header["rows"] if there and header["source"] == source else None


def _encode_piece(X, y, weights, path, source, template):
    if n_tokens_of(X) == 0:
        return _save_part(path, source, None, empty_corpus())
    encoder = Encoder(template)
    corpus = weighted(require_labels(encoder.fit_transform(X, y)), weights)
    return _save_part(path, source, encoder, corpus)


def _save_part(path, source, encoder, corpus):
    arrays, state = prefixed("corpus", corpus._asdict()), {}
    if encoder is not None:
        state, of_encoder = encoder_state(encoder)
        arrays |= prefixed("encoder", of_encoder)
        arrays["edge_counts"] = getattr(encoder.attributes, "edge_counts", np.zeros(0, np.int64))
    save_arrays(path, PART, {"source": source, "encoder": state}, arrays)
    largest = [float(np.abs(x).max(initial=0.0)) for x in (corpus.attr_val, corpus.seq_weight)]
    return {"path": path, "source": source, "n_tokens": corpus.n_tokens, "extremes": largest}


def _encoder_of(path):
    header, arrays = load_arrays(path, PART)
    return _restored(header, arrays)


def _restored(header, arrays):
    encoder = encoder_from_state(header["encoder"], part_of("encoder", arrays), trust=True)
    if hasattr(encoder.attributes, "edge_counts"):
        encoder.attributes.edge_counts = arrays["edge_counts"]
    return encoder


def _corpus_of(arrays):
    return make_corpus(**part_of("corpus", arrays))


# ---- 3. renumber


def renumber(path, source, bare, digest, drop, counted):
    """A part with the ids of the whole -> (path, sequences left out). A task."""
    new = f"{path}.ids"
    with contextlib.suppress(OSError, ModelFileError):
        header, _ = load_arrays(new, PART)
        if header["made_of"] == [source, digest]:
            return new, header["n_dropped"]
    encoder, features, limits = read_alphabet(bare, digest)
    header, arrays = load_arrays(path, PART)
    corpus, n_dropped = _corpus_of(arrays), 0
    if corpus.n_tokens:
        corpus = renumbered(corpus, _restored(header, arrays), encoder)
        try:
            corpus, n_dropped = _obedient(corpus, limits, encoder.labels_, drop)
        except ValueError as error:
            raise ValueError(f"{os.path.basename(path)}: {error}") from None
        features = observed(corpus, *features.sizes)
    counts = np.zeros(0)
    if counted:
        counts = empirical_counts(corpus._replace(seq_weight=np.zeros(0)), features)
    arrays = prefixed("corpus", without_zeros(corpus)._asdict())
    keys = {"node": features.node_keys, "edge": features.edge_keys, "counts": counts}
    save_arrays(new, PART, {"made_of": [source, digest], "n_dropped": n_dropped}, arrays | keys)
    return new, n_dropped


def _obedient(corpus, limits, labels, drop):
    """`obey`, which may here leave nothing."""
    guilty = {sequence for sequence, _, _ in violations(corpus, limits, labels)}
    if drop and len(guilty) == np.count_nonzero(corpus.lengths):
        return empty_corpus(), len(guilty)
    return obey(corpus, limits, labels, drop)


# ---- 4. choose


def _no_weights(encoder):
    return from_keys(encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs, *np.zeros((2, 0), np.int64))


def _joined(keys, arrays):
    """[node keys, their counts, edge keys, their counts] of all parts so far and of one more."""
    n_node = len(arrays["node"])
    counts = arrays["counts"] if len(arrays["counts"]) else np.zeros(n_node + len(arrays["edge"]))
    more = [(arrays["node"], counts[:n_node]), (arrays["edge"], counts[n_node:])]
    if keys is None:
        return more
    both = []
    for (old, n_old), (new, n_new) in zip(keys, more, strict=True):
        union = np.union1d(old, new)
        count = np.zeros(len(union))
        count[np.searchsorted(union, old)] += n_old
        count[np.searchsorted(union, new)] += n_new
        both.append((union, count))
    return both


def _choose(encoder, keys, settings, limits):
    """The `FeatureSet` of the whole, as `choose_features` would have chosen it."""
    (node, n_node), (edge, n_edge) = keys
    features = from_keys(encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs, node, edge)
    if settings["min_freq"] > 0:
        return kept_weights(features, np.concatenate([n_node, n_edge]), settings["min_freq"], limits)
    every = settings["all_possible_states"], settings["all_possible_transitions"]
    return kept_weights(with_every(features, *every), None, 0, limits)


# ---- 5. cut


def cut(path, source, target, alphabet_path, alphabet):
    """A part -> the `Shard` with its own weights. A task."""
    old = shard_of(target, alphabet, source)
    if old is not None:
        return old
    _, features, limits = read_alphabet(alphabet_path, alphabet)
    return write_shard(target, _corpus_of(load_arrays(path, PART)[1]), features, limits, alphabet, source)
