"""Write a trace while it is computed.

The library's `save_file` takes every tensor at once, in memory. The layout is simple enough to stream: eight bytes with
the length of a JSON header, the header, the numbers. Room for the header is kept at the front and filled at the end, when
the scale and the number of lines are known; the format allows spaces behind the JSON.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

from ..errors import TraceError
from .layout import Header

CODES = {"float64": "F64", "float32": "F32", "bfloat16": "BF16", "float16": "F16"}
"""safetensors' names of the dtypes that logits may have."""
ROOM = 4096
"""Bytes of header beyond the metadata as first known."""


class TraceWriter:
    """Logits `[n, vocab]` block by block. As a context manager it leaves a whole file or none.

    `tensors` that are small (the noise of each line) may be given to `finish`.
    """

    def __init__(self, path: Path, dtype: str, vocab: int, header: Header) -> None:
        """`header`: one at least as long as that to come, floor and scale aside. Raises `TraceError` where the file
        cannot be written."""
        self.path, self.dtype, self.vocab = path, dtype, vocab
        self.lines = 0
        self._partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
        self._room = -(-(len(json.dumps(header.metadata())) + ROOM) // 8) * 8
        try:
            self._file = self._partial.open("wb")
            self._file.seek(8 + self._room)
        except OSError as error:
            raise TraceError(f"cannot write {path}: {error.strerror}") from None

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self._file.close()
        self._partial.unlink(missing_ok=True)

    def write(self, block: Tensor) -> None:
        """Further lines, `[n, vocab]`, in whatever dtype they come."""
        import torch

        if block.ndim != 2 or block.shape[1] != self.vocab:
            raise ValueError(f"lines of a trace are [n, {self.vocab}], not {list(block.shape)}")
        self._put(block.detach().to(device="cpu", dtype=getattr(torch, self.dtype)))
        self.lines += len(block)

    def finish(self, header: Header, noise: Tensor | None = None) -> None:
        """Write the header, and the noise `[lines, 2]` where it was measured; the file then stands at its path."""
        size = {"F64": 8, "F32": 4}.get(CODES[self.dtype], 2) * self.vocab * self.lines
        entries = {
            "__metadata__": header.metadata(),
            "logits": {"dtype": CODES[self.dtype], "shape": [self.lines, self.vocab], "data_offsets": [0, size]},
        }
        if noise is not None:
            self._put(noise.float())
            entries["noise"] = {"dtype": "F32", "shape": list(noise.shape), "data_offsets": [size, size + noise.numel() * 4]}
        text = json.dumps(entries).encode()
        assert len(text) <= self._room
        self._file.seek(0)
        self._file.write(self._room.to_bytes(8, "little") + text.ljust(self._room))
        self._file.close()
        self._partial.replace(self.path)

    def _put(self, block: Tensor) -> None:
        import torch

        self._file.write(block.contiguous().view(torch.uint8).numpy().data)
