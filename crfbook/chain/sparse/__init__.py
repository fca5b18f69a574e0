"""Transitions with few weights (chapter 06; Sokolovska et al. 2010, section 3.3).

Where a transition has no weight, its factor is 1: only the others need work.
"""
