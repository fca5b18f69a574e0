"""Learners, one folder a family. Each face (`__init__`) names its public functions, chapter and source."""
