"""Options by name, as the objects that functions of the API take."""

from dataclasses import fields
from typing import Any

import pyfast


def grouped(*kinds: type[Any], **given: Any) -> dict[str, Any]:
    """The arguments of `pyfast.answer`, or of a function that takes options of the given classes. A name that no
    class has stays an argument. `ray` is the address of the cluster, and `worker_resources` are its resources."""
    for old, name in (("ray", "address"), ("worker_resources", "resources")):
        if old in given:
            given[name] = given.pop(old)
    made = {}
    for kind in kinds or (pyfast.RunOptions, pyfast.Sampling, pyfast.Cluster, pyfast.Watch):
        values = {one.name: given.pop(one.name) for one in fields(kind) if one.name in given}
        argument = {"Sampling": "sampling", "Cluster": "cluster", "Watch": "watch", "Load": "load"}
        if values:
            made[argument.get(kind.__name__, "options")] = kind(**values)
    return {**given, **made}
