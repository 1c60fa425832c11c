"""What the site makes of docstrings. They say `Example:`; griffe knows the section as `Examples:`. An
option of a shared type has the meaning of that type."""

import dataclasses
from typing import Any

import griffe

from pyfast.utils import options


class ExampleSections(griffe.Extension):
    """Has each example shown as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Give an option of `pyfast.utils.options` its type alone, and its meaning."""
        kind = getattr(options, attr.parent.name, None) if attr.parent is not None else None
        if not (isinstance(kind, type) and issubclass(kind, options.Options)):
            return
        for one in dataclasses.fields(kind):
            if one.name == attr.name:
                if attr.docstring is None:
                    attr.docstring = griffe.Docstring(options.meanings(kind)[one.name], parent=attr)
                if getattr(attr.annotation, "canonical_name", "") == "Annotated":
                    attr.annotation = attr.annotation.slice.elements[0]
