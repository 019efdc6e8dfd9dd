"""One version from several ranks: each publishes what it owns, from its own memory, and rank 0 makes it visible.

The ranks meet in the store alone. Rank 0 writes a plan (anchor, or delta on which version); every rank writes its
payload and a note of it that carries the plan's token; when all notes are there, rank 0 writes the manifest, and with it
the version exists on all ranks or on none. A rank that lost its base publishes its part raw: any rank may restart alone.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import torch
from pydantic import Field, ValidationError

from trainer.errors import BlobMissing, ShardMissing, VersionMissing, WeightRefused
from trainer.weights import payload
from trainer.weights.blocks import in_threads
from trainer.weights.codec import FORMATS, Mode, prepare
from trainer.weights.manifest import Manifest, Model, Shard
from trainer.weights.probe import FILE_NAME as PROBE
from trainer.weights.probe import Probe
from trainer.weights.publisher import anchor_of
from trainer.weights.shard_manifest import Part, compose
from trainer.weights.tensors import RawState, RawTensor, Slice, freeze
from trainer.weights.versions import Versions

_PLAN = "plan.json"
_POLL_SECONDS = 0.02
T = TypeVar("T")
M = TypeVar("M", bound=Model)


class Plan(Model):
    token: str
    world: int = Field(ge=1)
    base_version: int | None = None
    base_digest: str | None = None


class RankPublisher:
    """`publish` is called by all `world` ranks with the same versions in the same order."""

    def __init__(
        self,
        store: Versions,
        rank: int,
        world: int,
        *,
        dtype: str = "bfloat16",
        anchor_every: int = 20,
        mode: Mode = "small",
        timeout: float = 300.0,
    ) -> None:
        """`timeout`: seconds that one rank waits for the others."""
        assert 0 <= rank < world and anchor_every > 0
        prepare(FORMATS[dtype])
        self.store = store
        self.rank = rank
        self.world = world
        self.dtype = dtype
        self.anchor_every = anchor_every
        self.mode: Mode = mode
        self.timeout = timeout
        self._last: tuple[Manifest, RawState] | None = None
        self._done = ""
        """Token of the last plan that was answered: it may still lie there when the version is published again."""

    def publish(
        self,
        version: int,
        owned: Mapping[str, torch.Tensor | Slice],
        *,
        anchor: bool = False,
        probe: Probe | None = None,
    ) -> Manifest:
        """Publishes what this rank owns of `version`: whole tensors, slices, or nothing. Rank 0's `probe` is kept beside it.

        Returns when the version exists. Raises ShardMissing when a rank stayed away, WeightError when the parts are no
        whole state; the version does not exist then, and the next one is an anchor.
        """
        raw, aliases = freeze(owned, self.dtype)
        last, self._last = self._last, None
        if self.rank == 0:
            with self.store.writing():
                self.store.sweep()
                manifest = self._lead(version, raw, aliases, last, anchor=anchor, probe=probe)
        else:
            manifest = self._follow(version, raw, aliases, last)
        self._last = (manifest, raw)
        return manifest

    def _lead(
        self,
        version: int,
        raw: RawState,
        aliases: Mapping[str, str],
        last: tuple[Manifest, RawState] | None,
        *,
        anchor: bool,
        probe: Probe | None,
    ) -> Manifest:
        later = [v for v in self.store.all() if v >= version]
        for old in reversed(later):  # published again: what stood on it belongs to an abandoned history
            self.store.remove(old)
        wanted = anchor or bool(later) or self.store.anchor_requested()
        base = None if wanted or last is None else self._base(version, last[0])
        plan = Plan(
            token=uuid.uuid4().hex,
            world=self.world,
            base_version=base.version if base else None,
            base_digest=base.digest if base else None,
        )
        self.store.put(version, _PLAN, plan.model_dump_json().encode())
        mine = self._contribute(version, plan, raw, aliases, last)
        parts = [mine]
        for rank in range(1, self.world):
            parts.append(
                self._await(
                    partial(self._part, version, rank, plan), f"rank {rank} published nothing of version {version}"
                )
            )
        names = {name: target for part in parts for name, target in part.aliases.items()}
        incarnation = base.incarnation if base else plan.token
        manifest = compose(version, incarnation, base, parts, names)
        if probe is not None:
            self.store.put(version, PROBE, probe.model_dump_json().encode())
        self.store.complete(manifest)
        self.store.drop(version, [_PLAN, *(_note(rank) for rank in range(self.world))])
        if base is None:
            self.store.clear_anchor_request()
        return manifest

    def _follow(
        self, version: int, raw: RawState, aliases: Mapping[str, str], last: tuple[Manifest, RawState] | None
    ) -> Manifest:
        """Answers rank 0's plan, and again when another replaces it: the first may be of an attempt that failed."""
        plan: Plan | None = self._await(lambda: self._plan(version), f"rank 0 planned no version {version}")
        while plan is not None:
            part = self._contribute(version, plan, raw, aliases, last)
            look = partial(self._finished_or_replanned, version, part.shard)
            manifest, plan = self._await(look, f"rank 0 did not complete version {version}")
        assert manifest is not None
        return manifest

    def _finished_or_replanned(self, version: int, mine: Shard) -> tuple[Manifest | None, Plan | None] | None:
        if manifest := self._finished(version, mine):
            return manifest, None
        plan = self._plan(version)
        return (None, plan) if plan else None

    def _base(self, version: int, last: Manifest) -> Manifest | None:
        due = version - anchor_of(self.store, last) >= self.anchor_every
        return None if due or last.version != version - 1 else last

    def _contribute(
        self,
        version: int,
        plan: Plan,
        raw: RawState,
        aliases: Mapping[str, str],
        last: tuple[Manifest, RawState] | None,
    ) -> Part:
        """Payload first, then the note that says it is there."""
        self._done = plan.token
        base: RawState | None = None
        if plan.base_version is not None:
            same = last is not None and (last[0].version, last[0].digest) == (plan.base_version, plan.base_digest)
            base = last[1] if last is not None and same else {}
        digests = dict(zip(raw, in_threads(RawTensor.digest, raw.values()), strict=True))
        written = payload.write(raw, digests, base, mode=self.mode, rank=self.rank, world=self.world)
        part = written.part.model_copy(update={"aliases": dict(aliases), "token": plan.token})
        self.store.put(version, part.shard.name, written.data)
        self.store.put(version, _note(self.rank), part.model_dump_json().encode())
        return part

    def _plan(self, version: int) -> Plan | None:
        plan = self._read(version, _PLAN, Plan)
        return plan if plan and plan.token != self._done and plan.world == self.world else None

    def _part(self, version: int, rank: int, plan: Plan) -> Part | None:
        part = self._read(version, _note(rank), Part)
        return part if part and part.token == plan.token else None

    def _read(self, version: int, name: str, model: type[M]) -> M | None:
        try:
            return model.model_validate_json(self.store.get(version, name))
        except (BlobMissing, ValidationError):  # not there yet, or of another program: waited for
            return None

    def _finished(self, version: int, mine: Shard) -> Manifest | None:
        """The manifest, once it names what this rank wrote."""
        try:
            manifest = self.store.manifest(version)
        except (VersionMissing, WeightRefused):
            return None
        return manifest if any(s.digest == mine.digest for s in manifest.shards) else None

    def _await(self, look: Callable[[], T | None], problem: str) -> T:
        deadline = time.monotonic() + self.timeout
        while True:
            found = look()
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise ShardMissing(
                    f"{problem} within {self.timeout:g} s; start it again, the next version is an anchor"
                )
            time.sleep(_POLL_SECONDS)


def _note(rank: int) -> str:
    return f"part-{rank:05d}.json"
