"""What a trace is about: a line of logits for each token that a program feeds, and the header that says so.

Lines stand in the order in which tokens are fed: append by append, row by row within an append, token by token within a
row. Padding and refused appends have no line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..errors import ProgramError, TraceError
from ..history import histories
from ..program import Append, Program, Row, print_op

FORMAT = "1"
"""Version of the layout, the header's `trace`."""
REFERENCE, IMPLEMENTATION = "reference", "implementation"


@dataclass(frozen=True, slots=True)
class Place:
    """Which token of a program a line belongs to. `index` is the token's position in its row."""

    op: int
    text: str
    cache: str
    row: int
    index: int
    token: int
    fresh: bool
    last: bool


@dataclass(frozen=True, slots=True)
class Group:
    """The lines of one append and row: `tokens` is the whole row behind it, of which the last `count` are new."""

    op: int
    text: str
    cache: str
    row: int
    tokens: Row
    count: int


def groups(program: Program) -> Iterator[Group]:
    """Appends and rows in the order of their lines. Raises `ProgramError` where the program is not legal."""
    states = histories(program)
    for index, op in enumerate(program.ops):
        if isinstance(op, Append) and not op.refused:
            for row, (tokens, new) in enumerate(zip(states[index + 1].caches[op.cache], op.rows, strict=True)):
                yield Group(index, print_op(op), op.cache, row, tokens, len(new))


def places(program: Program) -> list[Place]:
    """One place a line."""
    return [
        Place(one.op, one.text, one.cache, one.row, index, one.tokens[index], past == 0, index == len(one.tokens) - 1)
        for one in groups(program)
        for past in [len(one.tokens) - one.count]
        for index in range(past, len(one.tokens))
    ]


@dataclass(frozen=True)
class Header:
    """A safetensors file's metadata. Every field may be empty in a file that another engine wrote.

    `dtype` is the precision that is judged, which half-precision logits are not stored in; `floor` and `scale` are those of
    the reference in it. `positions` are the lines of the program that the file holds, all where it is None.
    """

    program: str = ""
    target: str = ""
    logits_of: str = ""
    source: str = ""
    dtype: str = ""
    vocab: int | None = None
    floor: float | None = None
    scale: float | None = None
    positions: tuple[int, ...] | None = None
    version: str = ""

    def metadata(self) -> dict[str, str]:
        """The metadata to write; `appends` says in JSON, for engines that do not parse programs, what is fed when."""
        program = Program.parse(self.program)
        appends = [
            {"op": one.op, "cache": one.cache, "row": one.row, "past": len(one.tokens) - one.count, "tokens": new}
            for one in groups(program)
            for new in [list(one.tokens[len(one.tokens) - one.count :])]
        ]
        fields = {
            "trace": FORMAT,
            "kvconform": self.version,
            "program": self.program,
            "appends": json.dumps(appends),
            "target": self.target,
            "logits_of": self.logits_of,
            "source": self.source,
            "dtype": self.dtype,
            "vocab": "" if self.vocab is None else str(self.vocab),
            "floor": "" if self.floor is None else repr(self.floor),
            "scale": "" if self.scale is None else repr(self.scale),
            "positions": "" if self.positions is None else json.dumps(self.positions),
        }
        return {name: value for name, value in fields.items() if value}

    @classmethod
    def parse(cls, metadata: Mapping[str, str], path: str) -> Header:
        """Read the metadata of a file. Raises `TraceError` where a field of it is no such thing."""
        if metadata.get("trace", FORMAT) != FORMAT:
            raise TraceError(f"{path} is a trace of version {metadata['trace']}, and this kvconform reads version {FORMAT}")

        def number(name: str) -> float | None:
            text = metadata.get(name, "")
            if not text:
                return None
            if not re.fullmatch(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,3})?", text):
                raise TraceError(f"{path}: {name} in its metadata is {text[:40]!r}, no number from 0 on")
            return float(text)

        program, positions = metadata.get("program", ""), metadata.get("positions", "")
        if program:
            try:
                places(Program.parse(program))
            except ProgramError as error:
                raise TraceError(f"{path}: the program in its metadata cannot be read: {error}") from None
        vocab = number("vocab")
        return cls(
            program=program,
            target=metadata.get("target", ""),
            logits_of=metadata.get("logits_of", ""),
            source=metadata.get("source", ""),
            dtype=metadata.get("dtype", ""),
            vocab=None if vocab is None else int(vocab),
            floor=number("floor"),
            scale=number("scale"),
            positions=_listed(positions, path) if positions else None,
            version=metadata.get("kvconform", ""),
        )


def _listed(text: str, path: str) -> tuple[int, ...]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not found or not all(type(one) is int and one >= 0 for one in found):
        raise TraceError(f"{path}: positions in its metadata must be a JSON list such as [15, 16, 17]")
    if len(set(found)) < len(found):
        raise TraceError(f"{path}: positions in its metadata name a position twice")
    return tuple(found)


def chosen_positions(text: str, total: int, known: Sequence[Place] | None) -> tuple[int, ...]:
    """What `--positions` says: `last` (of each append), `decode` (appends to a cache that holds something), or numbers and
    ranges from 0, as 0,4,16-32. Raises `TraceError`."""
    words = {"last": lambda place: place.last, "decode": lambda place: not place.fresh}
    if text in words:
        if known is None:
            raise TraceError(f"--positions {text} needs a program in REF's metadata; write numbers, as 16-32")
        return tuple(index for index, place in enumerate(known) if words[text](place))
    found = list[int]()
    for part in text.split(","):
        matched = re.fullmatch(r"\s*(\d{1,12})(?:-(\d{1,12}))?\s*", part)
        if not matched:
            raise TraceError(f"--positions {text!r} is not last, decode, or numbers and ranges such as 0,4,16-32")
        first, end = int(matched[1]), int(matched[2] or matched[1])
        if end < first or end >= total:
            raise TraceError(f"--positions {part.strip()}: the trace has positions 0 to {total - 1}")
        found.extend(range(first, end + 1))
    if len(set(found)) < len(found):
        raise TraceError(f"--positions {text} names a position twice")
    return tuple(found)


def simple_program(tokens: Row, prefill: int) -> Program:
    """A prompt and steps of one token each: what a plain list of tokens means. `prefill` 0: all in one call."""
    first = prefill or len(tokens)
    if not tokens or first > len(tokens):
        raise ProgramError(f"--prefill {prefill} of {len(tokens)} tokens cannot be; give at least as many tokens")
    return Program((Append("a", (tokens[:first],)), *(Append("a", ((token,),)) for token in tokens[first:])))
