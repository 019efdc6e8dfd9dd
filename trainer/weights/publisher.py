"""The trainer's side: version N as a delta on N-1, or as an anchor, written so that it can be repeated.

Publishing a version again is safe. The same bytes are a no-op (a resumed trainer that replays a step).
Other bytes mean that history went another way: the version is replaced by an anchor with a new incarnation,
and what stood on the old one is retracted.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import torch

from trainer.errors import VersionMissing, WeightRefused
from trainer.weights import payload
from trainer.weights.blocks import in_threads
from trainer.weights.codec import FORMATS, Mode, prepare
from trainer.weights.digests import version_digest
from trainer.weights.manifest import Manifest
from trainer.weights.probe import FILE_NAME, Probe
from trainer.weights.shard_manifest import compose
from trainer.weights.tensors import Frozen, RawState, RawTensor, freeze
from trainer.weights.versions import Versions


class Publisher:
    """Holds the bytes of the last published version, which the next delta is coded against."""

    def __init__(
        self, store: Versions, *, dtype: str = "bfloat16", anchor_every: int = 20, mode: Mode = "small"
    ) -> None:
        assert anchor_every > 0
        prepare(FORMATS[dtype])
        self.store = store
        self.dtype = dtype
        self.anchor_every = anchor_every
        self.mode: Mode = mode
        self._last: tuple[Manifest, RawState] | None = None

    def publish(
        self, version: int, state: Mapping[str, torch.Tensor], *, anchor: bool = False, probe: Probe | None = None
    ) -> Manifest:
        """Publishes `state` as `version`, with what it says of the probe.

        Raises WeightError: another process writes, or the store cannot."""
        return self.write(version, self.freeze(state), anchor=anchor, probe=probe)

    def freeze(self, state: Mapping[str, torch.Tensor]) -> Frozen:
        """A copy, to be written while `state` goes on to change."""
        return freeze(state, self.dtype)

    def write(self, version: int, frozen: Frozen, *, anchor: bool = False, probe: Probe | None = None) -> Manifest:
        """The part of `publish` that takes time. One at a time, from any thread."""
        raw, aliases = frozen
        with self.store.writing():
            try:
                self.store.sweep()
                manifest = self._publish(version, raw, aliases, anchor=anchor, probe=probe)
            except BaseException:
                self._last = None  # after any failure the next version is an anchor
                raise
        self._last = (manifest, raw)
        return manifest

    def _publish(
        self, version: int, raw: RawState, aliases: dict[str, str], *, anchor: bool, probe: Probe | None
    ) -> Manifest:
        digests = dict(zip(raw, in_threads(RawTensor.digest, raw.values()), strict=True))
        there, intact = self._published(version)
        digest = version_digest(digests, aliases)
        if there is not None and there.digest == digest and intact:
            return there
        incarnation = self._incarnation(version, there, digest)
        base = None if anchor or self.store.anchor_requested() else self._base(version, raw)
        written = payload.write(raw, digests, base[1] if base else None, mode=self.mode)
        manifest = compose(version, incarnation, base[0] if base else None, [written.part], aliases)
        notes = {FILE_NAME: probe.model_dump_json().encode()} if probe else None
        self.store.install(manifest, [written.data], notes)
        if manifest.kind == "anchor":
            self.store.clear_anchor_request()
        return manifest

    def _published(self, version: int) -> tuple[Manifest | None, bool]:
        """What already has this number, and whether its bytes are as published."""
        try:
            manifest = self.store.manifest(version)
            payload.check(manifest, self.store.payloads(manifest))
        except VersionMissing:
            return None, False
        except WeightRefused:
            self._last = None
            return None, False
        return manifest, True

    def _incarnation(self, version: int, there: Manifest | None, digest: str) -> str:
        """The incarnation to publish under; retracts what belongs to an abandoned history."""
        later = [v for v in self.store.all() if v >= version]
        if later and not (there is not None and there.digest == digest):
            for old in reversed(later):
                self.store.remove(old)
            self._last = None
            return uuid.uuid4().hex
        return self._last[0].incarnation if self._last else uuid.uuid4().hex

    def _base(self, version: int, raw: RawState) -> tuple[Manifest, RawState] | None:
        """The version to code against, or None when this must be an anchor."""
        if self._last is None:
            return None
        manifest, base = self._last
        due = version - anchor_of(self.store, manifest) >= self.anchor_every
        if due or manifest.version != version - 1 or base.keys() != raw.keys():
            return None
        if any(base[n].dtype != t.dtype or base[n].shape != t.shape for n, t in raw.items()):
            return None
        return manifest, base


def anchor_of(store: Versions, manifest: Manifest) -> int:
    """The version at which the chain of this one begins."""
    while manifest.base_version is not None:
        manifest = store.manifest(manifest.base_version)
    return manifest.version
