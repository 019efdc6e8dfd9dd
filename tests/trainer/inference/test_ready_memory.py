"""An idle engine has the kernel give the memory of the next slots, and no more than it may hold ready."""

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
from trainer.inference.embedded.cache import AHEAD_BYTES, KVCache
from trainer.inference.embedded.factory import build_decoder
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.embedded.serving import thread
from trainer.inference.embedded.serving.thread import EngineThread
from trainer.inference.embedded.shape import DecoderShape

HUGE = 2 << 20
"""A page at the edge may be one of these."""
LIMITS = Limits(max_slots=1024)
"""Of 128 KiB each: a quarter of them is what may be ready."""


def there(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's memory that the kernel has given."""
    first, last = tensor.data_ptr() // mmap.PAGESIZE, (tensor.data_ptr() + tensor.nbytes - 1) // mmap.PAGESIZE
    with open("/proc/self/pagemap", "rb", buffering=0) as pages:
        pages.seek(8 * first)
        entries = array("Q", pages.read(8 * (last - first + 1)))
    assert len(entries) == last - first + 1
    return mmap.PAGESIZE * sum(entry >> 63 for entry in entries)


class Served:
    """A deployment of an engine thread, as `Deployments` puts it there."""

    def __init__(self) -> None:
        model = models.make("qwen3")
        shape = DecoderShape.from_config(model.config.to_dict())
        decoder = build_decoder(shape, model.state_dict(), shape.max_position_embeddings)
        self.runner = Runner(LIMITS)
        self.cache = make_cache(decoder, LIMITS)
        self.found: list[int] = []
        """Of each request that was admitted: bytes of its slot that were there before anything was computed."""
        self.answered = 0
        self.thread = EngineThread()
        self.thread.start()
        self.thread.call(lambda: self.thread.runners.__setitem__("x", self.runner)).result(10)
        self.thread.call(lambda: self.runner.install(decoder, self.cache, 0)).result(10)

    def ask(self, count: int) -> None:
        """At once: the engine is busy until all are answered."""

        def submit() -> None:
            for number in range(count):
                prompt = [1 + self.answered % 90, *range(1, 40), 1 + number % 90, 1 + number // 90]
                request = GenerateRequest.model_validate({"prompt_ids": prompt, "max_tokens": 1, "seed": number})
                self.runner.submit(Job(request, time.monotonic() + 60, self._answered))
            table = self.runner.table
            assert table is not None
            self.runner._admit(table)
            self.found += [there(self.cache.data[slot.index]) for slot in table.active()]

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
    slot = served.cache.data[0].nbytes
    ahead = served.cache.ahead
    assert ahead == AHEAD_BYTES // slot and 8 < ahead < served.cache.slots // 2
    wait_for(lambda: there(served.cache.data[:ahead]) >= ahead * slot, "memory for the first requests")
    served.ask(8)
    assert min(served.found) >= slot, "none waits for the kernel"
    used = served.cache.data[: 8 + ahead]
    wait_for(lambda: there(used) >= used.nbytes, "topped up")
    served.thread.call(lambda: None).result(10)
    assert there(served.cache.data) <= used.nbytes + 2 * HUGE, "no more than the bound"


def test_a_burst_past_the_bound_is_served_and_the_rest_stays_free(served: Served) -> None:
    count = served.cache.ahead + 20
    served.ask(count)
    assert served.found and len(served.found) == count
    until = count + served.cache.ahead
    fresh = served.cache.data[count:until]
    wait_for(lambda: there(fresh) >= fresh.nbytes, "topped up")
    served.thread.call(lambda: None).result(10)
    assert there(served.cache.data) <= until * served.cache.data[0].nbytes + 2 * HUGE


def test_a_removed_deployment_gives_its_memory_back_at_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread, "EXPIRE_EVERY", 0.0)  # deadlines are looked at in every round
    wait_for(lambda: there(served.cache.data[: served.cache.ahead]) > 0, "memory")
    gone = weakref.ref(served.cache), weakref.ref(served.runner)
    served.thread.call(lambda: served.thread.runners.pop("x") and None).result(10)
    del served.cache, served.runner
    wait_for(lambda: not any(one() for one in gone), "forgotten by a thread that waits", seconds=5)


def test_slots_that_are_larger_than_the_bound_are_left_alone() -> None:
    length = AHEAD_BYTES // (2 * 2 * 64 * 4) + 1
    cache = KVCache(3, 2, length, 1, 64)
    assert cache.ahead == 0


def test_experts_of_a_slot_count_and_are_ready_with_it() -> None:
    plain, routed = KVCache(600, 4, 256, 1, 64), KVCache(600, 4, 256, 1, 64, routed=(4, 64))
    assert routed.experts is not None and routed.ahead < plain.ahead == AHEAD_BYTES // plain.data[0].nbytes
    while routed.prepare(300):
        pass
    assert there(routed.data[300]) >= routed.data[300].nbytes
    of_experts = torch.from_numpy(routed.experts)[300]
    assert there(of_experts) >= of_experts.nbytes
    for others in (routed.data[:200], torch.from_numpy(routed.experts)[:200]):
        assert there(others) <= mmap.PAGESIZE, "the page that the allocator writes its own words into"


def test_a_device_has_all_of_its_memory_anyway() -> None:
    with other_device() as device:
        assert KVCache(8, 2, 64, 1, 16, device=device).ahead == 0
