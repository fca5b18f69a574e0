"""Metrics on label sequences: token accuracy, chunks as conlleval counts them, intervals, tests, reliability.

Input is always lists of sequences of labels, gold first. This folder imports nothing of the rest of crfbook.
`schemes` says how labels mark chunks, and converts them. Rates are fractions (0.9375). `ChunkReport.text`
prints conlleval's percentages.
"""

from .metrics import (
    ChunkReport,
    Interval,
    PairedTest,
    bootstrap_interval,
    chunk_report,
    chunk_score,
    confusion,
    error_table,
    holm,
    paired_test,
    token_accuracy,
)
from .reliability import Abstention, Reliability, abstention, reliability
from .schemes import ALIASES, SCHEMES, chunks, convert_labels

__all__ = [
    "ALIASES", "SCHEMES", "Abstention", "ChunkReport", "Interval", "PairedTest", "Reliability", "abstention",
    "bootstrap_interval", "chunk_report", "chunk_score", "chunks", "confusion", "convert_labels",
    "error_table", "holm", "paired_test", "reliability", "token_accuracy",
]  # fmt: skip
