"""Readers of file formats, one file each. The rules are at `pyfast.corpus.readers`."""
