"""The trainer's side: version N as a delta on N-1, or as an anchor, written so that it can be repeated.

Publishing a version again is safe. The same bytes are a no-op (a resumed trainer that replays a step).
Other bytes mean that history went another way: the version is replaced by an anchor with a new incarnation,
and what stood on the old one is retracted.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Mapping

import torch

from trainer.weights import payload
from trainer.weights.errors import VersionMissing, WeightRefused
from trainer.weights.folder import Folder
from trainer.weights.manifest import Entry, Manifest
from trainer.weights.tensors import RawState, freeze, version_digest


class Publisher:
    """Holds the bytes of the last published version, which the next delta is coded against."""

    def __init__(self, folder: Folder, *, dtype: str = "bfloat16", anchor_every: int = 20) -> None:
        assert anchor_every > 0
        self.folder = folder
        self.dtype = dtype
        self.anchor_every = anchor_every
        self._last: tuple[Manifest, RawState] | None = None

    def publish(self, version: int, state: Mapping[str, torch.Tensor], *, anchor: bool = False) -> Manifest:
        """Publishes `state` as `version`. Raises WeightError when another process writes to the store."""
        raw, aliases = freeze(state, self.dtype)
        with self.folder.writing():
            self.folder.sweep()
            try:
                manifest = self._publish(version, raw, aliases, anchor=anchor)
            except BaseException:
                self._last = None  # after any failure the next version is an anchor
                raise
        self._last = (manifest, raw)
        return manifest

    def _publish(self, version: int, raw: RawState, aliases: dict[str, str], *, anchor: bool) -> Manifest:
        digests = {name: tensor.digest() for name, tensor in raw.items()}
        digest = version_digest(digests, aliases)
        there, intact = self._published(version)
        if there is not None and there.digest == digest and intact:
            return there
        incarnation = self._incarnation(version, there, digest)
        wanted = self.folder.anchor_requested()
        base = None if anchor or wanted else self._base(version, raw)
        if base is None:
            data, entries = payload.write_anchor(raw)
            manifest = _manifest(version, digest, entries, aliases, data, incarnation)
        else:
            base_manifest, base_raw = base
            data, entries, changed = payload.write_delta(base_raw, raw)
            words = sum(tensor.data.size // tensor.word for tensor in raw.values())
            manifest = _manifest(version, digest, entries, aliases, data, incarnation, base_manifest, changed, words)
        self.folder.install(manifest, data)
        if manifest.kind == "anchor":
            self.folder.clear_anchor_request()
        return manifest

    def _published(self, version: int) -> tuple[Manifest | None, bool]:
        """What already has this number, and whether its bytes are as published."""
        try:
            manifest = self.folder.manifest(version)
            payload.check(manifest, self.folder.payload(manifest))
        except VersionMissing:
            return None, False
        except WeightRefused:
            self._last = None
            return None, False
        return manifest, True

    def _incarnation(self, version: int, there: Manifest | None, digest: str) -> str:
        """The incarnation to publish under; retracts what belongs to an abandoned history."""
        later = [v for v in self.folder.versions() if v >= version]
        if later and not (there is not None and there.digest == digest):
            for old in reversed(later):
                self.folder.remove(old)
            self._last = None
            return uuid.uuid4().hex
        return self._last[0].incarnation if self._last else uuid.uuid4().hex

    def _base(self, version: int, raw: RawState) -> tuple[Manifest, RawState] | None:
        """The version to code against, or None when this must be an anchor."""
        if self._last is None:
            return None
        manifest, base = self._last
        due = version - self._anchor_of(manifest) >= self.anchor_every
        if due or manifest.version != version - 1 or base.keys() != raw.keys():
            return None
        if any(base[n].dtype != t.dtype or base[n].shape != t.shape for n, t in raw.items()):
            return None
        return manifest, base

    def _anchor_of(self, manifest: Manifest) -> int:
        while manifest.base_version is not None:
            manifest = self.folder.manifest(manifest.base_version)
        return manifest.version


def _manifest(
    version: int,
    digest: str,
    entries: dict[str, Entry],
    aliases: dict[str, str],
    data: bytes,
    incarnation: str,
    base: Manifest | None = None,
    changed: int = 0,
    words: int = 0,
) -> Manifest:
    return Manifest(
        version=version,
        kind="delta" if base else "anchor",
        incarnation=incarnation,
        digest=digest,
        base_version=base.version if base else None,
        base_digest=base.digest if base else None,
        payload_digest=hashlib.sha256(data).hexdigest(),
        payload_bytes=len(data),
        changed_words=changed,
        total_words=words,
        tensors=entries,
        aliases=aliases,
        created_at=time.time(),
    )
