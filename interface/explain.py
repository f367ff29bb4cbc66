"""`kvconform explain`: what an engine's error says about positions and cache."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ..harness.errors import KvconformError
from ..harness.explain.read import explain as read


def explain(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The error, in quotes; - reads standard input.")],
) -> None:
    """What an engine's error says about positions and cached tokens, in numbers, and the mend."""
    found = read(sys.stdin.read() if text == "-" else text)
    if found is None:
        raise KvconformError(
            "this text is not known: no shapes, positions or limits that could be read. Known are errors of candle, PyTorch, "
            "transformers, llama.cpp, MLX, NumPy and onnxruntime; paste the whole of it, the lines before it included"
        )
    typer.echo(str(found))
