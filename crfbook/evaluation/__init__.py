"""Metrics on label sequences: token accuracy, chunks as conlleval counts them, intervals and tests.

Input is always lists of sequences of labels, gold first. This folder imports nothing of the rest of crfbook.
Rates are fractions (0.9375). `ChunkReport.text` prints conlleval's percentages.
"""

from .metrics import (
    ChunkReport,
    Interval,
    PairedTest,
    bootstrap_interval,
    chunk_report,
    chunks,
    confusion,
    error_table,
    holm,
    paired_test,
    token_accuracy,
)

__all__ = [
    "ChunkReport",
    "Interval",
    "PairedTest",
    "bootstrap_interval",
    "chunk_report",
    "chunks",
    "confusion",
    "error_table",
    "holm",
    "paired_test",
    "token_accuracy",
]
