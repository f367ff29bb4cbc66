"""Before anything is blamed on a cache: does the reference hold?"""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.checks import reference_is_causal, reference_is_quiet, reference_is_sensitive, reference_repeats
from ..harness.clause import Clause
from ..harness.generate import some_tokens
from ..harness.program import Append, Program
from ..harness.scope import Scope


def one_row(scope: Scope) -> Iterable[Program]:
    longest = min(scope.max_length or 24, 24)
    for length in (2, 7, longest):
        yield Program((Append("a", (some_tokens(scope, min(length, longest), seed=length),)),))


CLAUSES = (
    Clause(
        id="reference.deterministic",
        sentence="The reference gives the same bits for the same tokens.",
        why="A reference that changes from run to run would blame its own noise on the cache.",
        fixed=one_row,
        check=reference_repeats,
    ),
    Clause(
        id="reference.causal",
        sentence="The reference's logits do not change with tokens that come later.",
        why="Only of a causal model can a cache be right: what is stored must not depend on what follows.",
        fixed=one_row,
        check=reference_is_causal,
    ),
    Clause(
        id="reference.sensitive",
        sentence="The reference's logits depend on the past.",
        why="A model that hardly looks back would pass with a broken cache, and nothing would be shown.",
        fixed=one_row,
        check=reference_is_sensitive,
    ),
    Clause(
        id="reference.noise",
        sentence="The reference's own noise is small against its logits.",
        why="Eight times that noise is allowed everywhere. Where it is large, nothing can be told.",
        fixed=one_row,
        check=reference_is_quiet,
    ),
)
