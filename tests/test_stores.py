"""The built-in stores: what they share, poison, copy on write, and how far back a ring goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.match import logits_match
from kvconform.harness.oracle import Oracle
from kvconform.harness.program import Program
from kvconform.harness.trial import Judged, Subject, Verdict
from kvconform.implementations.policy import CacheShape, Concat
from kvconform.implementations.stores import Paged, Preallocated, Static, rounded
from kvconform.implementations.windows import Ring, RingBlocks

SHAPE = CacheShape(2, 3, 4, 40, 50, torch.float32, torch.device("cpu"), window=6)


def filled(policy: type[Concat], lengths: list[int], shape: CacheShape = SHAPE) -> Concat:
    cache = policy(shape, 1)
    for count in lengths:
        cache.admit(torch.ones(1, count, dtype=torch.int64))
        for layer in range(shape.layers):
            block = torch.arange(cache.length, cache.length + count).float()[None, None, :, None]
            cache.store(layer, block.expand(1, 3, count, 4).clone(), -block.expand(1, 3, count, 4).clone())
        cache.advance(count)
    return cache


@pytest.mark.parametrize("policy", [Concat, Preallocated, Static, Paged])
def test_contents_are_what_was_stored_in_order(policy: type[Concat]) -> None:
    keys, values = filled(policy, [5, 1, 3]).contents()[1]
    assert keys[0, 0, :, 0].tolist() == list(range(9))
    assert values.equal(-keys)


@pytest.mark.parametrize("policy", [Concat, Preallocated, Static, Paged, Ring, RingBlocks])
def test_bytes_give_the_same_cache_back(policy: type[Concat]) -> None:
    cache = filled(policy, [5, 4])
    again = policy.load(SHAPE, cache.dump())
    assert again.length == cache.length
    for (key, value), (other_key, other_value) in zip(cache.contents(), again.contents(), strict=True):
        assert key.equal(other_key)
        assert value.equal(other_value)


def test_unused_slots_are_poisoned() -> None:
    assert filled(Preallocated, [5]).keys[0][:, :, 5:].isnan().all()
    assert (filled(Static, [5]).keys[0][:, :, 5:] > 1e37).all()
    cropped = filled(Preallocated, [5])
    cropped.crop(2)
    assert cropped.keys[0][:, :, 2:].isnan().all()


def test_forks_of_a_paged_cache_share_blocks_until_one_writes() -> None:
    shape = CacheShape(2, 3, 4, 40, 50, torch.float32, torch.device("cpu"))
    cache = filled(Paged, [7], shape)
    twin = cache.fork()
    assert twin.table == cache.table
    twin.admit(torch.ones(1, 1, dtype=torch.int64))
    assert twin.table[0][0] == cache.table[0][0], "the full block stays shared"
    assert twin.table[0][1] != cache.table[0][1], "the block that is written to is copied"


def test_a_paged_pool_gets_every_block_back() -> None:
    shape = CacheShape(2, 3, 4, 40, 50, torch.float32, torch.device("cpu"))
    cache = filled(Paged, [12], shape)
    pool = shape.shared["pool"]
    twin = cache.fork()
    twin.select([0, 0])
    twin.crop(6)
    cache.reset()
    twin.release()
    assert not [block for block, holders in pool.holders.items() if holders]
    assert len(pool.free) == len(set(pool.free)) == len(pool.keys[0])


@pytest.mark.parametrize(("policy", "reach"), [(Ring, 1), (RingBlocks, 10)])
def test_a_ring_goes_back_as_far_as_it_says_and_no_further(policy: type[Ring], reach: int) -> None:
    cache = filled(policy, [15, 5])
    floor = policy.crop_floor(SHAPE, [15, 20])
    assert floor == 20 - reach
    with pytest.raises(ValueError, match="reaches back to"):
        cache.crop(floor - 1)
    cache.crop(floor)
    assert cache.contents()[0][0][0, 0, :, 0].tolist() == list(range(floor - 5, floor))


@pytest.mark.parametrize("policy", [Ring, RingBlocks])
def test_a_ring_goes_back_as_far_after_it_was_restored_or_joined(policy: type[Ring]) -> None:
    cache = policy.load(SHAPE, filled(policy, [15, 5]).dump())
    cache.join(filled(policy, [20]))
    floor = policy.crop_floor(SHAPE, [20])
    cache.crop(floor)
    assert cache.contents()[0][0][:, 0, :, 0].tolist() == [list(range(floor - 5, floor))] * 2


def test_eight_bits_keep_a_vector_to_half_a_step() -> None:
    x = torch.randn(5, 7)
    step = x.abs().amax(dim=-1, keepdim=True) / 127
    assert ((rounded(x, 8) - x).abs() <= step / 2 * 1.001).all()


def test_a_cache_that_was_dumped_goes_on_in_another_process(tmp_path: Path) -> None:
    resolved = registry.resolve("builtin:llama/paged")
    engine = resolved.implementation
    cache = engine.new_cache(1)
    engine.append(cache, torch.tensor([[5, 9, 3, 8]]))
    (tmp_path / "cache.bin").write_bytes(engine.dump(cache))
    script = (
        "import sys, torch\n"
        "from kvconform.harness import registry\n"
        "engine = registry.resolve('builtin:llama/paged').implementation\n"
        "cache = engine.load(open(sys.argv[1], 'rb').read())\n"
        "torch.save(engine.append(cache, torch.tensor([[7, 2]])), sys.argv[2])\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "cache.bin"), str(tmp_path / "logits.pt")], check=True)
    there = torch.load(tmp_path / "logits.pt")
    whole = resolved.reference.logits(torch.tensor([[5, 9, 3, 8, 7, 2]]))[:, -2:]
    assert (there - whole).abs().max() < 1e-4


def test_a_control_joins_twice_where_layers_keep_a_state() -> None:
    resolved = registry.resolve("builtin:hybrid/cat_order")
    assert resolved.reference is not None
    subject = Subject(resolved.implementation, Oracle(resolved.reference, torch.float32))
    first = "append a 1 2 | 3 4; append b 5 6; join a b; append a 6 | 7 | 8"
    program = Program.parse(f"{first}; append c 9 1 2; join a c; append a 4 | 5 | 6 | 7")
    assert logits_match(program, subject, Judged.ALL).verdict is Verdict.PASSED
