"""Shards: files of a training text, each with the features of its own tokens alone.

    folder/manifest.json     what was written: settings, and each shard's file, hash and sizes
    folder/alphabet.crfbook  encoder, feature set (F weights) and constraints of the whole
    folder/shard-00000.crfbook ...

A shard numbers its own attributes from 0. `place` (F',) says where its weights stand among the F of the
whole, and rises. All files have the format of models (data/files.py): arrays without pickle, and a
checksum of every byte. They appear complete or not at all. A file that is read is checked as a model is, and
compared with the alphabet: a weight of a shard must belong to the same attribute and labels there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections import Counter
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from crfbook._checks import ModelFileError, Stored, check_arrays, check_fields, number, shown
from crfbook.data.constraints import Constraints, violations
from crfbook.data.corpus import make_corpus, offsets, plain_transitions, ragged_index
from crfbook.data.features import FeatureSet, distinct_keys
from crfbook.data.files import check_features, part_of, prefixed
from crfbook.distributed.places import load_arrays, place_of, read_text, save_arrays, write_text
from crfbook.distributed.reading import digest_of
from crfbook.encoding.templates import as_template
from crfbook.models.inputs import encoder_from_state, encoder_state
from crfbook.models.parameters import given

SCHEMA = 2
MANIFEST, ALPHABET = "manifest.json", "alphabet.crfbook"
SHARD = re.compile(r"shard-\d{5,}\.crfbook")
# parameters of `CRF` that decide what stands in the shards
WEIGHTS = "min_freq", "all_possible_states", "all_possible_transitions", "on_violation"


def settings_of(crf):
    """{parameter: value, as JSON has it} of the parameters of a CRF that decide what stands in shards."""
    template = None if crf.template is None else as_template(crf.template).text
    limits = crf.constraints
    if limits is not None and not isinstance(limits, str):  # a table: its hash
        limits = digest_of(limits._asdict() if hasattr(limits, "_asdict") else limits)
    found = {name: given(crf, name) for name in WEIGHTS} | {"template": template, "constraints": limits}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}


def check_crf(crf):
    """TypeError for an object without the parameters of a CRF."""
    if not hasattr(crf, "tag_dictionary"):
        raise TypeError(f"crf: expected a CRF, got {shown(crf)}")


class ShardError(ModelFileError):
    """A shard, or what belongs to it, is missing, damaged, or not the one that was written."""


class Shard(NamedTuple):
    """What is known of a shard without opening it."""

    path: str
    digest: str  # of its content
    n_sequences: int
    n_tokens: int
    n_features: int


class Shards:
    """The shards of a folder, as `write_shards` left them. Opening reads the manifest alone.

    folder : its path, or an address that fsspec knows (places.py).

    Attributes: shards, a list of `Shard`; settings, {parameter: value} of the CRF that they were written for;
    encoder, features, constraints: of the whole text, read when first used.

    Raises ShardError where the folder holds no finished shards, or those of a later version.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = place_of(folder)
        path = os.path.join(self.folder, MANIFEST)
        try:
            about = json.loads(read_text(path))
        except FileNotFoundError:
            raise ShardError(
                f"{self.folder}: expected shards that write_shards has finished, there is no {MANIFEST}"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise ShardError(f"{path}: expected the manifest of shards, {error}") from None
        if not isinstance(about, dict) or about.get("schema") != SCHEMA:
            found = about.get("schema") if isinstance(about, dict) else about
            raise ShardError(
                f"{path}: expected shards of version {SCHEMA}, got {shown(found)}: write them again"
            )
        try:
            self.settings, self.alphabet, self.n_dropped = (
                about[name] for name in ("settings", "alphabet", "n_dropped")
            )
            rows = [Shard(os.path.join(self.folder, row[0]), *row[1:]) for row in about["shards"]]
            self.extremes = LargestValues(*about["extremes"])
            digest = about.pop("digest", None), _hash_of(about)
        except (KeyError, TypeError, IndexError, RecursionError) as error:
            raise ShardError(f"{path}: expected the manifest of shards, {error!r} is wrong") from None
        for name, n in Counter(row.path for row in rows).items():
            if n > 1:
                raise ShardError(f"{path}: expected each shard once, got {os.path.basename(name)} twice")
        if digest[0] != digest[1]:
            raise ShardError(
                f"{path}: expected the manifest as write_shards left it, its hash is another: remove it, "
                "and the same call of write_shards writes it again"
            )
        try:
            _check_manifest(about)
        except ValueError as error:
            raise ShardError(f"{path}: refused, {error}") from None
        self.shards = rows

    files = property(lambda self: [(shard.path, shard.digest) for shard in self.shards])
    n_sequences = property(lambda self: sum(shard.n_sequences for shard in self.shards))
    n_tokens = property(lambda self: sum(shard.n_tokens for shard in self.shards))

    def __len__(self) -> int:
        return len(self.shards)

    def __repr__(self):
        return (
            f"Shards({self.folder!r}): {len(self)} shards, {self.n_sequences:,} sequences, "
            f"{self.n_tokens:,} tokens"
        )

    @property
    def digest(self) -> str:
        """Hash of the whole: of the alphabet and of all shards in their order."""
        text = "".join([self.alphabet, *(shard.digest for shard in self.shards)])
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _whole(self):
        encoder, *rest = read_alphabet(os.path.join(self.folder, ALPHABET), self.alphabet)
        if (text := getattr(encoder.template, "text", None)) != (wanted := self.settings["template"]):
            raise ShardError(f"alphabet: expected the template {shown(wanted)}, got {shown(text)}")
        return encoder, *rest

    encoder = property(lambda self: self._whole[0])
    features = property(lambda self: self._whole[1])
    constraints = property(lambda self: self._whole[2])


def _check_manifest(about):
    """ValueError unless a manifest is one that `write_manifest` could have written."""
    text, count = ((str,), None), ((int,), 0)
    check_fields(about, {"alphabet": text, "n_dropped": count, "settings": ((dict,), None)})
    if missing := {*WEIGHTS, "template", "constraints"} - about["settings"].keys():
        raise ValueError(f"settings: expected those of a CRF, {', '.join(sorted(missing))} is missing")
    if not about["shards"]:
        raise ValueError("shards: expected at least one, got none")
    for row in about["shards"]:
        fields = dict(zip(Shard._fields, row, strict=True))
        check_fields(fields, dict(zip(fields, (text, text, count, count, count), strict=True)))
        if not SHARD.fullmatch(row[0]):
            raise ValueError(f"shards: expected names such as {shard_name(0)}, got {shown(row[0])}")
    for name, largest in zip(LargestValues._fields, about["extremes"], strict=True):
        number(name, largest)


def shard_name(i):
    return f"shard-{i:05d}.crfbook"


class LargestValues(NamedTuple):
    """The largest attribute value and sequence weight of a text: under the names that a `Corpus` has."""

    attr_val: float
    seq_weight: float


def write_manifest(folder, settings, alphabet, n_dropped, shards, extremes):
    """Write the last file of `write_shards`: a folder that has it is complete."""
    rows = [(os.path.basename(shard.path), *shard[1:]) for shard in shards]
    about = {"schema": SCHEMA, "settings": settings, "alphabet": alphabet, "n_dropped": n_dropped}
    about = json.loads(json.dumps(about | {"extremes": extremes, "shards": rows}))
    about |= {"digest": _hash_of(about)}
    write_text(os.path.join(folder, MANIFEST), json.dumps(about, indent=1))


def _hash_of(about):
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def write_alphabet(path, encoder, features, constraints):
    """The alphabets and the feature set of the whole text; returns their digest."""
    state, arrays = encoder_state(encoder)
    arrays = prefixed("encoder", arrays)
    arrays |= _weights_arrays(features, constraints)
    digest = content_digest(arrays, state)
    header = {"schema": SCHEMA, "digest": digest, "encoder": state, "sizes": list(features.sizes)}
    save_arrays(path, "alphabet", header, arrays)
    return digest


@lru_cache(maxsize=1)
def read_alphabet(path, digest):
    """(encoder, features, constraints or None). ShardError where the file is not the one that is meant."""
    header, arrays = _load(path, "alphabet", digest)
    features, constraints = read_features(path, digest)
    with _refusing(path, "alphabet"):
        encoder = encoder_from_state(header["encoder"], part_of("encoder", arrays), trust=True)
        check_features(features, constraints, (encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs))
    return encoder, features, constraints


@lru_cache(maxsize=1)
def read_features(path, digest):
    """(features, constraints or None) of the alphabet: what shards are held against."""
    header, arrays = _load(path, "alphabet", digest)
    with _refusing(path, "alphabet"):
        features, constraints = _weights_of(header["sizes"], arrays)
        check_features(features, constraints)
    return features, constraints


def write_shard(path, corpus, features, constraints, alphabet, source=""):
    """Write one shard: a corpus with the ids of the whole, cut down to what occurs in it. Returns a `Shard`.

    alphabet : digest of the alphabet whose ids these are.
    source : digest of the text.
    """
    corpus, small, place = own_part(corpus, features)
    arrays = prefixed("corpus", corpus._asdict())
    arrays |= _weights_arrays(small, constraints) | {"place": place}
    digest = content_digest(arrays, alphabet)
    header = {"schema": SCHEMA, "digest": digest, "alphabet": alphabet, "source": source}
    header["sizes"] = list(small.sizes)
    save_arrays(path, "shard", header, arrays)
    return Shard(path, digest, corpus.n_sequences, corpus.n_tokens, small.n_features)


def read_shard(path, digest, *sizes):
    """(corpus, features, place int64 (F',), constraints) of a shard file.

    sizes : sequences, tokens and weights, as the manifest names them. ShardError in one sentence for a file
    that is not the one that was written, or in which anything does not fit together.
    """
    header, arrays = _load(path, "shard", digest)
    with _refusing(path, "shard"):
        whole, limits = read_features(os.path.join(os.path.dirname(path), ALPHABET), header["alphabet"])
        features, constraints = _weights_of(header["sizes"], arrays)
        check_features(features, constraints, (whole.n_labels, *features.sizes[1:]))
        corpus = make_corpus(**part_of("corpus", arrays))
        ids = zip(("labels", "attr_idx", "class_attr"), features.sizes, strict=True)  # all tokens have labels
        table = {name: Stored(np.int32, (None,), 0, size) for name, size in ids}
        table |= dict.fromkeys(("label_set", "link"), Stored(np.int32, (0,)))
        table["place"] = Stored("iu", (features.n_features,), 0, whole.n_features, "rising")
        check_arrays(corpus._asdict() | {"place": arrays["place"]}, table)
        place = arrays["place"].astype(np.int64)
        _check_place(features, place, whole)
        tables = {content_digest(_constraint_arrays(own), "") for own in (constraints, limits)}
        if len(tables) > 1 or violations(corpus, limits, range(whole.n_labels)):
            raise ValueError("constraints: expected those of the alphabet, and labels that obey them")
        found = corpus.n_sequences, corpus.n_tokens, features.n_features
        if sizes and sizes != found:
            raise ValueError(f"expected {sizes} sequences, tokens and weights, got {found}")
    return corpus, features, place, constraints


def _check_place(small, place, whole):
    """ValueError unless the weights of a shard are rows of the whole, complete and with the same labels."""

    def rows(ptr, of_whole, at):
        filled = np.flatnonzero(np.diff(ptr))
        if at.size and not (0 <= at[0] and at[-1] < of_whole[-1]):
            return False
        items, ends = ragged_index(of_whole, np.searchsorted(of_whole, at[ptr[filled]], "right") - 1)
        return np.array_equal(items, at) and np.array_equal(ends[1:], ptr[filled + 1])

    node, edge = place[: small.n_node], place[small.n_node :] - whole.n_node
    same = rows(small.node_ptr, whole.node_ptr, node) and rows(small.edge_ptr, whole.edge_ptr, edge)
    same = same and np.array_equal(edge[: small.edge_ptr[1]], np.arange(whole.edge_ptr[1]))  # the constant's
    for name, at in (("node_label", node), ("edge_prev", edge), ("edge_next", edge)):
        same = same and np.array_equal(getattr(small, name), getattr(whole, name)[at])
    if not same:
        raise ValueError("place: expected rows of the alphabet's weights, complete and with the same labels")


def shard_of(path, alphabet, source):
    """The `Shard` that a file holds of this text in this alphabet, or None: there is none, or another one."""
    try:
        header, _ = _load(path, "shard")
        corpus, features, *_ = read_shard(path, header["digest"])
    except (OSError, ShardError):
        return None
    if [header["alphabet"], header.get("source")] != [alphabet, source]:
        return None
    return Shard(path, header["digest"], corpus.n_sequences, corpus.n_tokens, features.n_features)


def own_part(corpus, features):
    """(corpus, features, place): attributes and edge attributes of this corpus alone, numbered from 0.

    The constant edge attribute stays number 0. place rises: weights keep their order.
    """
    inner = corpus.inner  # elsewhere the class is 0, and stands for nothing
    classes = distinct_keys(corpus.edge_class[inner].astype(np.int64))
    edge_class = np.zeros_like(corpus.edge_class)
    edge_class[inner] = np.searchsorted(classes, corpus.edge_class[inner])
    items, class_ptr = ragged_index(corpus.class_ptr, classes)
    corpus = corpus._replace(edge_class=edge_class, class_ptr=class_ptr, class_attr=corpus.class_attr[items])
    corpus = corpus if len(classes) else plain_transitions(corpus)
    # values and weights that are all 1 are not stored
    ones = {name: np.zeros(0) for name in ("attr_val", "seq_weight") if np.all(getattr(corpus, name) == 1)}
    corpus = corpus._replace(**ones)
    attr = distinct_keys(corpus.attr_idx.astype(np.int64))
    edge = np.union1d(np.zeros(1, np.int64), corpus.class_attr)
    node_item, node_ptr = ragged_index(features.node_ptr, attr)
    edge_item, edge_ptr = ragged_index(features.edge_ptr, edge)
    small = FeatureSet(
        features.n_labels, len(attr), len(edge), node_ptr, features.node_label[node_item],
        edge_ptr, features.edge_prev[edge_item], features.edge_next[edge_item],
    )  # fmt: skip
    place = np.concatenate([node_item, features.n_node + edge_item])
    place = place.astype(np.uint32 if features.n_features < 2**32 else np.int64)
    corpus = corpus._replace(
        attr_idx=np.searchsorted(attr, corpus.attr_idx).astype(np.int32),
        class_attr=np.searchsorted(edge, corpus.class_attr).astype(np.int32),
    )
    return corpus, small, place


def content_digest(arrays, beside):
    """SHA-256 of arrays by name, and of what JSON can carry beside them."""
    digest = hashlib.sha256(json.dumps(beside, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()


def _load(path, kind, digest=None):
    """(header, arrays) of a file that holds what its hash says; digest None: whatever hash it has."""
    name = os.path.basename(path)
    with _refusing(path, kind):
        header, arrays = load_arrays(path, kind)
        check_fields({"header": header}, {"header": ((dict,), None)})
        if header.get("schema") != SCHEMA:
            found = shown(header.get("schema"))
            raise ShardError(f"{kind} {name}: expected version {SCHEMA}, got {found}: write the shards again")
        own = content_digest(arrays, header["encoder" if kind == "alphabet" else "alphabet"])
        if header["digest"] != own or digest not in (None, own):
            raise ShardError(
                f"{kind} {name}: it is not the file that the manifest names, but one of another text or "
                "alphabet"
            )
    return header, arrays


def is_intact(kind, path, digest):
    """Whether a file is there, and is the one that the manifest names. A task."""
    try:
        return bool(_load(path, kind, digest))
    except (OSError, ShardError):
        return False


@contextlib.contextmanager
def _refusing(path, kind):
    """Context manager: an error in the content of a file becomes one sentence that names the file."""
    name = f"{kind} {os.path.basename(path)}"
    try:
        yield
    except FileNotFoundError:
        raise ShardError(f"{name}: expected a file, there is none at {path}") from None
    except (ShardError, OSError):
        raise
    except Exception as error:
        said = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ShardError(f"{name} cannot be used: {said}") from None


def _weights_arrays(features, constraints):
    """{name: array} of a FeatureSet, but for its sizes, and of `Constraints` or None."""
    arrays = prefixed("features", dict(zip(FeatureSet._fields[3:], features[3:], strict=True)))
    return arrays | _constraint_arrays(constraints)


def _weights_of(sizes, arrays):
    """The inverse of `_weights_arrays`."""
    tables = part_of("constraints", arrays)
    return FeatureSet(*sizes, **part_of("features", arrays)), Constraints(**tables) if tables else None


def _constraint_arrays(constraints):
    return {} if constraints is None else prefixed("constraints", constraints._asdict())


def empty_corpus():
    """A corpus without sequences."""
    return make_corpus(offsets([]), [0], [])
