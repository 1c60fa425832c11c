"""The public API, which the commands call. Each file contains the functions for one task. The most used names can
also be imported from `pyfast`."""
