"""The public API, one file for each part. `pyfast` exports its names. Commands call nothing else."""
