"""Where lies what is dear to make and belongs to no clone: built engines, weights that were converted."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`KVCONFORM_CACHE`, else `kvconform` in `XDG_CACHE_HOME`, else in `~/.cache`. The Makefile has the same rule."""
    own = os.environ.get("KVCONFORM_CACHE")
    base = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "kvconform"
    return base.expanduser()
