"""pyfast inside other frameworks. Each module needs the extra of its name. pyfast itself imports none of them."""
