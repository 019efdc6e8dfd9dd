"""An idle engine has the kernel give the memory of the next blocks, and no more than it may hold ready."""

from __future__ import annotations

import mmap
import time
import weakref
from array import array
from collections.abc import Iterator

import pytest
import torch

from tests.trainer.inference import models
from tests.trainer.inference.conftest import wait_for
from tests.trainer.other_device import other_device
from trainer.inference.contract import GenerateRequest
from trainer.inference.embedded.cache import AHEAD_BYTES, BLOCK, KVCache
from trainer.inference.embedded.factory import build_decoder
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.embedded.serving import thread
from trainer.inference.embedded.serving.thread import EngineThread
from trainer.inference.embedded.shape import DecoderShape

PIECE = 1 << 20
"""The last piece may end behind the bound."""
HUGE = 2 << 20
"""A page at an edge may be one of these: there are two edges in each of two layers, keys and values."""
EDGES = 2 * 2 * 2 * HUGE
LIMITS = Limits(max_num_seqs=1024, max_context=256)
"""16 blocks of 8 KiB for each: a quarter of them is what may be ready."""


def there(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's memory that the kernel has given."""
    first, last = tensor.data_ptr() // mmap.PAGESIZE, (tensor.data_ptr() + tensor.nbytes - 1) // mmap.PAGESIZE
    with open("/proc/self/pagemap", "rb", buffering=0) as pages:
        pages.seek(8 * first)
        entries = array("Q", pages.read(8 * (last - first + 1)))
    assert len(entries) == last - first + 1
    return mmap.PAGESIZE * sum(entry >> 63 for entry in entries)


def committed(cache: KVCache, first: int, last: int) -> int:
    """Bytes of blocks [first, last) that the kernel has given, of all layers."""
    parts = cache.data[:, :, first * BLOCK : last * BLOCK].flatten(0, 1)
    return sum(there(part) for part in parts)


def size(cache: KVCache, blocks: int) -> int:
    return cache.data[:, :, : blocks * BLOCK].numel() * 4


class Served:
    """A deployment of an engine thread, as `Deployments` puts it there."""

    def __init__(self, ahead: int | None = None) -> None:
        model = models.make("qwen3")
        shape = DecoderShape.from_config(model.config.to_dict())
        decoder = build_decoder(shape, model.state_dict(), shape.max_position_embeddings)
        self.runner = Runner(LIMITS)
        self.cache = make_cache(decoder, LIMITS)
        self.cache.ahead = ahead or self.cache.ahead
        self.found: list[int] = []
        """Bytes of its blocks that each admitted request found ready before anything was computed."""
        self.answered = 0
        self.thread = EngineThread()
        self.thread.start()
        self.thread.call(lambda: self.thread.runners.__setitem__("x", self.runner)).result(10)
        self.thread.call(lambda: self.runner.install(decoder, self.cache, 0)).result(10)

    def ask(self, count: int) -> None:
        """At once: the engine is busy until all are answered."""

        def submit() -> None:
            for number in range(count):
                prompt = [1 + number % 90, 1 + number // 90, *range(1, 40), 1 + self.answered % 90]
                request = GenerateRequest.model_validate({"prompt_ids": prompt, "max_tokens": 1, "seed": number})
                self.runner.submit(Job(request, time.monotonic() + 60, self._answered))
            scheduler = self.runner.scheduler
            assert scheduler is not None
            self.runner._admit(scheduler)
            for sequence in scheduler.running:
                first = sequence.blocks[0].index
                self.found.append(committed(self.cache, first, first + len(sequence.blocks)))

        before = self.answered
        self.thread.call(submit).result(60)
        wait_for(lambda: self.answered == before + count, "answers")

    def _answered(self, answer: object) -> None:
        self.answered += 1


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.thread.stop()


def test_a_request_after_idle_time_meets_memory_that_is_there(served: Served) -> None:
    cache, ahead = served.cache, served.cache.ahead
    assert ahead == AHEAD_BYTES // size(cache, 1) and 8 < ahead < cache.blocks // 2
    wait_for(lambda: committed(cache, 0, ahead) >= size(cache, ahead), "memory for the first requests")
    served.ask(8)
    assert min(served.found) >= size(cache, 3), "none waits for the kernel"
    used = 8 * 3 + ahead
    wait_for(lambda: committed(cache, 0, used) >= size(cache, used), "topped up")
    served.thread.call(lambda: None).result(10)
    assert there(cache.data) <= size(cache, used) + PIECE + EDGES, "no more than the bound"


def test_a_burst_past_the_bound_is_served_and_the_rest_stays_free() -> None:
    served = Served(ahead=96)
    try:
        burst(served)
    finally:
        served.thread.stop()


def burst(served: Served) -> None:
    cache = served.cache
    count = cache.ahead // 3 + 20
    served.ask(count)
    assert served.found and len(served.found) == count
    scheduler = served.runner.scheduler
    assert scheduler is not None
    used = scheduler.pool.used
    assert used > cache.ahead
    until = min(used + cache.ahead, cache.blocks)
    wait_for(lambda: committed(cache, used, until) >= size(cache, until - used), "topped up")
    served.thread.call(lambda: None).result(10)
    assert there(cache.data) <= size(cache, until) + PIECE + EDGES


def test_a_removed_deployment_gives_its_memory_back_at_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread, "EXPIRE_EVERY", 0.0)  # deadlines are looked at in every round
    wait_for(lambda: there(served.cache.data) > 0, "memory")
    gone = weakref.ref(served.cache), weakref.ref(served.runner)
    served.thread.call(lambda: served.thread.runners.pop("x") and None).result(10)
    del served.cache, served.runner
    wait_for(lambda: not any(one() for one in gone), "forgotten by a thread that waits", seconds=5)


def test_experts_of_a_block_count_and_are_ready_with_it() -> None:
    plain, routed = KVCache(9600, 4, 1, 64), KVCache(9600, 4, 1, 64, routed=(4, 64))
    assert routed.experts is not None and routed.ahead < plain.ahead == AHEAD_BYTES // size(plain, 1)
    while routed.prepare(300):
        pass
    last = 300 + routed.ahead
    assert committed(routed, 300, last) >= size(routed, routed.ahead)
    of_experts = torch.from_numpy(routed.experts)[300 * BLOCK : last * BLOCK]
    assert there(of_experts) >= of_experts.nbytes
    assert there(torch.from_numpy(routed.experts)[: 20 * BLOCK]) <= mmap.PAGESIZE, "used before: left alone"


def test_a_device_has_all_of_its_memory_anyway() -> None:
    with other_device() as device:
        assert KVCache(8, 2, 1, 16, device=device).ahead == 0
