"""Losses beside the log loss: exponential and pointwise (chapter 04; Altun et al. 2003)."""
