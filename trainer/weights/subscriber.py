"""The receiver's side: a mirror of the published bytes in CPU memory, moved forward one version at a time.

`fetch` reads, decodes and proves without touching the mirror, so generation goes on meanwhile; `commit`
makes the result current and is what happens under the pause. Bytes that do not prove themselves are refused
and another way is taken: the nearest anchor and its chain, and at last a request for a new anchor.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch

from trainer.errors import VersionMissing, WeightRefused
from trainer.weights import payload
from trainer.weights.codec import prepare
from trainer.weights.manifest import Manifest
from trainer.weights.tensors import DRAFT_HEAD, RawState, thaw
from trainer.weights.versions import Versions


@dataclass(frozen=True)
class Mirror:
    """One proven version in memory."""

    manifest: Manifest
    raw: RawState
    """Everything that was published: the policy, and its draft head if it has one."""

    @property
    def version(self) -> int:
        return self.manifest.version

    @property
    def digest(self) -> str:
        return self.manifest.digest

    @property
    def policy(self) -> RawState:
        """`raw` without the draft head."""
        return {name: tensor for name, tensor in self.raw.items() if not name.startswith(DRAFT_HEAD)}

    def state(self) -> dict[str, torch.Tensor]:
        """The policy's tensors; aliases share memory."""
        return thaw(self.policy, self.manifest.aliases)

    def draft_head(self) -> dict[str, torch.Tensor]:
        """Tensors of the draft head by their own names; empty where the version has none."""
        found = {name: tensor for name, tensor in self.raw.items() if name.startswith(DRAFT_HEAD)}
        return {name.removeprefix(DRAFT_HEAD): tensor.tensor() for name, tensor in found.items()}


@dataclass(frozen=True)
class Fetched:
    """A version ready to be applied, and what it took."""

    mirror: Mirror
    kind: str
    """`delta` when the mirror was moved forward, `anchor` when the way began at a full version."""
    bytes: int = 0
    fetch_seconds: float = 0.0
    decode_seconds: float = 0.0
    refusals: list[WeightRefused] = field(default_factory=list)


class Subscriber:
    """Follows one weight store. Not thread-safe: one owner calls fetch, then commit."""

    def __init__(self, store: Versions) -> None:
        self.store = store
        self.current: Mirror | None = None

    def newest(self) -> Manifest | None:
        """Manifest of the newest version, None while the store is empty. Raises CorruptManifest."""
        versions = self.store.all()
        try:
            return self.store.manifest(versions[-1]) if versions else None
        except VersionMissing:  # replaced at this very moment; the next poll sees what took its place
            return None

    def behind(self) -> bool:
        """Whether the newest version holds other weights than the mirror (also when history was replaced)."""
        newest = self.newest()
        if newest is None:
            return False
        mine = self.current
        return mine is None or (newest.version, newest.digest) != (mine.version, mine.digest)

    def fetch(self, version: int | None = None) -> Fetched | None:
        """Reads and proves `version` (None: the newest). None when there is nothing new.

        Raises VersionMissing, or the refusal of the last way tried; the mirror is as before in both cases.
        """
        if version is None:
            versions = self.store.all()
            if not versions:
                return None
            version = versions[-1]
        refusals: list[WeightRefused] = []
        for use_mirror in (True, False):
            if use_mirror and self.current is None:
                continue
            try:
                mirror = self.current if use_mirror else None
                chain = self.store.chain(version, (mirror.version, mirror.digest) if mirror else None)
                if not chain:
                    return None
                return self._walk(chain, refusals)
            except WeightRefused as refusal:
                refusals.append(refusal)
            except VersionMissing:
                if not use_mirror:
                    raise
        self.store.request_anchor(f"version {version} refused: {refusals[-1]}")
        raise refusals[-1]

    def commit(self, fetched: Fetched) -> None:
        self.current = fetched.mirror

    def _walk(self, chain: list[Manifest], refusals: list[WeightRefused]) -> Fetched:
        mirror = self.current if chain[0].kind == "delta" else None
        fetched = decoded = 0.0
        size = 0
        for manifest in chain:
            began = time.perf_counter()
            data = self.store.payloads(manifest)
            read = time.perf_counter()
            base, base_digest = (mirror.raw, mirror.digest) if mirror else (None, None)
            mirror = Mirror(manifest, payload.read(manifest, data, base, base_digest))
            fetched += read - began
            decoded += time.perf_counter() - read
            size += manifest.payload_bytes
        assert mirror is not None
        for form in {tensor.form for tensor in mirror.raw.values()}:
            prepare(form)  # an anchor needs no loops, what follows it does
        return Fetched(mirror, chain[0].kind, size, fetched, decoded, refusals)


def load(store: Versions, version: int | None = None) -> Mirror:
    """A late joiner: nearest anchor and chain. Raises VersionMissing on an empty store."""
    fetched = Subscriber(store).fetch(version)
    if fetched is None:
        raise VersionMissing(f"weight store {store.where} is empty; publish a version first")
    return fetched.mirror
