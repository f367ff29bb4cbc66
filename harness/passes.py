"""Forward passes that are made, and how many may be: what a check of a large model is measured in."""

from __future__ import annotations

from .errors import Spent


class Passes:
    """Counts the passes of what is judged and of its reference. There is one for a process, as there is one run at a time."""

    def __init__(self) -> None:
        self.made = 0
        self.limit: int | None = None
        self._allotted = self._share = 0

    def begin(self, limit: int | None) -> None:
        """From here on, so many may be made; None: any number."""
        self.limit = None if limit is None else self.made + limit
        self._allotted = self._share = self.limit or 0

    def allot(self, parts: int) -> None:
        """What is left is for so many precisions, of which the next begins."""
        if self.limit is not None:
            self._allotted = self._share = self.made + (self.limit - self.made) // parts

    def share(self, parts: int) -> None:
        """What is left of that is for so many clauses, of which the next begins."""
        if self.limit is not None:
            self._share = self.made + max(0, self._allotted - self.made) // parts

    @property
    def over(self) -> bool:
        """Is the clause's share spent? A program that has begun goes on, as long as there are passes at all."""
        return self.limit is not None and self.made >= self._share

    def count(self, more: int = 1) -> None:
        """Before passes are made. Raises `Spent` where there are not so many left."""
        if self.limit is not None and self.made + more > self.limit:
            raise Spent("the budget of forward passes is spent")
        self.made += more


PASSES = Passes()
