"""Shared by all tests. It imports nothing of the package: a clone's root folder may have any name."""

from __future__ import annotations

import os

# The tests' models are tiny: two threads that wait for each other are slower than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

pytest_plugins = ["pytester"]
