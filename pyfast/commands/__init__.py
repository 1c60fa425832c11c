"""The commands of the command line, each in its own file. `pyfast.commands.cli` puts them together."""
