"""Data in: corpora, feature sets, constraints, columns of text and their readers. Nothing here trains."""
