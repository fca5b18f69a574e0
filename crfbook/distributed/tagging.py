"""Tags files: each is read, tagged and written in pieces, here or by the workers of a cluster."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import threading
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from sklearn.utils.validation import check_is_fitted

from crfbook._checks import File, file_name, one_of, shown, whole
from crfbook.data.files import replacing
from crfbook.data.readers import iter_conll, write_conll
from crfbook.distributed.engine import engine_of, keep_freed
from crfbook.distributed.reading import is_file, is_parquet, named, parquet, parquet_batches, regular
from crfbook.models.crf import CRF

ROWS = 1024  # sentences of a piece of Parquet
LEFT = re.compile(r"(.+)\.[0-9a-f]{12}\.tmp")  # a file that is not yet complete: that of `tag_file`
MODEL = ".model-{}.crfbook"  # the model in the folder `out`, while files are tagged
MODELS = re.compile(r"\.(model)-[0-9a-f]{12}\.crfbook(\.[0-9a-f]{12}\.tmp)?")


class Tagged(NamedTuple):
    """A file that was written."""

    path: str
    n_sequences: int
    n_tokens: int


def predict_files(
    crf: CRF, files: Iterable[File], out: File, client: Any = None, *,
    columns: Iterable[str | None] | None = None, label: str = "label", piece_tokens: int = 50_000,
    existing: str = "error", verbose: bool = False,
) -> list[Tagged]:  # fmt: skip
    """Tag files: the labels that `crf.predict` would find, in bounded memory.

    Parameters
    ----------
    crf : a fitted CRF with a template.
    files : paths, each once. Of ".parquet": a row a sentence, lists of strings; the same with a column
        `label` more is written. Others are files of columns (blank lines between sentences), and so is what
        is written: the named columns, labels last.
    out : folder for what is written, under the names of the files; it is made. With a client it must be one
        that all workers see.
    client : dask.distributed.Client, or None: this process tags all.
    columns : names of the columns of files of columns; None leaves one out. Not given: those of training.
        Those that the template reads must be there, in files of any kind.
    label : name of the new column. A column of this name is replaced.
    piece_tokens : tokens read at a time from files of columns; memory grows with it, not with files.
    existing : what to do with files that are already in `out`: "error", "skip" (the call before was stopped),
        "replace".
    verbose : show a progress bar.

    Returns a list of `Tagged`, one a file, in their order (of skipped ones n_tokens is -1). Files appear
    complete or not at all. Raises ValueError or TypeError naming file and place; FileExistsError. Refused are
    files of columns with a line of more than 1 MB, or with a sentence of more than a million tokens or 64 MB;
    rows of Parquet of more than a million values; folders and pipes.
    """
    check_is_fitted(crf, "weights_")
    one_of("existing", existing, ("error", "skip", "replace"))
    whole("piece_tokens", piece_tokens, 1)
    if getattr(crf.encoder_, "columns_", None) is None:
        raise ValueError(
            "predict_files: expected a CRF with a template, which reads columns, got one without"
        )
    odd = [name for name in crf.classes_ if not isinstance(name, str)]
    if odd:
        raise ValueError(f"predict_files: expected a CRF whose labels are strings, one is {shown(odd[0])}")
    if is_file(files):
        raise TypeError(f"files: expected a list of paths, got one path: [{files!r}]")
    files = [os.path.abspath(file_name(path)) for path in files]  # links keep their names
    names = Counter(map(os.path.basename, files))
    twice = [name for name, n in names.items() if n > 1]
    if twice:
        raise ValueError(f"files: expected names that differ, got {twice[0]} {names[twice[0]]} times")
    out = os.path.abspath(file_name(out))
    os.makedirs(out, exist_ok=True)
    targets = [os.path.join(out, os.path.basename(path)) for path in files]
    for path, target in zip(files, targets, strict=True):
        if os.path.realpath(path) == os.path.realpath(target):
            raise ValueError(f"out: expected another folder than that of the files, {path} is in it")
    there = [os.path.lexists(target) for target in targets]  # so is a link to a file that is gone
    if existing == "error" and any(there):
        name = targets[there.index(True)]
        raise FileExistsError(f"{name} exists: existing='skip' keeps it, existing='replace' writes it again")
    columns = tuple(crf.encoder_.columns_ if columns is None else columns)
    engine = engine_of(client)
    todo = [i for i, done in enumerate(there) if not (done and existing == "skip")]
    with _at_work(out):
        model = os.path.join(out, MODEL.format(secrets.token_hex(6)))
        crf.save(model)
        try:
            with open(model, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            jobs = ((model, digest, files[i], targets[i], columns, label, piece_tokens) for i in todo)
            results = engine.run(tag_file, jobs)
            if verbose:  # in a notebook without ipywidgets the import alone warns
                from tqdm.auto import tqdm

                results = tqdm(results, total=len(todo), unit="file", desc="tagging")
            found = dict(zip(todo, results, strict=True))
        finally:
            os.unlink(model)
            _sweep(out, LEFT, {os.path.basename(targets[i]) for i in todo})
    return [found.get(i, Tagged(target, -1, -1)) for i, target in enumerate(targets)]


@contextlib.contextmanager
def _at_work(out):
    """Context manager: a call that begins alone in `out` removes the models of calls that were killed.

    It locks the folder until the process ends. On a file system without locks nothing is removed.
    """
    folder = None
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        folder = os.open(out, os.O_RDONLY)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sweep(out, MODELS, ("model",))
        fcntl.flock(folder, fcntl.LOCK_SH)  # shared: while a call holds it, no other one removes files
    try:
        yield
    finally:
        if folder is not None:
            os.close(folder)


def _sweep(out, pattern, names):
    """Remove files left by killed calls: those of whose names `pattern` finds one of `names`."""
    for left in os.listdir(out):
        found = pattern.fullmatch(left)
        if found and found[1] in names:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(out, left))


_MODELS: dict[str, CRF] = {}  # digest: the last model of this process, whatever its file is called
_READING = threading.Lock()


def _model(path, digest):
    with _READING:
        if digest not in _MODELS:
            _MODELS.clear()
            _MODELS[digest] = CRF.load(path, trust=True)
        return _MODELS[digest]


def tag_file(model, digest, path, target, columns, label, piece_tokens):
    """One file -> `Tagged`. A task."""
    keep_freed()
    crf = _model(model, digest)
    write = _tag_parquet if is_parquet(path) else _tag_columns
    try:
        regular(path)
        with replacing(target) as beside:
            sizes = write(crf, path, beside, columns, label, piece_tokens)
            if not os.path.exists(model):  # the call has failed; another one may have written the file
                raise RuntimeError(f"{path}: the call of predict_files that asked for it has ended")
    except (ValueError, TypeError) as error:
        raise named(error, path) from None
    return Tagged(target, *sizes)


def _tag_columns(crf, path, beside, columns, label, piece_tokens):
    n_sequences = n_tokens = 0
    with open(beside, "w", encoding="utf-8", newline="\n") as file:
        for piece in iter_conll(path, columns, n_tokens=piece_tokens):
            found = crf.predict(piece.select(_needed(crf, piece.names)))
            piece.columns.pop(label, None)
            piece.labels = list(chain.from_iterable(found))
            write_conll(file, piece)
            n_sequences, n_tokens = n_sequences + len(piece), n_tokens + piece.n_tokens
    return n_sequences, n_tokens


def _tag_parquet(crf, path, beside, columns, label, piece_tokens):
    import pyarrow as pa

    n_sequences = n_tokens = 0
    with open(path, "rb") as file:
        batches = parquet_batches(file, ROWS, wanted=partial(_needed, crf))
        schema = next(batches)
        old = schema.get_field_index(label)
        schema = schema.remove(old) if old >= 0 else schema
        schema = schema.append(pa.field(label, pa.list_(pa.string())))
        with parquet().ParquetWriter(beside, schema) as writer:
            for batch, text in batches:
                labels = pa.array(crf.predict(text), pa.list_(pa.string()))
                kept = [batch.column(i) for i, name in enumerate(batch.schema.names) if name != label]
                writer.write_batch(pa.record_batch([*kept, labels], schema=schema))
                n_sequences, n_tokens = n_sequences + len(text), n_tokens + text.n_tokens
    return n_sequences, n_tokens


def _needed(crf, there):
    """The columns that the model reads; ValueError where one is missing.

    Columns before them stay, since a template may count columns.
    """
    wanted = crf.encoder_.columns_
    if crf.tag_dictionary is None:
        read = {source.column for source in crf.encoder_.template.sources}
        last = max((column for column in read if isinstance(column, int)), default=-1)
        wanted = [name for i, name in enumerate(wanted) if i <= last or name in read]
    if any(name not in there for name in wanted):
        expected, found = (", ".join(map(repr, names)) for names in (wanted, there))
        raise ValueError(f"expected the columns {expected}, got {found}")
    return wanted
