"""Inside `lifted()` nothing is computed below float64, whatever a model asks for."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import transformers
from kvconform.harness.precision import WIDE, lifted
from kvconform.reference.shipped import WEIGHTS
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
]


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Threads that share a busy processor wait for one another at each of these tiny operations."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


NARROW = [torch.float32, torch.float16, torch.bfloat16]
OTHER = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float64, torch.float8_e4m3fn, torch.complex128]
X = torch.tensor([1.0, 1.0 / 3.0], dtype=torch.float64)


def narrow(dtype: torch.dtype) -> Tensor:
    """A tensor that is narrow in spite of lifting, as one made before is."""
    with torch._C.DisableTorchFunction():
        return torch.ones(1, dtype=dtype)


CASTS: dict[str, Callable[[torch.dtype], Tensor]] = {
    "to": lambda dtype: X.to(dtype),
    "to(dtype=)": lambda dtype: X.to(dtype=dtype),
    "to(device, dtype)": lambda dtype: X.to("cpu", dtype),
    "to(other)": lambda dtype: X.to(narrow(dtype)),
    "to(tensor=other)": lambda dtype: X.to(tensor=narrow(dtype)),
    "to(other, non_blocking, copy)": lambda dtype: X.to(narrow(dtype), False, True),
    "type": lambda dtype: X.type(dtype),
    "type_as": lambda dtype: X.type_as(narrow(dtype)),
    "type_as(other=)": lambda dtype: X.type_as(other=narrow(dtype)),
    "aten": lambda dtype: torch.ops.aten._to_copy.default(X, dtype=dtype),
    "softmax": lambda dtype: X.softmax(-1, dtype=dtype),
    "softmax, positional": lambda dtype: X.softmax(-1, dtype),
    "functional.softmax": lambda dtype: functional.softmax(X, dim=-1, dtype=dtype),
    "functional.log_softmax": lambda dtype: functional.log_softmax(X, -1, dtype=dtype),
    "sum": lambda dtype: X.sum(dtype=dtype),
    "mean": lambda dtype: torch.mean(X, dim=-1, dtype=dtype),
    "cumsum": lambda dtype: X.cumsum(-1, dtype=dtype),
    "norm": lambda dtype: torch.linalg.vector_norm(X, dtype=dtype),
    "zeros": lambda dtype: torch.zeros(2, dtype=dtype),
    "empty": lambda dtype: torch.empty((2,), dtype=dtype),
    "full": lambda dtype: torch.full((2,), 0.1, dtype=dtype),
    "tensor": lambda dtype: torch.tensor([0.1], dtype=dtype),
    "as_tensor": lambda dtype: torch.as_tensor([0.1], dtype=dtype),
    "asarray": lambda dtype: torch.asarray([0.1], dtype=dtype),
    "arange": lambda dtype: torch.arange(0, 8, 2, dtype=dtype),
    "linspace": lambda dtype: torch.linspace(0, 1, 3, dtype=dtype),
    "ones_like": lambda dtype: torch.ones_like(X, dtype=dtype),
    "new_zeros": lambda dtype: X.new_zeros(2, dtype=dtype),
    "new_tensor": lambda dtype: X.new_tensor([0.1], dtype=dtype),
    "Linear": lambda dtype: nn.Linear(2, 2, dtype=dtype).weight,
    "Module.to": lambda dtype: nn.Linear(2, 2).to(dtype).weight,
}


@pytest.mark.parametrize("call", CASTS.values(), ids=CASTS)
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_way_to_ask_for_a_narrow_float_gives_float64(call: Callable[[torch.dtype], Tensor], dtype: torch.dtype) -> None:
    with lifted():
        given = call(dtype)
    assert given.dtype == torch.float64


NAMED: dict[str, Callable[[], Tensor]] = {
    "float": lambda: X.float(),
    "float(memory_format=)": lambda: X.float(memory_format=torch.contiguous_format),
    "half": lambda: X.half(),
    "bfloat16": lambda: X.bfloat16(),
    "int.float": lambda: torch.arange(3).float(),
    "type(class)": lambda: X.type(torch.FloatTensor),
    "type(name)": lambda: X.type("torch.HalfTensor"),
    "type(dtype=name)": lambda: X.type(dtype="torch.BFloat16Tensor"),
    "Module.float": lambda: nn.Linear(2, 2).float().weight,
    "Module.half": lambda: nn.Linear(2, 2).half().weight,
    "default: zeros": lambda: torch.zeros(2),
    "default: tensor": lambda: torch.tensor([0.1]),
    "default: arange": lambda: torch.arange(0.0, 1.0, 0.25),
    "default: division": lambda: torch.arange(3) / 3,
    "default: Linear": lambda: nn.Linear(2, 2).weight,
    "default: Tensor": lambda: torch.Tensor([0.1]),
}


@pytest.mark.parametrize("call", NAMED.values(), ids=NAMED)
def test_named_casts_and_the_default_give_float64(call: Callable[[], Tensor]) -> None:
    with lifted():
        given = call()
    assert given.dtype == torch.float64


def test_a_lifted_cast_loses_no_digit() -> None:
    with lifted():
        assert torch.equal(X.float().half().bfloat16().to(torch.float32), X)
        assert torch.tensor(0.1, dtype=torch.float32).item() == 0.1


def test_a_cast_like_another_tensor_keeps_the_rest_of_the_request() -> None:
    with lifted():
        copied = X.to(narrow(torch.float32), False, True)
        moved = [X.to(narrow(torch.float16).to("meta")), X.type_as(narrow(torch.bfloat16).to("meta"))]
    assert torch.equal(copied, X)
    assert copied.data_ptr() != X.data_ptr()
    assert all(value.is_meta and value.dtype == torch.float64 for value in moved)


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64], ids=str)
def test_complex_numbers_are_widened_as_such(dtype: torch.dtype) -> None:
    with lifted():
        cast = [X.to(dtype), X.cfloat(), X.chalf(), torch.zeros(2, dtype=dtype), X.to(narrow(dtype))]
        turned = torch.view_as_complex(torch.stack([X, X], dim=-1).float())
    assert {value.dtype for value in [*cast, turned]} == {torch.complex128}


@pytest.mark.parametrize("dtype", OTHER, ids=str)
def test_other_dtypes_are_untouched(dtype: torch.dtype) -> None:
    like = torch.ones(1, dtype=torch.int64).to(dtype)
    with lifted():
        given = [X.to(dtype), X.type(dtype), torch.zeros(2, dtype=dtype), X.to(like), X.type_as(like)]
    assert {value.dtype for value in given} == {dtype}


def test_integers_and_booleans_stay_what_they_are() -> None:
    with lifted():
        tokens = torch.tensor([3, 1])
        assert tokens.dtype == torch.arange(3).dtype == tokens.to(tokens).dtype == X.long().dtype == torch.int64
        assert (tokens > 1).dtype == X.bool().dtype == torch.bool
        assert X.type() == "torch.DoubleTensor"


def test_a_float32_mask_minimum_masks() -> None:
    with lifted():
        scores = torch.zeros(1, 3) + torch.tensor([0.0, 0.0, torch.finfo(torch.float32).min], dtype=torch.float32)
        wide = torch.zeros(1, 3) + torch.tensor([0.0, 0.0, torch.finfo(scores.dtype).min])
        weights = [functional.softmax(masked, dim=-1, dtype=torch.float32) for masked in (scores, wide)]
    half = torch.tensor([[0.5, 0.5, 0.0]], dtype=torch.float64)
    assert all(torch.equal(weight, half) for weight in weights)


@pytest.mark.parametrize("enabled", [False, True])
def test_autocast_leaves_float64_alone(enabled: bool) -> None:
    with lifted(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
        layer = nn.Linear(4, 4)
        mixed = layer(torch.ones(2, 4).float()) @ torch.ones(4, 4)
        assert mixed.dtype == mixed.softmax(-1).dtype == mixed.sum().dtype == torch.float64


def test_bytes_are_read_as_what_they_are(tmp_path: Path) -> None:
    raw = bytearray(numpy.array([1.5, -2.0], dtype=numpy.float32).tobytes())
    (tmp_path / "raw").write_bytes(raw)
    with lifted():
        read = [
            torch.from_file(str(tmp_path / "raw"), size=2, dtype=torch.float32),
            torch.frombuffer(raw, dtype=torch.float32),
            torch.asarray(raw, dtype=torch.float32),
            torch.frombuffer(raw, dtype=torch.uint8).view(torch.float32),
        ]
    assert [values.tolist() for values in read] == [[1.5, -2.0]] * 4


@pytest.mark.parametrize("dtype", [*NARROW, torch.float64, torch.int64], ids=str)
def test_what_is_saved_comes_back(dtype: torch.dtype) -> None:
    saved = torch.tensor([1.5, -2.0, 4.0]).to(dtype)
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    with lifted():
        back = [torch.load(file), pickle.loads(pickle.dumps(saved)), copy.deepcopy(saved)]
    assert all(value.dtype == dtype and torch.equal(value, saved) for value in back)


def test_a_default_set_inside_is_put_right() -> None:
    with lifted():
        torch.set_default_dtype(torch.float32)
        assert torch.full((2,), 0.1).tolist() == [0.1, 0.1]
        assert torch.get_default_dtype() == torch.float64


def test_it_works_under_a_default_device() -> None:
    with torch.device("meta"), lifted(), torch.device("meta"):
        assert torch.ones(2, dtype=torch.float32).dtype == torch.float64
        assert torch.ones(2).is_meta


def narrow_again() -> bool:
    return torch.get_default_dtype() == X.float().dtype == torch.ones(2).dtype == torch.zeros(2, dtype=torch.float32).dtype


def test_nothing_changes_outside() -> None:
    assert narrow_again()
    with lifted():
        pass
    assert narrow_again()
    assert X.float().dtype == torch.float32


def test_contexts_nest() -> None:
    with lifted():
        with lifted():
            assert X.half().dtype == torch.float64
        assert X.half().dtype == torch.ones(2).dtype == torch.float64
    assert narrow_again()


def test_an_exception_restores_all() -> None:
    with lifted():
        with pytest.raises(RuntimeError, match="size mismatch"), lifted():
            torch.ones(2, 2) @ torch.ones(3)
        assert X.half().dtype == torch.ones(2).dtype == torch.float64
    with pytest.raises(RuntimeError, match="size mismatch"), lifted():
        torch.ones(2, 2) @ torch.ones(3)
    assert narrow_again()


def test_the_default_before_is_the_default_after() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        with lifted():
            assert torch.ones(2).dtype == torch.float64
        assert torch.get_default_dtype() == torch.bfloat16
    finally:
        torch.set_default_dtype(torch.float32)


def test_it_is_a_decorator() -> None:
    @lifted()
    def ones() -> Tensor:
        return torch.ones(2, dtype=torch.float32)

    assert ones().dtype == ones().dtype == torch.float64
    assert narrow_again()


class NarrowOutputs(TorchDispatchMode):
    """Counts what the dispatcher returns: every intermediate, also those inside torch's own functions."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = 0
        self.narrow: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
                if value.dtype in WIDE:
                    self.narrow.append(f"{func}: {value.dtype}")
                else:
                    self.wide += 1
        return result


SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 32,
    "initializer_range": 0.15,
    "pad_token_id": 0,
}
EXPERTS: dict[str, Any] = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
CONFIGS: dict[str, dict[str, Any]] = {
    "gemma3_text": {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    "mixtral": {"num_local_experts": 4, **EXPERTS},
    "qwen2": {},
    "qwen3_moe": {"num_experts": 4, **EXPERTS},
    "gpt2": {"n_positions": 32, "n_embd": 48, "n_head": 4, "n_layer": 2},
}
ATTENTIONS = ("eager", "sdpa")
TOKENS = torch.tensor([[5, 9, 3, 77, 21, 8, 8, 60, 2], [1, 95, 4, 4, 30, 6, 50, 13, 7]])


def build(name: str, attention: str, dtype: torch.dtype | None = None) -> Any:
    """A random model. The default kernels of experts have no float64 on the CPU; the eager ones have."""
    config = transformers.AutoConfig.for_model(name, **SIZES | CONFIGS[name])
    options = {"attn_implementation": attention, "experts_implementation": "eager", "dtype": dtype}
    return transformers.AutoModelForCausalLM.from_config(config, **options).eval()


def watched_logits(model: Any) -> tuple[Tensor, NarrowOutputs]:
    with torch.no_grad(), NarrowOutputs() as seen:
        logits = model(TOKENS).logits
    return logits, seen


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_built_and_run_inside_is_float64_throughout(name: str, attention: str) -> None:
    with lifted():
        with NarrowOutputs() as building:
            model = build(name, attention)
        logits, seen = watched_logits(model)
    tables = [*model.parameters(), *model.buffers()]
    assert {table.dtype for table in tables if table.is_floating_point()} == {torch.float64}
    assert (building.narrow, seen.narrow) == ([], [])
    assert building.wide > 10
    assert seen.wide > 100
    assert logits.dtype == torch.float64
    assert logits.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_dtype_given_to_the_builder_is_lifted(dtype: torch.dtype) -> None:
    with lifted():
        model = build("qwen2", "eager", dtype)
        logits, seen = watched_logits(model)
        assert torch.get_default_dtype() == torch.float64
    assert seen.narrow == []
    assert logits.dtype == torch.float64


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "gpt2"])
def test_a_widened_model_is_not_float64_throughout_without_lifting(name: str) -> None:
    """Why the module exists; and the watcher of these tests can see what it looks for."""
    model = build(name, "eager").double()
    plain, seen = watched_logits(model)
    with lifted():
        wide, none_seen = watched_logits(model)
    noise = (plain - wide).abs().max() / wide.abs().max()
    assert len(seen.narrow) > 10
    assert none_seen.narrow == []
    assert 1e-9 < noise < 1e-5


