"""Around every learner: threads, the outer loop, results, certificates, progress."""
