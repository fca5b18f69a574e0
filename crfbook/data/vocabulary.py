"""Strings and labels as numbers: growing vocabularies, label alphabets, and their storage without pickle."""

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain, pairwise, repeat

import numpy as np

from crfbook._checks import Stored, check_arrays, is_number, one_of, pointers, shown
from crfbook.evaluation.schemes import SETS, a_set

Labels = Iterable[Sequence[Hashable]]  # one sequence of labels for each sentence


class UnknownLabelError(ValueError):
    """A label that the alphabet of a model does not have."""


class Numbering(dict):
    """Map hashable things to 0, 1, 2, ... in the order in which they are first asked for.

    `map(numbering.__getitem__, things)` runs at the speed of a dict look-up for whatever was seen before.
    """

    def __missing__(self, thing):
        number = self[thing] = len(self)
        return number


def numbered(things, n):
    """Number the distinct ones among n things.

    Returns (int32 (n,) numbers, list of the distinct things in order of appearance).
    """
    numbering = Numbering()
    numbers = np.fromiter(map(numbering.__getitem__, things), np.int32, n)
    return numbers, list(numbering)


def look_up(table, things, n):
    """`table[thing]` for each of n things as int32 (n,), -1 where there is none."""
    return np.fromiter(map(table.get, things, repeat(-1)), np.int32, n)


def row_of(ptr, position):
    """The row of a ragged array that holds the item at `position`."""
    return int(np.searchsorted(ptr, position, side="right")) - 1


def where(position, seq_ptr):
    """The words "sequence 17, token 3" for a position in the flat order; all three count from 0."""
    sequence = row_of(seq_ptr, position)
    return f"sequence {sequence}, token {position - int(seq_ptr[sequence])}"


def in_order(value, what, expected="a list of sequences"):
    """`value`. Raises TypeError for what has no order, or is a table: what is expected, how to get it."""
    if hasattr(value, "columns") and not hasattr(value, "seq_ptr"):
        how = (
            ": for _, rows in table.groupby('sentence') take rows.to_dict('records'), and list(rows['label'])"
        )
    elif isinstance(value, Mapping):
        how = ": list(d.values()) where it holds sequences, TokenColumns(d, seq_ptr) where it holds columns"
    elif isinstance(value, set | frozenset):
        how = ", which has no order"
    else:
        return value
    raise TypeError(f"{what}: expected {expected}, got {type(value).__name__}{how}")


def falling_order(counts):
    """Positions by falling count: int32 (order, rank), where rank[order[i]] = i.

    Equal counts keep their order.
    """
    order = np.argsort(-counts, kind="stable").astype(np.int32)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return order, rank


def pack_strings(strings):
    """(uint8 blob, int64 offsets) of strings: blob[offsets[i]:offsets[i+1]] is string i in UTF-8."""
    encoded = [string.encode("utf-8", "surrogatepass") for string in strings]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8).copy(), offsets


