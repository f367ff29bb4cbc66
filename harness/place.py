"""Where in the user's own code something happened, for errors that are the user's to mend."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from pathlib import Path
from traceback import walk_tb


def culprit(frames: Iterable[tuple[str, int, str]]) -> str:
    """Where the user's code is, as the end of a sentence: the innermost of these frames (file, line, function, innermost
    first) that lies in no library, else the innermost of all."""
    found = list(frames)
    own = [frame for frame in found if not frame[0].startswith(("<", *_libraries()))]
    for path, line, name in [*own, *found][:1]:
        return f" in {name} ({Path(path).name}:{line})"
    return ""


def raised_at(error: BaseException) -> str:
    """Where the user's code raised an error, as the end of a sentence: the innermost frame that lies neither in a library
    nor in this package; nothing where there is none. An error that comes from a worker brings its place with it."""
    brought = getattr(error, "place", None)
    if isinstance(brought, str):
        return brought
    frames = [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in walk_tb(error.__traceback__)
        if not str(frame.f_globals.get("__name__")).startswith("kvconform.")
    ]
    return culprit(frame for frame in reversed(frames) if not frame[0].startswith(("<", *_libraries())))


def _libraries() -> set[str]:
    return {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
