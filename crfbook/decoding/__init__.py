"""Decoders for large label sets, and the k best labellings (chapter 11).

    plain           every label pair of every token: what speed is measured against
    carpediem       labels are opened from the best node score down (Esposito and Radicioni 2009)
    staggered       one label stands for all rare ones until they may matter (Kaji et al. 2010)
    beam            the best few labels of each token; an approximation
    kbest, log_z    the k most probable labellings, and log Z with stored pairs
    pairs           from marginals: probabilities of spans and the best set of them, samples, entropy
    decoders        the table of names that prediction knows, and `decode` for a corpus

All but beam search are exact, and samples. A decoder NAME is a pair: ``tables = NAME_tables(log_edge, ...)``,
once for a model, and ``NAME_many(log_node, tables, edge_class, seq_ptr, path, score, counters)``.
Sources: docs/SPEC.md, C.1 to C.9.
"""

from crfbook.decoding.beam import beam_many, beam_tables
from crfbook.decoding.carpediem import carpediem_many, carpediem_tables
from crfbook.decoding.decoders import (
    BEAM_WIDTH,
    DECODERS,
    FORMS,
    check_beam,
    decode,
    decode_given,
    label_order,
    plain_many,
    search_by,
)
from crfbook.decoding.kbest import KBest, dense_search, kbest, rank_limit, ranked_paths
from crfbook.decoding.pairs import (
    best_span_sets,
    draw,
    iter_marginals,
    list_spans,
    sequence_entropy,
    span_tables,
    token_entropy,
)
from crfbook.decoding.staggered import staggered_decode, staggered_many, staggered_tables

__all__ = [
    "BEAM_WIDTH",
    "DECODERS",
    "FORMS",
    "KBest",
    "beam_many",
    "beam_tables",
    "best_span_sets",
    "carpediem_many",
    "carpediem_tables",
    "check_beam",
    "decode",
    "decode_given",
    "dense_search",
    "draw",
    "iter_marginals",
    "kbest",
    "label_order",
    "list_spans",
    "plain_many",
    "rank_limit",
    "ranked_paths",
    "search_by",
    "sequence_entropy",
    "span_tables",
    "staggered_decode",
    "staggered_many",
    "staggered_tables",
    "token_entropy",
]
