"""The public API, one file for each part; `pyfast` itself offers its names. Commands call nothing else."""
