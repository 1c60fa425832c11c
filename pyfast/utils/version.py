"""The version of pyfast."""

__version__ = "0.1.0"
