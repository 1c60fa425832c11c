"""Docstrings say `Example:`; griffe knows the section as `Examples:`."""

from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Has each example shown as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
