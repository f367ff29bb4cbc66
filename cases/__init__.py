"""The contract: clauses and the programs by which they are asked, a file a family."""

from . import branch, decode, lifecycle, limit, prefill, reference

CLAUSES = (
    *reference.CLAUSES,
    *prefill.CLAUSES,
    *decode.CLAUSES,
    *lifecycle.CLAUSES,
    *branch.CLAUSES,
    *limit.CLAUSES,
)
