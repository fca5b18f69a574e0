"""Data in: flat corpora, feature sets, templates, encoders, readers, data sets. Nothing here trains."""
