"""Where chunks start and end, and which of them two labellings share: the rules of conlleval.pl,
on arrays.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

Labels = Sequence[Sequence[Hashable]]

TAGS = {tag: code for code, tag in enumerate(["O", "B", "I", "E", ".", "[", "]", "S"])}
_O, _B, _I, _E, _DOT, _OPEN, _CLOSE, _S = range(8)


class Flat(NamedTuple):
    """All sequences in a row, each followed by one boundary token `O`, as conlleval reads its file."""

    tag: np.ndarray  # (n,) codes of TAGS
    type: np.ndarray  # (n,) ids; 0 is the empty type
    starts: np.ndarray  # (n,) bool: a chunk starts here
    ends: np.ndarray  # (n,) bool: a chunk ended just before


def _split(label):
    """(prefix, type): cut at the first dash. As in the script, a type of "0" is no type."""
    tag, dash, kind = str(label).partition("-")
    return (tag, kind if kind != "0" else "") if dash else (str(label), "")


def flatten(sequences, tags, types, iobes):
    """Codes of all labels; `tags` and `types` (dicts string -> id) grow."""
    codes = {}
    flat = []
    for labels in sequences:
        for label in labels:
            code = codes.get(label)
            if code is None:
                tag, kind = _split(label)
                code = codes[label] = (tags.setdefault(tag, len(tags)), types.setdefault(kind, len(types)))
            flat.append(code)
        flat.append((_O, 0))
    tag, kind = np.array(flat, dtype=np.int64).reshape(-1, 2).T
    before_tag, before_kind = np.append(_O, tag)[:-1], np.append(0, kind)[:-1]
    return Flat(tag, kind, *_edges(before_tag, tag, before_kind != kind, iobes))


def _edges(before, tag, changed, iobes):
    """Where chunks start and where they have ended, by the rules of conlleval.

    start: O or I or B before B; O or E before I; O or E before E; a new type (unless O or "."); "[" and "]".
    end:   B or I before B; B, I or E before O; E before E or I; a new type (unless after O or ".");
           after "[" and "]".
    The script knows no S, and E before B is neither start nor end; `iobes` adds: B and S always start,
    E and S always end.
    """
    starts = (
        (tag == _B) & np.isin(before, (_O, _B, _I))
        | np.isin(tag, (_I, _E)) & np.isin(before, (_O, _E))
        | changed & ~np.isin(tag, (_O, _DOT))
        | np.isin(tag, (_OPEN, _CLOSE))
    )
    ends = (
        (tag == _B) & np.isin(before, (_B, _I))
        | (tag == _O) & np.isin(before, (_B, _I, _E))
        | (before == _E) & np.isin(tag, (_E, _I))
        | changed & ~np.isin(before, (_O, _DOT))
        | np.isin(before, (_OPEN, _CLOSE))
    )
    if iobes:
        starts |= np.isin(tag, (_B, _S)) | (before == _S) & (tag != _O)
        ends |= np.isin(before, (_E, _S)) | (before != _O) & np.isin(tag, (_B, _S))
    return starts, ends


def correct_ends(gold, found):
    """Positions just after chunks that both labellings have (n+1,): conlleval's `inCorrect`,
    without the loop.

    The end of the file closes what is open, be it a chunk of a strange prefix that no rule has ended.
    """
    same = gold.type == found.type
    opened = gold.starts & found.starts & same
    closed = gold.ends & found.ends  # the script also compares types, which are the same inside
    event = opened | closed | (gold.ends != found.ends) | ~same
    last = np.maximum.accumulate(np.where(event, np.arange(len(event)), -1))
    inside = np.where(last >= 0, opened[last], False)  # after position t: the last event was an opening
    return np.append(closed, True) & np.append(False, inside)
