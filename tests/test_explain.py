"""`kvconform explain`: the texts of published cases and of real engines, read back to positions and cached tokens."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvconform.harness.explain.read import LONGEST, READERS, cleaned, explain

POSITIONS = "position passed", "really cached", "tokens in the call"

KNOWN = [
    # candle, the four published shapes and its table of rotations
    ("cannot broadcast [13, 45] to [1, 9, 13, 13]", "candle", (32, 0, 13), "the cache is empty"),
    ("cannot broadcast [5, 10] to [1, 9, 5, 13]", "candle", (5, 8, 5), "its own length"),
    ("cannot broadcast [5, 5] to [1, 9, 5, 29]", "candle", (0, 24, 5), "position 0 on a cache that still holds 24"),
    ("cannot broadcast [5, 6] to [1, 4, 5, 18]", "candle", (1, 13, 5), "lags 12 behind"),
    (
        "narrow invalid args start + len > dim_len: [128, 16], dim: 0, start: 128, len:1\n   0: candle_core::error::Error::bt",
        "candle",
        (128, 1, 128),
        "positions 0 to 127",
    ),
    # PyTorch
    (
        "RuntimeError: The size of tensor a (13) must match the size of tensor b (45) at non-singleton dimension 3",
        "PyTorch",
        (13, 45, 32),
        "32 keys apart",
    ),
    (
        "The expanded size of the tensor (13) must match the existing size (45) at non-singleton dimension 3.  "
        "Target sizes: [1, 9, 13, 13].  Tensor sizes: [13, 45]",
        "PyTorch",
        (32, 0, 13),
        "the cache is empty",
    ),
    (
        "The expanded size of the tensor (2) must match the existing size (3) at non-singleton dimension 2.  "
        "Target sizes: [1, 4, 2, 8].  Tensor sizes: [4, 3, 8]",
        "PyTorch",
        (3, 2),
        "3 tokens are written where the buffer has room for 2",
    ),
    ("IndexError: index out of range in self", "PyTorch", (), "an embedding was asked for a row"),
    (
        "Sizes of tensors must match except in dimension 3. Expected size 3 but got size 5 for tensor number 1 in the list.",
        "PyTorch",
        (3, 3, 5),
        "along head_dim",
    ),
    (
        "Sizes of tensors must match except in dimension 2. Expected size 1 but got size 2 for tensor number 1 in the list.",
        "PyTorch",
        (2, 1, 2),
        "rows or heads: 1 and 2",
    ),
    (
        "Expected size for first two dimensions of batch2 tensor to be: [4, 16] but got: [4, 32].",
        "PyTorch",
        (16, 32),
        "2 times as much",
    ),
    ("index_copy_(): index 16 is out of bounds for dimension 2 with size 16", "PyTorch", (16, 16), "a cache of 16 slots"),
    ("index 128 is out of bounds for dimension 0 with size 128", "PyTorch", (128, 128), "a table of 128"),
    ("start (126) + length (5) exceeds dimension size (128).", "PyTorch", (126, 5, 128), "positions 126 to 130"),
    (
        "index_copy_(): Source/destination tensor must have same slice shapes.\n"
        "Destination slice shape: 4 20 64 at dimension 2 and source slice shape: 8 20 64 at dimension 0.",
        "PyTorch",
        (4, 8),
        "other rows than the call has",
    ),
    (
        "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [31,0,0], thread: [96,0,0] "
        "Assertion `srcIndex < srcSelectDimSize` failed.\nRuntimeError: CUDA error: device-side assert triggered",
        "PyTorch on CUDA",
        (),
        "a token id outside the vocabulary, or a position outside",
    ),
    (
        'thread: [66,0,0] Assertion `idx >= 0 && idx < self_dim_size && "index_copy_(): index out of bounds"` failed.',
        "PyTorch on CUDA",
        (),
        "past the end of a static cache",
    ),
    ("CUDA error: device-side assert triggered", "PyTorch on CUDA", (), "a position or a token id"),
    # transformers
    (
        "Calling `crop` with a positive value (`5`) is not supported. Please use a negative integer to remove that number of "
        "tokens from the cache instead.",
        "transformers",
        (5,),
        "the tokens to remove",
    ),
    (
        "`crop` was called, but the current layer does not track past states, and the sliding window size was already reached.",
        "transformers",
        (),
        "a window that is full",
    ),
    (
        "ValueError: Attention mask should be of size (1, 1, 5, 9), but is torch.Size([1, 1, 5, 5])",
        "transformers",
        (0, 4, 5),
        "still holds 4 tokens",
    ),
    ("AttributeError: 'DynamicCache' object has no attribute 'get_max_length'", "transformers", (), "an older cache"),
    # llama.cpp
    (
        "init: the tokens of sequence 0 in the input batch have inconsistent sequence positions:\n"
        " - the last position stored in the memory module of the context (i.e. the KV cache) for sequence 0 is X = 587\n"
        " - the tokens for sequence 0 in the input batch have a starting position of Y = 617\n"
        " it is required that the sequence positions remain consecutive: Y = X + 1\n"
        "decode: failed to initialize batch\nllama_decode: failed to decode, ret = -1",
        "llama.cpp",
        (588, 617, 588),
        "29 positions past the end",
    ),
    (
        " - the last position stored in the memory module of the context (i.e. the KV cache) for sequence 0 is X = 1824\n"
        " - the tokens for sequence 0 in the input batch have a starting position of Y = 1823\n"
        " for M-RoPE, it is required that the position satisfies: X < Y",
        "llama.cpp",
        (1825, 1823, 1825),
        "2 too many",
    ),
    ("decode: failed to find KV cache slot for ubatch of size 454", "llama.cpp", (454,), "no room for 454"),
    ("decode: failed to find a memory slot for batch of size 36", "llama.cpp", (36,), "no room for 36"),
    ("llama_decode: failed to decode, ret = 1", "llama.cpp", (1,), "nothing was stored"),
    ("main : failed to eval: llama_decode() failed", "llama.cpp", (), "was not decoded"),
    ("LLama.Exceptions: llama_decode failed: 'NoKvSlot'", "llama.cpp", (), "full, or in pieces"),
    ("Requested tokens (600) exceed context window of 512", "llama-cpp-python", (600, 512), "by 88"),
    # MLX, NumPy, onnxruntime
    (
        "ValueError: [broadcast_shapes] Shapes (1,1,1,3691) and (1,16,1,721) cannot be broadcast.",
        "MLX",
        (3690, 720, 1),
        "2970 ahead of the cache",
    ),
    ("operands could not be broadcast together with shapes (13,45) (1,9,13,13)", "NumPy", (32, 0, 13), "empty"),
    (
        "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions for input: attention_mask for the following "
        "indices\n index: 1 Got: 5 Expected: 9\n Please fix either the inputs/outputs or the model.",
        "onnxruntime",
        (5, 9, 1),
        "axis 1 of attention_mask is 5, and 9 is due",
    ),
    ("Attempting to broadcast an axis by a dimension other than 1. 2 by 6", "onnxruntime", (2, 6), "4 apart"),
]


@pytest.mark.parametrize(("text", "engine", "numbers", "means"), KNOWN, ids=[text[:50] for text, *_ in KNOWN])
def test_a_known_text(text: str, engine: str, numbers: tuple[int, ...], means: str) -> None:
    found = explain(text)
    assert found is not None
    assert found.engine == engine
    assert tuple(number for _, number in found.numbers) == numbers
    assert means in found.means
    assert found.mend


def test_every_reader_is_shown_a_text() -> None:
    texts = [
        *(text for text, *_ in KNOWN),
        'Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.',
        "request (13010 tokens) exceeds the available context size (4096 tokens), try increasing it",
        "init: sequence 0 does not start from the last position stored in the memory",
        "RuntimeError: Failed to decode: llama_decode returned 1",
        "Static layers can only be cropped by passing a negative int, to specify how many tokens to remove",
        "this cache is not croppable",
        "You called `get_seq_length` on layer index 0, but this layer is a LinearAttentionLayer",
        "Cannot call `update_conv_state` on a non-LinearAttention layer!",
        "Inputs 'mask_index' with raw attention mask shall have shape batch_size x (past_sequence_length + sequence_length)",
    ]
    unread = [reader for reader in READERS if not any(reader.read(cleaned(text)) for text in texts)]
    assert not unread
    assert all(explain(text) for text in texts)


def test_the_whole_answer() -> None:
    assert str(explain("Error: cannot broadcast [13, 45] to [1, 9, 13, 13]\n   0: backtrace")) == (
        "candle: cannot broadcast [13, 45] to [1, 9, 13, 13]\n"
        "  position passed     32\n"
        "  really cached       0\n"
        "  tokens in the call  13\n"
        "  means: the cache is empty, and the call was given position 32: it was cleared, or is a new one, and the position "
        "counter was kept\n"
        "  mend:  set the position to 0 wherever the cache is cleared or made anew"
    )


SIZE = st.integers(1, 5000)


@given(passed=st.integers(0, 5000), cached=st.integers(0, 5000), tokens=SIZE, heads=SIZE, rows=SIZE)
@settings(deadline=None)
def test_the_numbers_come_back(passed: int, cached: int, tokens: int, heads: int, rows: int) -> None:
    mask, scores = [tokens, passed + tokens], [rows, heads, tokens, cached + tokens]
    for text in (
        f"\x1b[31mError\x1b[0m: cannot broadcast {mask} to {scores}\n  at src/lib.rs:3",
        f"The expanded size of the tensor ({scores[3]}) must match the existing size ({mask[1]}) at non-singleton "
        f"dimension 3.  Target sizes: {scores}.  Tensor sizes: {mask}",
        f"operands could not be broadcast together with shapes ({mask[0]},{mask[1]}) ({','.join(map(str, scores))})",
    ):
        found = explain(text)
        assert found is not None
        assert found.numbers == tuple(zip(POSITIONS, (passed, cached, tokens), strict=True))


@given(last=st.integers(-1, 10**6), start=st.integers(0, 10**6))
@settings(deadline=None)
def test_sequence_positions_come_back(last: int, start: int) -> None:
    found = explain(
        f" - the last position stored in the memory module of the context (i.e. the KV cache) for sequence 3 is X = {last}\r\n"
        f" - the tokens for sequence 3 in the input batch have a starting position of Y = {start}\n"
    )
    assert found is not None
    assert [number for _, number in found.numbers] == [last + 1, start, last + 1]


WORDS = [word for text, *_ in KNOWN for word in text.split()]


@given(st.text() | st.lists(st.sampled_from(WORDS) | st.integers().map(str) | st.text(max_size=5)).map(" ".join))
@settings(deadline=None)
def test_no_text_breaks_it(text: str) -> None:
    found = explain(text)
    assert found is None or str(found)


@pytest.mark.parametrize("text", ["", "killed", "x" * (2 * LONGEST), "[" * 5000, "cannot broadcast [" + "1, " * 50000])
def test_an_unknown_text_has_no_meaning(text: str) -> None:
    assert explain(text) is None


def test_margins_colours_and_wrapped_lines_are_no_obstacle() -> None:
    boxed = (
        "│ ❱ 103 │   raise ValueError(                      │\n"
        "│ \x1b[1;31mThe size of tensor a (13) must match the size of\x1b[0m\n"
        "│ tensor b (45) at non-singleton dimension 3\n"
    )
    found = explain(boxed)
    assert found is not None
    assert found.quoted == "The size of tensor a (13) must match the size of tensor b (45) at non-singleton dimension 3"


def run(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    script = (
        "import sys; sys.argv[0] = 'kvconform'; import atexit; "
        "atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr)); "
        "from kvconform.interface.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", script, "explain", *words], input=given, capture_output=True, text=True, check=False
    )


def test_the_command_reads_an_argument_and_standard_input_without_torch() -> None:
    shown = run("cannot broadcast [5, 10] to [1, 9, 5, 13]")
    assert shown.returncode == 0
    assert "really cached       8" in shown.stdout
    assert shown.stderr.strip() == "False"
    assert run("-", given="cannot broadcast [5, 10] to [1, 9, 5, 13]\n").stdout == shown.stdout


def test_the_command_says_that_a_text_is_unknown() -> None:
    shown = run("the bird flew away")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "this text is not known" in shown.stderr
