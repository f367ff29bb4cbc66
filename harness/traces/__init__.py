"""Logits as files: written, read as a stream, held against each other."""
