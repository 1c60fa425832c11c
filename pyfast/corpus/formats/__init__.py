"""Readers of file formats, one file each. `pyfast.corpus.readers` describes the rules."""
