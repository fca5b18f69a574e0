"""Data in: flat corpora, feature sets, templates, encoders, readers. Nothing here trains."""
