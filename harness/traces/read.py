"""Read logits from a file by slices: safetensors or npy, never a pickle. Nothing is held but the slice asked for."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

from ..errors import TraceError
from .layout import Header
from .write import CODES

PICKLES = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt")
FLOATS = "float16, bfloat16, float32 or float64"


class Trace:
    """Logits in a file, `[n, vocab]` or `[rows, n, vocab]`, and what its header says of them."""

    def __init__(self, path: Path, data: Any, shape: Sequence[int], dtype: str, header: Header, noise: Tensor | None) -> None:
        if len(shape) not in (2, 3):
            raise TraceError(f"{path}: logits have shape {list(shape)}; write [n, vocab] or [rows, n, vocab]")
        if 0 in shape:
            raise TraceError(f"{path} is empty: logits have shape {list(shape)}")
        self.path, self.dtype, self.header, self.noise = path, dtype, header, noise
        self.shape = tuple(shape)
        self._data = data

    @property
    def vocab(self) -> int:
        return self.shape[-1]

    @property
    def rows(self) -> int:
        return self.shape[0] if len(self.shape) == 3 else 1

    @property
    def count(self) -> int:
        """Lines: positions of all rows, a row after the other."""
        return self.rows * self.shape[-2]

    def take(self, lines: Sequence[int]) -> Tensor:
        """These lines, `[len(lines), vocab]` in float64; lines that stand together are read together."""
        import numpy
        import torch

        parts = list[Any]()
        for first, end in _runs(lines, self.shape[-2]):
            row, start = divmod(first, self.shape[-2])
            place = slice(start, start + end - first)
            part = self._data[row, place] if len(self.shape) == 3 else self._data[place]
            if isinstance(part, numpy.ndarray):
                part = torch.from_numpy(part.astype(part.dtype.newbyteorder("="), order="C"))
            parts.append(part.double())
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _runs(lines: Sequence[int], width: int) -> Iterator[tuple[int, int]]:
    """Half-open ranges of lines that follow each other in one row of the file."""
    first = 0
    for at in range(1, len(lines) + 1):
        if at == len(lines) or lines[at] != lines[at - 1] + 1 or lines[at] % width == 0:
            yield lines[first], lines[at - 1] + 1
            first = at


def open_trace(path: Path) -> Trace:
    """A trace by what its first bytes say it is. Raises `TraceError`, one line with the cause and the mend."""
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from None
    if not start:
        raise TraceError(f"{path} is empty")
    if start.startswith(b"\x93NUMPY"):
        return _npy(path)
    # The length of a header may begin with any byte, so what comes behind it is asked first.
    if path.suffix not in PICKLES and start[8:] == b"{" and _room(start) <= path.stat().st_size - 8:
        return _safetensors(path)
    if start.startswith(b"PK") and path.suffix not in PICKLES:
        raise TraceError(f"{path} is a zip archive, as npz or torch.save make; write safetensors, or one array by numpy.save")
    if start.startswith((b"PK", b"\x80")) or path.suffix in PICKLES:
        raise TraceError(f"{path} is a pickle, which may run code when it is read; write safetensors or npy instead")
    raise TraceError(f"{path} is neither safetensors nor npy, or cut short")


def _room(start: bytes) -> int:
    """Bytes of a safetensors file's header, by the file's first eight."""
    return struct.unpack("<Q", start[:8])[0]


def _npy(path: Path) -> Trace:
    import numpy

    try:
        with warnings.catch_warnings(action="ignore"):  # of a header that is mangled and still read
            data = numpy.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a mangled header, which is Python's own text, fails in whatever way it likes
        if "object" in str(error).lower():
            raise TraceError(f"{path} holds Python objects, that is, a pickle; save an array of plain numbers") from None
        raise TraceError(f"{path} is cut short, or no npy file: {_line(error)}") from None
    if data.dtype.kind != "f" or data.dtype.itemsize not in (2, 4, 8):
        raise TraceError(f"{path} holds {data.dtype} numbers, and logits are {FLOATS} (bfloat16 only in safetensors)")
    name = f"float{data.dtype.itemsize * 8}"
    return Trace(path, data, data.shape, name, Header(), None)


def _safetensors(path: Path) -> Trace:
    from safetensors import SafetensorError, safe_open

    try:
        file = safe_open(path, "pt")
        names, metadata = list(file.keys()), file.metadata() or {}
    except SafetensorError as error:
        if "not fully covered" in str(error):
            raise TraceError(f"{path} is cut short: it holds fewer bytes than its header says") from None
        raise TraceError(f"{path} is no safetensors file: {_line(error)}") from None
    name = names[0] if len(names) == 1 else "logits"
    if name not in names:
        raise TraceError(f"{path} has no tensor called logits; it holds {', '.join(names[:5]) or 'none'}")
    data = file.get_slice(name)
    codes = {code: dtype for dtype, code in CODES.items()}
    if data.get_dtype() not in codes:
        raise TraceError(f"{path} holds {data.get_dtype()} numbers, and logits are {FLOATS}")
    noise = file.get_tensor("noise").double() if "noise" in names else None
    found = Trace(path, data, data.get_shape(), codes[data.get_dtype()], Header.parse(metadata, str(path)), noise)
    if found.header.vocab not in (None, found.vocab):
        raise TraceError(f"{path}: its header says a vocabulary of {found.header.vocab}, and its logits have {found.vocab}")
    if found.header.dtype and found.header.dtype not in CODES:
        raise TraceError(f"{path}: dtype in its metadata is {found.header.dtype[:40]!r}, and logits are {FLOATS}")
    if noise is not None and tuple(noise.shape) != (found.count, 2):
        raise TraceError(f"{path}: noise has shape {list(noise.shape)}, and {[found.count, 2]} is due")
    return found


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:160]