def test_a_loaded_model_widened_inside_is_float64_throughout() -> None:
    with lifted():
        loaded = transformers.LlamaForCausalLM.from_pretrained(WEIGHTS / "llama").double()
        asked = transformers.LlamaForCausalLM.from_pretrained(WEIGHTS / "llama", dtype=torch.float64)
        (logits, seen), (same, none_seen) = watched_logits(loaded), watched_logits(asked)
    assert (seen.narrow, none_seen.narrow) == ([], [])
    assert torch.equal(logits, same)
    assert loaded.dtype == asked.dtype == torch.float64


def test_rotary_tables_built_inside_hold_float64_values() -> None:
    with lifted():
        inside = build("qwen2", "eager").model.rotary_emb.inv_freq
    widened = build("qwen2", "eager").double().model.rotary_emb.inv_freq
    exact = torch.tensor([10000.0 ** (-2 * pair / 16) for pair in range(8)], dtype=torch.float64)
    assert (inside / exact - 1).abs().max() < 1e-15
    assert (widened / exact - 1).abs().max() > 1e-9


def test_weights_are_carried_in_by_their_state() -> None:
    narrow = build("mixtral", "eager")
    with lifted():
        wide = build("mixtral", "eager")
        wide.load_state_dict(narrow.state_dict())
        logits, _ = watched_logits(wide)
    rounded, _ = watched_logits(narrow)
    assert all(torch.equal(wide.state_dict()[name], weight.double()) for name, weight in narrow.state_dict().items())
    assert (logits - rounded).abs().max() / logits.abs().max() < 1e-5
