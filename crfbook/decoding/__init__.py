"""Exact search over large label sets: decoders that look at few label pairs, and the k best labellings."""

from crfbook.decoding.labellings import KBest, kbest

__all__ = ["KBest", "kbest"]
