"""One file per command of the command line; `pyfast.cli` puts them together."""
