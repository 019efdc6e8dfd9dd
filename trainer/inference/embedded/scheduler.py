"""Slot scheduling: sessions, prefix sharing, eviction, and compaction of active rows."""

from __future__ import annotations

from itertools import islice

from trainer.inference.embedded.cache import KVCache
from trainer.inference.embedded.request import Job, PrefixGroup, Slot


class SlotTable:
    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self.slots = [Slot(index) for index in range(cache.slots)]
        self.sessions: dict[str, Slot] = {}
        self.prompts: dict[tuple[int, ...], Slot] = {}
        self._clock = self._prefix_groups = 0

    def active(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.job is not None]

    def assign(self, job: Job, epoch: int) -> Slot | None:
        """Assign a slot to the job, reusing as much of its cached prompt as possible.

        None when every slot is busy, or when waiting for the same prompt's prefill pays off.
        """
        session = job.request.session
        slot = self.sessions.get(session) if session else None
        if slot is not None and slot.job is None:
            kept = _common_prefix(slot.tokens, job.prompt, min(slot.cached, len(job.prompt) - 1))
            kept = kept if slot.epoch == epoch else 0
            if kept:
                if slot.prefix_group is not None and kept < slot.prefix_group.length:
                    slot.prefix_group = None
                return self._start(slot, job, kept, epoch)
        donor = self.prompts.get(job.prompt)
        shared = 0
        if donor is not None and donor.epoch == epoch:
            shared = len(job.prompt) - 1
            if donor.cached < shared:
                if donor.job is not None:
                    return None
                shared = 0
        if slot is None or slot.job is not None:
            slot = self._free(avoid=donor if shared else None)
            if slot is None:
                return None
            self._reset(slot)
        if shared and donor is not None and donor is not slot:
            self.cache.copy(donor.index, slot.index, shared)
            slot.prefix_group = self._prefix_group(donor, shared)
        else:
            shared = 0
            slot.prefix_group = None
        if session and session not in self.sessions:
            slot.session = session
            self.sessions[session] = slot
        return self._start(slot, job, shared, epoch)

    def _prefix_group(self, donor: Slot, shared: int) -> PrefixGroup:
        """Prefix group of a slot that received the first `shared` tokens of `donor`."""
        if donor.prefix_group is None or donor.prefix_group.length > shared:
            self._prefix_groups += 1
            donor.prefix_group = PrefixGroup(self._prefix_groups, shared)
        return donor.prefix_group

    def _start(self, slot: Slot, job: Job, kept: int, epoch: int) -> Slot:
        slot.tokens = list(job.prompt)
        slot.draft_tokens = []
        slot.cached = kept
        slot.epoch = epoch
        slot.job = job
        self._forget_prompt(slot)
        if (earlier := self.prompts.get(job.prompt)) is not None:
            earlier.prompt = ()
        slot.prompt = job.prompt
        self.prompts[job.prompt] = slot
        job.reused = kept
        return slot

    def release(self, slot: Slot) -> None:
        """The job is done; its prefix stays cached until the slot is needed."""
        self._clock += 1
        slot.job = None
        slot.used = self._clock

    def drop(self, slot: Slot) -> None:
        """The job was cancelled; its cached tokens stay valid for the session."""
        del slot.tokens[slot.cached :]
        self.release(slot)

    def _free(self, avoid: Slot | None) -> Slot | None:
        """Pick a free slot: one without reusable content, else one never used, else the least recently used.

        The order matters: the kernel clears memory on first write, which takes longer than copying a prompt.
        """

        def worth(slot: Slot) -> tuple[bool, int]:
            kept = slot.session is not None or bool(slot.prompt)
            return kept or not slot.used, slot.used

        idle = [slot for slot in self.slots if slot.job is None and slot is not avoid]
        return min(idle, key=worth, default=None)

    def prepare(self) -> bool:
        """Prepare part of the unused slots that `_free` will return next. Returns False when nothing is left."""
        fresh = (slot for slot in self.slots if slot.job is None and not slot.used)
        return any(self.cache.prepare(slot.index) for slot in islice(fresh, self.cache.ahead))

    def _reset(self, slot: Slot) -> None:
        self._forget_prompt(slot)
        if slot.session is not None and self.sessions.get(slot.session) is slot:
            del self.sessions[slot.session]
        slot.session = None
        slot.tokens = []
        slot.cached = 0

    def _forget_prompt(self, slot: Slot) -> None:
        if slot.prompt:
            del self.prompts[slot.prompt]
            slot.prompt = ()

    def compact(self, rows: list[Slot], moves: int = 4) -> list[Slot]:
        """Move decode rows towards slot 0 while more than a fifth of their range is idle; return them sorted.

        Attention runs over the whole range, so gaps cost time. A finished turn returns soon, so moving at every gap
        would cost
        more.
        """
        rows = sorted(rows, key=lambda slot: slot.index)
        for _ in range(moves):
            if not rows or rows[-1].index + 1 <= len(rows) * 5 // 4 + 2:
                break
            taken = {slot.index for slot in rows}
            hole = next(index for index in range(len(self.slots)) if index not in taken)
            self._swap(rows[-1], self.slots[hole])
            rows.sort(key=lambda slot: slot.index)
        return rows

    def _swap(self, a: Slot, b: Slot) -> None:
        self.cache.swap(a.index, b.index, a.cached, b.cached)
        a.index, b.index = b.index, a.index
        self.slots[a.index], self.slots[b.index] = a, b


def together(rows: list[Slot]) -> tuple[list[Slot], list[int]]:
    """Order rows by prefix group, with the number of leading tokens that each shares with the row before it."""
    rows = sorted(rows, key=lambda slot: slot.prefix_group.number if slot.prefix_group else 0)
    prefix_groups: list[PrefixGroup | None] = [None, *(slot.prefix_group for slot in rows)]
    return rows, [
        slot.prefix_group.length if slot.prefix_group and slot.prefix_group is before else 0
        for slot, before in zip(rows, prefix_groups, strict=False)
    ]


def _common_prefix(a: list[int], b: tuple[int, ...], limit: int) -> int:
    if a[:limit] == list(b[:limit]):
        return limit
    return next(i for i in range(limit) if a[i] != b[i])
