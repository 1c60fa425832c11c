"""The commands of the command line, each in its own file, assembled by `pyfast.commands.cli`."""
