"""Continuous batching of one deployment: every step advances all decode rows and some prompt tokens.

Lives on the engine thread; nothing here is safe to call from another.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch

from trainer.inference.embedded.batch import Batch, Chunk
from trainer.inference.embedded.cache import BLOCK, KVCache, block_bytes
from trainer.inference.embedded.model import Decoder, Weights
from trainer.inference.embedded.request import Job, Sequence
from trainer.inference.embedded.sampling import narrow, sample
from trainer.inference.embedded.scheduler import Scheduler, shared_tokens
from trainer.inference.embedded.speculative import Drafter
from trainer.inference.errors import BadRequest, ContextExceeded, DeadlinePassed, PausedTooLong, QueueFull, ServerError
from trainer.inference.kv_usage import KVCacheUsage
from trainer.routed_experts import RoutedExperts


@dataclass(frozen=True)
class Limits:
    """Resource limits of one deployment."""

    max_queue: int = 1024
    """Maximum requests waiting; further ones are refused."""
    max_context: int = 1 << 17
    """Maximum tokens of a sequence, as far as the policy's positions and the cache allow."""
    max_num_seqs: int = 256
    kv_bytes: int = 1 << 30
    prefill_tokens: int = 512
    """Maximum prompt tokens per step, so that long prompts do not delay decoding."""
    speculate: int = 0
    """Draft tokens per request, where the policy has a draft head; see `speculative.py`."""


