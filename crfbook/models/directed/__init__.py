"""HMM and MEMM: distributions of the next label, given the present one (chapter 01)."""

from crfbook.models.directed.estimators import HMM, MEMM

__all__ = ["HMM", "MEMM"]
