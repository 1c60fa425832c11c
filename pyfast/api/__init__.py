"""The public API, one file for each part. The most used names can also be imported from `pyfast`. The
commands call this API."""
