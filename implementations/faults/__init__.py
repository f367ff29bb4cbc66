"""Deliberate bugs, a file a family. Each is a correct class but for one short override."""

from . import operations, positions, storage, visibility

__all__ = ["operations", "positions", "storage", "visibility"]