class Runner:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.decoder: Decoder | None = None
        self.scheduler: Scheduler | None = None
        self.drafter: Drafter | None = None
        self.waiting: deque[Job] = deque()
        self.version = -1
        self.paused = False
        self.generated = 0
        self.read = self.reused = 0
        """Prompt tokens, and those whose keys and values were cached."""
        self.preemptions = 0
        """Times that a running request gave its blocks to an older one."""
        self.kv_usage = KVCacheUsage()

    def install(self, decoder: Decoder, cache: KVCache, version: int, drafter: Drafter | None = None) -> None:
        """Install the first weights."""
        length = min(self.limits.max_context, decoder.shape.max_position_embeddings, cache.tokens)
        self.scheduler = Scheduler(cache, self.limits.max_num_seqs, length)
        self.decoder, self.version, self.drafter = decoder, version, drafter

    def swap(self, weights: Weights, version: int, drafter: Drafter | None = None) -> None:
        """Swap in weights of the same shape; sequences in flight keep their keys and values and continue.

        Without a new drafter the old one stays: a wrong draft is merely rejected.
        """
        assert self.decoder is not None and self.scheduler is not None
        self.decoder.weights = weights
        self.version = version
        if drafter is not None:
            self.drafter = drafter.after(self.drafter)
        self.scheduler.forget()

    def look(self, now: float) -> None:
        """Record how much of the cache running requests use."""
        if self.scheduler is not None:
            blocks = self.scheduler.cache.blocks
            self.kv_usage.saw((blocks - self.scheduler.pool.free) / blocks, now)

    def prepare(self) -> bool:
        """Prepare one piece of memory for future requests. False: nothing is left to prepare."""
        return self.scheduler is not None and self.scheduler.prepare()

    @property
    def running(self) -> int:
        return len(self.scheduler.running) if self.scheduler else 0

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
        for sequence in list(self.scheduler.running) if self.scheduler else []:
            assert self.scheduler is not None
            sequence.job.deliver(error)
            self.scheduler.release(sequence)

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
        for sequence in list(self.scheduler.running) if self.scheduler else []:
            assert self.scheduler is not None
            job = sequence.job
            if not job.cancelled and job.deadline > now:
                continue
            if job.request.partial and job.token_ids and not (job.cancelled or self.paused):
                job.experts = _routed(self.scheduler.cache, sequence, job.request.experts_from)
                job.deliver(job.response("abort"))
            else:
                job.deliver(self._late(job))
            self.scheduler.release(sequence)

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
        if self.paused or self.decoder is None or self.scheduler is None:
            return -1
        self._admit(self.scheduler)
        self._grow(self.scheduler)
        if not self.scheduler.running:
            return -1
        batch, sampled, computed = self._batch(self.scheduler)
        logits = self.decoder.forward(batch, self.scheduler.cache)
        for sequence, count in computed:
            sequence.cached += count
            if sequence.pending:  # of a prompt; others advance once their token is known
                self.scheduler.advance(sequence)
        return self._sample(self.scheduler, sampled, logits) if sampled else 0

    def _admit(self, scheduler: Scheduler) -> None:
        later: deque[Job] = deque()
        while self.waiting and len(later) < self.limits.max_num_seqs:
            job = self.waiting.popleft()
            problem = self._problem(job)
            if problem is not None:
                job.deliver(problem)
                continue
            started = scheduler.admit(job)
            if isinstance(started, Sequence):
                if not job.admitted:
                    job.admitted, job.reused = True, started.cached
                    self.read += len(job.prompt)
                    self.reused += job.reused
                continue
            later.append(job)
            if started == "room":  # first come, first served
                break
        self.waiting.extendleft(reversed(later))

    def _grow(self, scheduler: Scheduler) -> None:
        """Blocks for the tokens of this step. Where there are none free, the youngest requests wait and are computed again."""
        for sequence in list(scheduler.running):
            while sequence in scheduler.running:
                if scheduler.reserve(sequence, len(sequence.tokens) + len(sequence.draft_tokens)):
                    break
                if sequence.draft_tokens:
                    sequence.draft_tokens = []
                    continue
                victim = scheduler.running[-1]
                scheduler.release(victim)
                self.waiting.appendleft(victim.job)
                self.preemptions += 1

    def _problem(self, job: Job) -> BadRequest | None:
        assert self.decoder is not None and self.scheduler is not None
        room = self.scheduler.length - len(job.prompt)
        job.limit = min(job.request.max_tokens, room)
        if (job.request.experts_from or 0) >= len(job.prompt):
            return BadRequest(
                f"experts_from={job.request.experts_from} lies behind the prompt's {len(job.prompt)} tokens"
            )
        if room < 1:
            return ContextExceeded(tokens=len(job.prompt), context=self.scheduler.length)
        if min(job.prompt) < 0 or max(job.prompt) >= self.decoder.shape.vocab_size:
            return BadRequest(f"prompt holds a token id outside [0, {self.decoder.shape.vocab_size})")
        return None

    def _batch(self, scheduler: Scheduler) -> tuple[Batch, list[Sequence], list[tuple[Sequence, int]]]:
        """Packed batch of the step; the sequences that receive its logits, in order: one more per sequence than its draft
        tokens; and all sequences with their tokens of the step, without drafts: those count once they are accepted."""
        assert self.decoder is not None
        rows: list[Sequence] = []
        drafted: list[Sequence] = []
        prefills: list[Sequence] = []
        for sequence in scheduler.ordered():
            (drafted if sequence.draft_tokens else prefills if sequence.pending > 1 else rows).append(sequence)
        tokens = [sequence.tokens[-1] for sequence in rows]
        starts = [sequence.cached for sequence in rows]
        tables = [sequence.table for sequence in rows]
        sampled, wanted = list(rows), list(range(len(rows)))
        computed = [(sequence, 1) for sequence in rows]
        chunks: list[Chunk] = []
        for sequence in drafted:  # as short chunks, before all others
            count = 1 + len(sequence.draft_tokens)
            chunks.append(Chunk(sequence.table, sequence.cached, count, len(tokens)))
            wanted += range(len(tokens), len(tokens) + count)
            tokens += [sequence.tokens[-1], *sequence.draft_tokens]
            computed.append((sequence, 1))
        sampled += drafted
        budget = self.limits.prefill_tokens
        for sequence in sorted(prefills, key=lambda s: s.pending):  # short observations first: they unblock a turn
            count = min(sequence.pending, budget)
            if count <= 0:
                break
            budget -= count
            chunks.append(Chunk(sequence.table, sequence.cached, count, len(tokens)))
            tokens += sequence.tokens[sequence.cached : sequence.cached + count]
            computed.append((sequence, count))
            if count == sequence.pending:
                sampled.append(sequence)
                wanted.append(len(tokens) - 1)
        spans = [np.arange(chunk.start, chunk.start + chunk.count) for chunk in chunks]
        positions_N = np.concatenate([np.array(starts, np.int64), *spans])
        ends = np.repeat(np.array([chunk.table for chunk in chunks], np.int64), [chunk.count for chunk in chunks])
        table_N = np.concatenate([np.array(tables, np.int64), ends])
        rows_N = scheduler.tables_SB[table_N, positions_N // BLOCK] * BLOCK + positions_N % BLOCK
        device = self.decoder.device
        batch = Batch(
            tokens_N=torch.tensor(tokens, device=device),
            positions_N=torch.from_numpy(positions_N).to(device),
            rows_N=torch.from_numpy(rows_N).to(device),
            table_N=table_N,
            tables_SB=scheduler.tables_SB,
            decode_rows=len(rows),
            decode_shared=shared_tokens(rows),
            chunks=chunks,
            logits_at=torch.tensor(wanted, dtype=torch.long, device=device),
        )
        return batch, sampled, computed

    def _sample(self, scheduler: Scheduler, sequences: list[Sequence], logits: torch.Tensor) -> int:
        """Give each sequence its token, plus accepted draft tokens. Returns the total number."""
        assert self.decoder is not None
        rows = [(sequence.job, ahead) for sequence in sequences for ahead in range(1 + len(sequence.draft_tokens))]
        uniforms = [job.random[len(job.token_ids) + ahead] for job, ahead in rows]
        temperatures = [job.temperature for job, _ in rows]
        if any(job.sampling_mask for job, _ in rows):  # such requests have no draft tokens
            allowed_ids = narrow(logits, temperatures, [job.sampling_mask for job, _ in rows])
            for (job, _), ids in zip(rows, allowed_ids, strict=True):
                job.allowed_ids.append(ids)
        tokens, logprobs = sample(logits, temperatures, uniforms, self.decoder.loops)
        at = taken = 0
        last: list[int] = []
        for sequence in sequences:
            draft_tokens, sequence.draft_tokens = sequence.draft_tokens, []
            last.append(at + self._take(scheduler, sequence, draft_tokens, tokens, logprobs, at))
            taken += last[-1] - at + 1
            at += 1 + len(draft_tokens)
        if self.drafter is not None:
            hidden_NC = self.decoder.hidden[torch.tensor(last, device=self.decoder.device)]
            self.drafter.draft(self.decoder.weights, sequences, hidden_NC, scheduler.length)
        self.generated += taken
        return taken

    def _take(
        self,
        scheduler: Scheduler,
        sequence: Sequence,
        draft_tokens: list[int],
        tokens: list[int],
        logprobs: list[float],
        at: int,
    ) -> int:
        """Append tokens from `at` on while they match the draft, and the first that does not. Returns their number."""
        job = sequence.job
        reason = None
        for stood in range(1 + len(draft_tokens)):
            token = tokens[at + stood]
            sequence.tokens.append(token)
            reason = job.append(token, logprobs[at + stood], self.version)
            if reason is not None or stood == len(draft_tokens) or token != draft_tokens[stood]:
                break
            sequence.cached += 1
        if self.drafter is not None:
            self.drafter.drafted += len(draft_tokens)
            self.drafter.accepted += stood
        scheduler.advance(sequence)
        if reason is not None:
            job.experts = _routed(scheduler.cache, sequence, job.request.experts_from)
            scheduler.release(sequence)
            job.deliver(job.response(reason))
        return stood


def _routed(cache: KVCache, sequence: Sequence, first: int | None) -> RoutedExperts | None:
    """Routed experts of a sequence's cached tokens from position `first` on, if requested and available."""
    if first is None or cache.experts is None:
        return None
    at = np.arange(first, sequence.cached)
    blocks = np.array([block.index for block in sequence.blocks], np.int64)
    return RoutedExperts.pack(cache.experts[blocks[at // BLOCK] * BLOCK + at % BLOCK], start=first)


def make_cache(decoder: Decoder, limits: Limits) -> KVCache:
    """Cache with as many blocks as the memory limit allows and running sequences can fill; at least one."""
    shape = decoder.shape
    sizes = shape.num_hidden_layers, shape.num_key_value_heads, shape.head_dim, decoder.routed
    length = min(limits.max_context, shape.max_position_embeddings)
    wanted = limits.max_num_seqs * -(-length // BLOCK)
    blocks = max(1, min(wanted, limits.kv_bytes // block_bytes(*sizes)))
    return KVCache(blocks, *sizes, device=decoder.device)
