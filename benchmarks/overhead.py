"""What a check costs beside the forward passes that it has to make.

    OMP_NUM_THREADS=1 python benchmarks/overhead.py [TARGET] [DTYPE,…]

Prints seconds of a check (imports and loading excluded; generation, comparison and cache operations included), seconds
spent in forward passes (the same calls in the same mode: no gradients, float32 islands lifted in float64), and their
ratio, which is to stay below 1.3. Seconds are the processor's, so that a busy machine does not blur them.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from kvconform.harness import registry
from kvconform.harness.conformance import conform
from kvconform.harness.judging import PROFILES, Profile
from kvconform.implementations.hf.adapter import Transformers
from kvconform.implementations.hf.model import Model


class Clock:
    """Adds up what forward passes take."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0

    def watch(self, model: Model) -> None:
        forward = model.call

        def call(**given: Any) -> Any:
            began = time.process_time()
            try:
                return forward(**given)
            finally:
                self.seconds += time.process_time() - began
                self.calls += 1

        model.call = call


def run(target: str, dtypes: tuple[str, ...], profile: Profile) -> tuple[float, Clock]:
    """Seconds of a whole check, and those of its forward passes."""
    resolved = registry.resolve(target)
    assert isinstance(resolved.implementation, Transformers)
    clock = Clock()
    for name in dtypes:
        clock.watch(resolved.implementation.model.to(getattr(torch, name)))
    began = time.process_time()
    for _ in conform(target, resolved, registry.clauses(), profile, dtypes):
        pass
    return time.process_time() - began, clock


def main() -> None:
    target = sys.argv[1] if len(sys.argv) > 1 else "arch:llama"
    dtypes = tuple((sys.argv[2] if len(sys.argv) > 2 else "float64,float32").split(","))
    run(target, dtypes, Profile("warm", examples=1, shrink=False, fixed=1))  # first uses import for seconds
    for name in dtypes:
        seconds, clock = run(target, (name,), PROFILES["quick"])
        print(
            f"{target} in {name}: {seconds:.2f} s, of which {clock.seconds:.2f} s in {clock.calls:,} forward passes: "
            f"{seconds / clock.seconds:.2f}"
        )


if __name__ == "__main__":
    main()
