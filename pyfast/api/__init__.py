"""The public API, one file for each part. Its names can be imported from `pyfast`. Commands call only this API."""
