"""Around every learner (chapter 03).

loop            the one outer loop: learners, steps, results, stages
interrupts      when Ctrl-C is delivered
threads         shards on threads, BLAS on one
certificate     when an optimiser may stop, and what that proves
monitor         progress and history of a fit
"""
