"""The log of pyfast. The command line prints its records on stderr."""

import logging

LOG = logging.getLogger("pyfast")
"""The logger of all modules"""
