"""The catalogue of faults as a page."""

from __future__ import annotations

from itertools import groupby

from ..harness import registry
from ..harness.fault import Fault, Kind

HEAD = """# The catalogue of faults

Each fault is a deliberate bug: the class of a correct cache but for one override, which is printed here. `kvconform mutate`
injects every one of them and demands that the contract catches it; that is how the check proves that it can fail. This page
is generated from the catalogue, as `kvconform list faults --override` is.
"""


def render_faults() -> str:
    """The page."""
    faults = [fault for fault in registry.faults().values() if fault.kind is Kind.FAULT]
    parts = [HEAD]
    for family, members in groupby(sorted(faults, key=lambda fault: fault.family), key=lambda fault: fault.family):
        parts.append(f"## {family}\n")
        parts += map(_entry, members)
    return "\n".join(parts)


def _entry(fault: Fault) -> str:
    lines = [f"### {fault.name}\n", f"**{fault.sentence}**\n", f"- shows: {fault.shows}", f"- caught by: `{fault.clause}`"]
    lines.append(f"- on: {', '.join(fault.models)}")
    if fault.reports:
        lines.append(f"- reported in: {', '.join(fault.reports)}")
    lines += [f"- cannot show on {model}: {reason}" for model, reason in fault.equivalent.items()]
    source = f"\n```python\n{fault.override}\n```\n" if fault.override else "\n"
    return "\n".join(lines) + "\n" + source
