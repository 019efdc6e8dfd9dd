"""Continuous batching of one deployment: every step advances all decode rows and some prompt tokens.

Lives on the engine thread; nothing here is safe to call from another.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch

from trainer.inference.embedded.batch import Batch, Chunk
from trainer.inference.embedded.cache import KVCache
from trainer.inference.embedded.model import Decoder, Weights
from trainer.inference.embedded.request import Job, Slot
from trainer.inference.embedded.sampling import narrow, sample
from trainer.inference.embedded.scheduler import SlotTable, together
from trainer.inference.embedded.speculative import Drafter
from trainer.inference.errors import BadRequest, DeadlinePassed, PausedTooLong, QueueFull, ServerError
from trainer.inference.kv_usage import Filling
from trainer.router_replay.payload import RoutedExperts


@dataclass(frozen=True)
class Limits:
    """Resource limits of one deployment."""

    max_queue: int = 1024
    """Maximum requests waiting for a slot; further ones are refused."""
    max_context: int = 2048
    max_slots: int = 256
    kv_bytes: int = 1 << 30
    prefill_tokens: int = 512
    """Maximum prompt tokens per step, so that long prompts do not delay decoding."""
    speculate: int = 0
    """Draft tokens per request, where the policy has a draft head; see `speculative.py`."""


class Runner:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.decoder: Decoder | None = None
        self.table: SlotTable | None = None
        self.drafter: Drafter | None = None
        self.waiting: deque[Job] = deque()
        self.version = -1
        self.epoch = 0
        self.paused = False
        self.generated = 0
        self.read = self.reused = 0
        """Prompt tokens, and those whose keys and values were cached."""
        self.filling = Filling()

    def install(self, decoder: Decoder, cache: KVCache, version: int, drafter: Drafter | None = None) -> None:
        """Install the first weights. The drafter stays when weights change: a wrong draft is merely rejected."""
        self.decoder, self.table, self.version, self.drafter = decoder, SlotTable(cache), version, drafter
        self.epoch += 1

    def swap(self, weights: Weights, version: int) -> None:
        """Swap in weights of the same shape; sequences in flight keep their keys and values and continue."""
        assert self.decoder is not None
        self.decoder.weights = weights
        self.version = version
        self.epoch += 1

    def look(self, now: float) -> None:
        """Record how much of the cache running requests use."""
        if self.table is not None:
            room = self.table.cache.slots * self.table.cache.length
            self.filling.saw(sum(slot.cached for slot in self.table.active()) / room, now)

    def prepare(self) -> bool:
        """Prepare one piece of memory for future requests. False: nothing is left to prepare."""
        return self.table is not None and self.table.prepare()

    @property
    def running(self) -> int:
        return len(self.table.active()) if self.table else 0

    @property
    def busy(self) -> bool:
        """Whether the runner holds any request, runnable or not."""
        return bool(self.waiting) or self.running > 0

    def submit(self, job: Job) -> None:
        if len(self.waiting) >= self.limits.max_queue:
            job.deliver(QueueFull(f"{len(self.waiting)} requests are waiting already; retry after a pause"))
        else:
            self.waiting.append(job)

    def fail_all(self, error: ServerError) -> None:
        """Fail all requests with `error`."""
        for job in self.waiting:
            job.deliver(error)
        self.waiting.clear()
        for slot in self.table.active() if self.table else []:
            assert slot.job is not None and self.table is not None
            slot.job.deliver(error)
            self.table.drop(slot)

    def expire(self, now: float) -> None:
        """Drop requests whose deadline passed or whose caller left. Runs even while paused."""
        if any(job.cancelled or job.deadline <= now for job in self.waiting):
            kept: deque[Job] = deque()
            for job in self.waiting:
                if job.cancelled or job.deadline <= now:
                    job.deliver(self._late(job))
                else:
                    kept.append(job)
            self.waiting = kept
        for slot in self.table.active() if self.table else []:
            job_ = slot.job
            if job_ is not None and (job_.cancelled or job_.deadline <= now):
                assert self.table is not None
                if job_.request.partial and job_.token_ids and not (job_.cancelled or self.paused):
                    job_.experts = _routed(self.table.cache, slot, job_.request.experts_from)
                    job_.deliver(job_.response("abort"))
                else:
                    job_.deliver(self._late(job_))
                self.table.drop(slot)

    def _late(self, job: Job) -> ServerError:
        seconds = f"{job.request.timeout_seconds:.3g} s"
        if self.paused:
            return PausedTooLong(f"the deployment stayed paused for longer than the request's {seconds}; resume it")
        if self.decoder is None:
            return PausedTooLong(f"the deployment had no weights within the request's {seconds}; publish a version")
        got = f"{len(job.token_ids)} of {job.request.max_tokens} tokens"
        return DeadlinePassed(f"{got} were ready within {seconds}; allow more time or send less at once")

    def step(self) -> int:
        """Run one forward pass. Returns the number of sampled tokens, -1 when there was nothing to do."""
        if self.paused or self.decoder is None or self.table is None:
            return -1
        self._admit(self.table)
        active = self.table.active()
        if not active:
            return -1
        batch, sampled = self._batch(self.table, active)
        logits = self.decoder.forward(batch, self.table.cache)
        for slot in batch.decode_slots:
            self.table.slots[slot].cached += 1
        for chunk in batch.chunks:
            checked = self.table.slots[chunk.slot]
            checked.cached += chunk.count - len(checked.guesses)  # guesses are counted once they stand
        return self._sample(self.table, sampled, logits) if sampled else 0

    def _admit(self, table: SlotTable) -> None:
        later: deque[Job] = deque()
        while self.waiting:
            job = self.waiting.popleft()
            problem = self._problem(job)
            if problem is not None:
                job.deliver(problem)
                continue
            if table.assign(job, self.epoch) is None:
                later.append(job)
                if len(later) >= table.cache.slots:  # enough looked at: every slot is busy, or prompts are shared
                    break
            else:
                self.read += len(job.prompt)
                self.reused += job.reused
        self.waiting.extendleft(reversed(later))

    def _problem(self, job: Job) -> BadRequest | None:
        assert self.decoder is not None and self.table is not None
        room = self.table.cache.length - len(job.prompt)
        job.limit = min(job.request.max_tokens, room)
        if (job.request.experts_from or 0) >= len(job.prompt):
            return BadRequest(
                f"experts_from={job.request.experts_from} lies behind the prompt's {len(job.prompt)} tokens"
            )
        if room < 1:
            return BadRequest(f"prompt has {len(job.prompt)} tokens, the context holds {self.table.cache.length}")
        if min(job.prompt) < 0 or max(job.prompt) >= self.decoder.shape.vocab_size:
            return BadRequest(f"prompt holds a token id outside [0, {self.decoder.shape.vocab_size})")
        return None

    def _batch(self, table: SlotTable, active: list[Slot]) -> tuple[Batch, list[Slot]]:
        """Packed batch of the step, and the slots that receive its logits, in order: one more per slot than its draft
        tokens."""
        assert self.decoder is not None
        rows: list[Slot] = []
        guessed: list[Slot] = []
        prefills: list[Slot] = []
        for slot in active:
            (guessed if slot.guesses else prefills if slot.pending > 1 else rows).append(slot)
        shared: list[int] = []
        if self.decoder.loops is None:  # torch's attention runs over a range of slots
            rows = table.compact(rows)
        else:
            rows, shared = together(rows)
        tokens = [slot.tokens[-1] for slot in rows]
        positions = [slot.cached for slot in rows]
        slots = [slot.index for slot in rows]
        sampled, wanted = list(rows), list(range(len(rows)))
        chunks: list[Chunk] = []
        for slot in guessed:  # as short chunks, before all others
            count = 1 + len(slot.guesses)
            chunks.append(Chunk(slot.index, slot.cached, count, len(tokens)))
            wanted += range(len(tokens), len(tokens) + count)
            tokens += [slot.tokens[-1], *slot.guesses]
            positions += range(slot.cached, slot.cached + count)
            slots += [slot.index] * count
        sampled += guessed
        budget = self.limits.prefill_tokens
        for slot in sorted(prefills, key=lambda s: s.pending):  # short observations first: they unblock a turn
            count = min(slot.pending, budget)
            if count <= 0:
                break
            budget -= count
            chunks.append(Chunk(slot.index, slot.cached, count, len(tokens)))
            tokens += slot.tokens[slot.cached : slot.cached + count]
            positions += range(slot.cached, slot.cached + count)
            slots += [slot.index] * count
            if count == slot.pending:
                sampled.append(slot)
                wanted.append(len(tokens) - 1)
        length = max(positions[: len(rows)], default=0) + 1
        device = self.decoder.device
        batch = Batch(
            tokens_N=torch.tensor(tokens, device=device),
            positions_N=torch.tensor(positions, device=device),
            slots_N=torch.tensor(slots, device=device),
            decode_slots=slots[: len(rows)],
            decode_length=min(-(-length // 32) * 32, table.cache.length),
            decode_shared=shared,
            chunks=chunks,
            logits_at=torch.tensor(wanted, dtype=torch.long, device=device),
        )
        return batch, sampled

    def _sample(self, table: SlotTable, slots: list[Slot], logits: torch.Tensor) -> int:
        """Give each slot its token, plus accepted draft tokens. Returns the total number."""
        assert self.decoder is not None
        rows = [(job, ahead) for slot in slots if (job := slot.job) for ahead in range(1 + len(slot.guesses))]
        uniforms = [job.random[len(job.token_ids) + ahead] for job, ahead in rows]
        temperatures = [job.temperature for job, _ in rows]
        if any(job.narrowing for job, _ in rows):  # such requests have no guesses
            open_ids = narrow(logits, temperatures, [job.narrowing for job, _ in rows])
            for (job, _), ids in zip(rows, open_ids, strict=True):
                job.open_ids.append(ids)
        tokens, logprobs = sample(logits, temperatures, uniforms, self.decoder.loops)
        at = taken = 0
        last: list[int] = []
        for slot in slots:
            guesses, slot.guesses = slot.guesses, []
            last.append(at + self._take(table, slot, guesses, tokens, logprobs, at))
            taken += last[-1] - at + 1
            at += 1 + len(guesses)
        if self.drafter is not None:
            hidden_NC = self.decoder.hidden[torch.tensor(last, device=self.decoder.device)]
            self.drafter.guess(self.decoder.weights, slots, hidden_NC, table.cache.length)
        self.generated += taken
        return taken

    def _take(
        self, table: SlotTable, slot: Slot, guesses: list[int], tokens: list[int], logprobs: list[float], at: int
    ) -> int:
        """Append tokens from `at` on while they match the draft, and the first that does not. Returns their number."""
        job = slot.job
        assert job is not None
        for stood in range(1 + len(guesses)):
            token = tokens[at + stood]
            slot.tokens.append(token)
            reason = job.append(token, logprobs[at + stood], self.version)
            if reason is not None or stood == len(guesses) or token != guesses[stood]:
                break
            slot.cached += 1
        if self.drafter is not None:
            self.drafter.guessed += len(guesses)
            self.drafter.right += stood
        if reason is not None:
            job.experts = _routed(table.cache, slot, job.request.experts_from)
            table.release(slot)
            job.deliver(job.response(reason))
        return stood


def _routed(cache: KVCache, slot: Slot, first: int | None) -> RoutedExperts | None:
    """Routed experts of a slot's cached tokens from position `first` on, if requested and available."""
    if first is None or cache.experts is None:
        return None
    return RoutedExperts.pack(cache.experts[slot.index, first : slot.cached], start=first)


def make_cache(decoder: Decoder, limits: Limits) -> KVCache:
    """Cache with as many slots as the memory limit allows."""
    shape = decoder.shape
    length = min(limits.max_context, shape.max_position_embeddings)
    per_slot = shape.num_hidden_layers * length * 2 * shape.num_key_value_heads * shape.head_dim * 4
    if decoder.routed:
        per_slot += length * decoder.routed[0] * decoder.routed[1] * 2
    slots = max(1, min(limits.max_slots, limits.kv_bytes // per_slot))
    layers, kv_heads = shape.num_hidden_layers, shape.num_key_value_heads
    return KVCache(slots, layers, length, kv_heads, shape.head_dim, routed=decoder.routed, device=decoder.device)
