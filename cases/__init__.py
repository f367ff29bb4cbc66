"""The contract: clauses and the programs by which they are asked, a file a family."""

from . import (
    adapter,
    any_order,
    batch,
    branch,
    decode,
    forward,
    generate,
    lifecycle,
    limit,
    numerics,
    prefill,
    reference,
    window,
)

CLAUSES = (
    *adapter.CLAUSES,
    *reference.CLAUSES,
    *forward.CLAUSES,
    *prefill.CLAUSES,
    *decode.CLAUSES,
    *lifecycle.CLAUSES,
    *branch.CLAUSES,
    *batch.CLAUSES,
    *window.CLAUSES,
    *numerics.CLAUSES,
    *limit.CLAUSES,
    *any_order.CLAUSES,
    *generate.CLAUSES,
)
