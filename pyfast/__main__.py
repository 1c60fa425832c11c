"""`python -m pyfast`: the command line."""

from pyfast.cli import main

main()
