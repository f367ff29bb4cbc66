"""Deliberate bugs, a file a family. Each is a correct class but for one short override."""
