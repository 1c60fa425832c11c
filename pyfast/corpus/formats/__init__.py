"""Readers of file formats, each in its own file. `pyfast.corpus.readers` has the rules for readers."""
