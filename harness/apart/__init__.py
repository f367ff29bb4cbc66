"""Implementations in processes of their own: Python ones, and engines in any language behind the line protocol."""
