"""From what users have (strings, dicts, columns) to a `Corpus` of numbers, and back (chapter 03)."""
