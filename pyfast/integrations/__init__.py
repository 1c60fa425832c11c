"""pyfast inside other frameworks. Each module needs the extra of the same name. pyfast itself imports none of
them.
"""
