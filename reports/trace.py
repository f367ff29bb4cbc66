"""What `kvconform compare` found, as text and as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from tabulate import tabulate

from ..harness.traces.compare import Judgement


def comparison_text(found: Judgement, ref: str, got: str) -> str:
    """A table of figures with the verdict as the last line."""
    part = found.largest / found.scale if found.scale else 0.0
    broken = f"{found.not_finite} positions; the sizes are those of the others" if found.not_finite else ""
    lines = [
        ("positions compared", f"{found.compared} of {found.total}"),
        ("first bad token", _place(found)),
        ("where", found.where),
        ("max |Δlogit|", f"{found.largest:.3g} at position {found.largest_at}, {part:.2g} of the scale {found.scale:.3g}"),
        ("RMS", f"{found.rms:.3g}"),
        ("KL", f"max {found.kl_max:.3g}, mean {found.kl_mean:.3g}"),
        ("top-1", f"{found.agree} of {found.compared} agree"),
        ("NaN or infinity", broken),
        ("smallest tolerance", "none passes" if found.smallest is None else f"--tolerance {found.smallest:g} passes"),
        ("due by", found.due_by),
        ("judged", f"in {found.dtype}, by {found.judged_by}"),
        *(("diagnosis", clue) for clue in found.clues),
    ]
    shown = tabulate([line for line in lines if line[1]], tablefmt="plain", disable_numparse=True)
    return f"{shown}\n\n{got} against {ref}: {found.verdict}: {found.detail}"


def _place(found: Judgement) -> str:
    if found.first is None:
        return "—"
    if found.place is None:
        return f"position {found.first}"
    place = found.place
    op = place.text if len(place.text) <= 40 else f"{place.text[:39]}…"
    return f"position {found.first}: token {place.index} of cache {place.cache}, row {place.row}, in op {place.op} ({op})"


def comparison_json(found: Judgement, ref: str, got: str) -> str:
    """One JSON object; null where a number is not finite or there is none."""
    return json.dumps({"ref": ref, "got": got, **_plain(asdict(found))}, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
