"""What the site makes of docstrings. They say `Example:`; griffe knows the section as `Examples:`. The type of an
option has its meaning."""

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
        """Give an option of `pyfast.utils.options` its type, and its meaning as its documentation."""
        kind = getattr(options, attr.parent.name, None) if attr.parent is not None else None
        if not (isinstance(kind, type) and issubclass(kind, options.Options)):
            return
        for one in dataclasses.fields(kind):
            if one.name == attr.name and isinstance(attr.annotation, griffe.ExprSubscript):
                more = "" if attr.docstring is None else f"\n\n{attr.docstring.value}"
                attr.docstring = griffe.Docstring(f"{options.told(one)[1].help}{more}", parent=attr)
                elements = getattr(attr.annotation.slice, "elements", [attr.annotation])
                attr.annotation = elements[0]
