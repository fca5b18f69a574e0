"""Objectives and outer loops: what is minimised, how, on how many threads, and when to stop."""
