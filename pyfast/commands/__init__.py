"""The commands of the command line, each in its own file. `pyfast.cli` puts them together."""
