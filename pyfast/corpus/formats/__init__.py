"""Readers of file formats, each in its own file. `pyfast.corpus.readers` describes their rules."""
