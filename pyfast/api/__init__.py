"""The public API. Each file has the functions for one task. You can also import the most used names from
`pyfast`. The commands call this API."""
