"""Targets: one string that says what is judged, the same in the command line, the pytest option and the report.

builtin:gpt/concat    scheme, colon, address, and options behind a question mark: name=value&name=value
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import TargetError
from .fault import Fault, Kind
from .implementation import Implementation
from .oracle import Reference


@dataclass(frozen=True)
class Target:
    """A parsed target string."""

    scheme: str
    address: str
    options: Mapping[str, str] = field(default_factory=dict[str, str])

    def __str__(self) -> str:
        query = "&".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.scheme}:{self.address}" + (f"?{query}" if query else "")

    @classmethod
    def parse(cls, text: str, schemes: Iterable[str], raw: Container[str] = ()) -> Target:
        """Read a target. Raises `TargetError` with the schemes there are. Schemes in `raw` have no options: all behind
        the colon is the address, as it stands."""
        scheme, colon, rest = text.partition(":")
        known = sorted(schemes)
        if not colon or scheme not in known:
            usable = ", ".join(f"{name}:…" for name in known)
            raise TargetError(f"{text!r} is no target; write one of {usable}, for example builtin:gpt/concat")
        address, _, query = (rest, "", "") if scheme in raw else rest.partition("?")
        options: dict[str, str] = {}
        for part in filter(None, query.split("&")):
            name, equals, value = part.partition("=")
            if not equals or not name:
                raise TargetError(f"option {part!r} of {text!r} is not of the form name=value")
            options[name] = value
        return cls(scheme, address, options)


@dataclass(frozen=True)
class Sample:
    """Text that a model is shown with: a prompt, what follows it, an earlier conversation, and how tokens read."""

    prompt: tuple[int, ...]
    continuation: tuple[int, ...]
    earlier: tuple[int, ...]
    decode: Callable[[Iterable[int]], str]


@dataclass(frozen=True)
class Resolved:
    """What a target stands for: the implementation, and the reference that it is judged by (None: itself, see `sources`).

    `model` names the model without its way to keep a cache; `fault` is that way, where it is one of the catalogue.
    `carrier` is a correct implementation on the reference's weights that the catalogue's faults can be injected into:
    what a diagnosis simulates with.
    """

    implementation: Implementation
    reference: Reference | None
    model: str = ""
    fault: Fault | None = None
    sample: Sample | None = None
    judged_by: str = ""
    """In words, what it is judged by, where that is not what the target brings."""
    given: str | None = None
    """Where the user gave the reference: its target, or nothing for an object of the user's."""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    """What a sweep groups failures by, the widest first: cache class, layer types, model class."""
    carrier: Implementation | None = None


@dataclass(frozen=True)
class Listed:
    """A target that can be named in advance, with what it is."""

    target: str
    kind: Kind
    sentence: str
    shown: bool = True
    """Is it a row of the failure table unless others are asked for?"""


@dataclass(frozen=True)
class Scheme:
    """How targets of one scheme are loaded and which there are. `resolve` raises `TargetError` with cause and mend.

    `mutated` are the targets that the mutation check injects faults into when it is given none; `swept` are patterns of
    those that a sweep asks when it is given none.
    """

    resolve: Callable[[Target], Resolved]
    listing: Callable[[], Iterable[Listed]] = tuple
    mutated: tuple[str, ...] = ()
    raw: bool = False
    """Is all behind the colon the address, a question mark included? Its targets then have no options."""
    reference: Callable[[Target], Any] | None = None
    """Where a target of this scheme can be a reference without being an implementation: what it is then."""
    glance: Callable[[Target], object] | None = None
    """Raises `TargetError` for what can be seen to be wrong before anything is loaded."""
    takes: tuple[str, ...] = ()
    """Options of targets that the command line gives by an option of its own: device."""
    swept: tuple[str, ...] = ()
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Options that a sweep varies, with the values that it gives them unless told otherwise."""
    shares: Callable[[Target], str] = str
    """Targets with the same answer load the same model: a sweep asks them one after the other in one process."""
    preload: tuple[str, ...] = ()
    """Modules that loading any of its targets imports: a sweep's processes are forked from one that has imported them."""


SOME = 8
"""Names that an error shows of those that there are."""


def closest(word: str, known: Iterable[str], what: str) -> TargetError:
    """The error for a name that is not known, with the nearest ones."""
    names = list(known)
    if near := difflib.get_close_matches(word, names, n=3):
        return TargetError(f"no {what} {word!r}; did you mean {' or '.join(near)}?")
    more = ", …" if len(names) > SOME else ""
    return TargetError(f"no {what} {word!r}; there are {', '.join(names[:SOME])}{more}")
