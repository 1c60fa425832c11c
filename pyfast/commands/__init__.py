"""The commands of the command line, one file for each. `pyfast.cli` puts them together."""