def unpack_strings(arrays, name="", order=""):
    """The list of strings that `pack_strings` stored as arrays[name + "text"] and arrays[name + "ptr"].

    order : "", "rising" or "all different". Raises ValueError for other arrays, and strings in another order.
    """
    check_arrays(arrays, {f"{name}text": Stored(np.uint8)})
    blob, offsets = arrays[f"{name}text"], arrays.get(f"{name}ptr")
    check_arrays(arrays, {f"{name}ptr": pointers(None, len(blob))})
    data = blob.tobytes()
    strings = [data[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(offsets.tolist())]
    rising = order == "rising" and any(a >= b for a, b in pairwise(strings))
    if rising or (order == "all different" and len(set(strings)) < len(strings)):
        raise ValueError(f"the strings of {name}text: expected them {order}")
    return strings


def number_labels(labels, n, seq_ptr, place=None):
    """The label alphabet of n labels: (int32 (n,) ids, list of labels, id = place).

    Labels are sorted, so that ids do not depend on the order of the data. None means unknown and gets -1.
    NumPy's scalars become plain Python values. Raises ValueError or TypeError naming sequence and token, also
    for what looks like padding: a number <= 0 that is the only one among strings, -100 as the only negative
    one. An empty string among others is warned of. place : the words for a position, if not by seq_ptr.
    """
    place = place or (lambda position: where(position, seq_ptr))
    try:
        numbers, found = numbered(labels, n)
    except TypeError as error:
        raise _bad_label(labels, place, error) from None
    plain = [plain_value(label) for label in found]
    for number, label in enumerate(plain):
        if (label != label) is False and not isinstance(label, SETS):  # of pandas.NA it is not
            continue
        here = place(int(np.argmax(numbers == number)))
        missing = ValueError(f"{here}: the label is {shown(label)}, a missing value")
        raise a_set(here, label) if isinstance(label, SETS) else missing
    if len(found) > 1:
        _ask_about_padding(plain, lambda number: place(int(np.argmax(numbers == number))))
    alphabet = label_alphabet({label for label in plain if label is not None})
    ids = {label: i for i, label in enumerate(alphabet)}
    table = np.array([ids.get(label, -1) for label in plain] or [-1], np.int32)
    return table[numbers], alphabet


def _ask_about_padding(labels, place):
    """labels: the distinct ones; place(i): where label i is."""
    numbers, strings = (list(filter(kind, labels)) for kind in (is_number, lambda y: isinstance(y, str)))
    lone = strings and len(numbers) == 1 and numbers[0] <= 0
    odd = numbers if lone else [-100] * ([number for number in numbers if number < 0] == [-100])
    question = "is it padding? If so leave its tokens out of X and y"
    if odd:
        sentence = (
            f"the label {shown(odd[0])} is among {'strings' if strings else 'numbers >= 0'}, {question}"
        )
        raise ValueError(f"{place(labels.index(odd[0]))}: {sentence}; else write it as a string")
    if "" in strings and len(strings) > 1:
        warnings.warn(f"{place(labels.index(''))}: the label '' is among others, {question}", stacklevel=2)


def label_alphabet(known):
    """A set of labels as a list, sorted; labels of several kinds by kind, then by how they are written."""
    try:
        return sorted(known)
    except TypeError:
        return sorted(known, key=lambda label: (type(label).__name__, repr(label)))


def encode_labels(labels, n, alphabet, seq_ptr, unknown):
    """Ids of n labels in a given alphabet; None gives -1, and so does an unseen label if `unknown` is "mark".

    Raises ValueError naming the label, sequence and token if `unknown` is "raise".
    """
    one_of("on_unknown_label", unknown, ("raise", "mark"))
    table = {label: i for i, label in enumerate(alphabet)}
    try:
        ids = look_up(table, labels, n)
    except TypeError as error:
        raise _bad_label(labels, lambda i: where(i, seq_ptr), error) from None
    if n and ids.min() < 0:
        for position in np.flatnonzero(ids < 0).tolist():
            if isinstance(labels[position], SETS):
                raise a_set(where(position, seq_ptr), labels[position])
            if unknown == "raise" and labels[position] is not None:
                known = ", ".join(map(repr, alphabet[:10])) + (", ..." if len(alphabet) > 10 else "")
                raise UnknownLabelError(
                    f"{where(position, seq_ptr)}: label {shown(labels[position])} was not seen in training; "
                    f"known: {known}"
                )
    return ids


def plain_value(label):
    return label.item() if isinstance(label, np.generic) else str(label) if isinstance(label, str) else label


def _bad_label(labels, place, error):
    for position, label in enumerate(labels):
        try:
            hash(label)
        except TypeError:
            if isinstance(label, SETS):
                return a_set(place(position), label)
            return TypeError(
                f"{place(position)}: a label must be hashable (string, integer, tuple), got {shown(label)}"
            )
    return error


_SIMPLE = (str, int, float, bool)


def labels_to_json(alphabet):
    """The alphabet as JSON carries it: strings, numbers, booleans, tuples of these.
    TypeError for other labels.
    """
    return [_to_json(label) for label in alphabet]


def labels_from_json(stored):
    """The inverse of `labels_to_json`. ValueError for what is no alphabet."""
    alphabet = [_from_json(label) for label in stored] if isinstance(stored, list) else []
    if not alphabet or len(set(alphabet)) < len(alphabet):
        raise ValueError(f"labels: expected a list of labels, all different, got {stored!r:.60}")
    return alphabet


def _to_json(label):
    if type(label) is tuple:
        return {"tuple": [_to_json(part) for part in label]}
    if type(label) not in _SIMPLE:
        raise TypeError(
            f"label {shown(label)} cannot be saved: expected str, int, float, bool or a tuple of these"
        )
    return label


def _from_json(label):
    if isinstance(label, dict) and label.keys() == {"tuple"} and isinstance(label["tuple"], list):
        return tuple(map(_from_json, label["tuple"]))
    if type(label) not in _SIMPLE or label != label:
        raise ValueError(f"labels: expected strings, numbers, booleans or tuples of these, got {label!r:.60}")
    return label


def flat_labels(y, seq_ptr, may_be_flat=False, name="y"):
    """Labels per sequence (list of lists) as one flat list of N.

    may_be_flat: a list of N labels, none of which has a length (strings apart), is taken as it is.
    name: what messages call y.
    Raises ValueError naming the sequence whose length differs.
    """
    n_sequences = len(seq_ptr) - 1
    y = list(in_order(y, name))
    nested = [not isinstance(part, (str, bytes)) and hasattr(part, "__len__") for part in y]
    if may_be_flat and len(y) == seq_ptr[-1] and not any(nested):
        return y
    if len(y) != n_sequences:
        raise ValueError(f"X has {n_sequences} sequences but {name} has {len(y)}")
    for i, (part, length) in enumerate(zip(y, np.diff(seq_ptr).tolist(), strict=True)):
        in_order(part, f"sequence {i}", f"a list of {length} labels")
        if not nested[i]:
            raise ValueError(f"sequence {i}: expected a list of {length} labels, got {shown(part)}")
        if len(part) != length:
            raise ValueError(f"sequence {i}: {length} tokens but {len(part)} labels")
    return list(chain.from_iterable(y))
