"""Weight updates of one vLLM server: changed words in place where that is verified to work, else a full checkpoint."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from pathlib import Path
from typing import Any

from trainer.inference.errors import SyncFailed, Unavailable
from trainer.inference.vllm.api import Refused, VllmApi
from trainer.inference.vllm.deployment import Deployment
from trainer.inference.vllm.weight_patch import Digests, PatchRefused, plans_of, write
from trainer.weights import WrongBase
from trainer.weights.subscriber import Mirror

log = logging.getLogger(__name__)
EXTENSION = "--worker-extension-cls trainer.inference.vllm.extension.WeightPatches"
MAX_FAILURES = 2
"""Consecutive failed patches after which the server gets full checkpoints until it restarts."""


class WeightUpdater:
    def __init__(self, api: VllmApi, scratch: Path) -> None:
        self.api = api
        self.scratch = scratch
        self.reason = "no weights were loaded yet"
        """Why the next update is a full checkpoint; empty where changed words are overwritten in place."""
        self._held: tuple[str, Mirror] | None = None
        self._digests: Digests | None = None
        self._bare = ""
        """Why the server supports reloads only, until it restarts."""
        self._failures = 0
        self._refused = False
        """`reason` belongs to a refused patch, and stays until a patch is accepted."""

    def lost(self) -> None:
        """Reset after a certain or possible restart of the server."""
        self._held = self._digests = None
        self._bare, self._failures, self._refused = "", 0, False
        self.reason = "the server was started again"

    async def prepare(self, deployment: Deployment) -> Path:
        """Prepare everything that needs no pause: a patch staged by the workers, or a checkpoint's folder. Raises
        SyncFailed."""
        if self._held is not None and deployment.mirror is not None and self._digests is not None:
            try:
                return await self._stage(deployment, *self._held, deployment.mirror, self._digests)
            except (PatchRefused, WrongBase, Unavailable) as error:
                self._whole(deployment, str(error))
        return await self._write(deployment)

    async def apply(self, deployment: Deployment, prepared: Path) -> bool:
        """Apply during the pause. True: overwritten in place; False: a full checkpoint was loaded."""
        held, self._held = self._held, None  # until it has ended well, nobody knows
        patched = False
        if not prepared.is_dir():
            try:
                await self._overwrite(prepared)
                self._held, patched = held, True
                self._failures, self._refused, self.reason = 0, False, ""
            except (PatchRefused, Refused) as error:
                self._failures += 1
                self._whole(deployment, str(error))
                prepared = await self._write(deployment)
        if not patched:
            await self._load(deployment, prepared)
        await self.api.name(deployment.label)
        if deployment.mirror is not None:
            self._held = (deployment.label, deployment.mirror)
        return patched

    def clear(self, deployment: Deployment, prepared: Path | None) -> None:
        shutil.rmtree(self.scratch / deployment.name, ignore_errors=True)
        if prepared is not None and not prepared.is_dir():
            with contextlib.suppress(OSError):
                prepared.unlink(missing_ok=True)

    def _whole(self, deployment: Deployment, reason: str) -> None:
        self.reason, self._refused = reason, True
        log.warning("server %s gets %s as a whole checkpoint: %s", self.api.url, deployment.name, reason)

    # -- in place -------------------------------------------------------------------------------------

    async def _stage(self, deployment: Deployment, base: str, old: Mirror, new: Mirror, digests: Digests) -> Path:
        path = self.scratch / f"{deployment.label}.safetensors"

        def make() -> int:
            return write(path, old, new, base=base, target=deployment.label, digests=digests.of(new))

        try:
            changed = await asyncio.to_thread(make)
        except OSError as error:
            raise PatchRefused(f"{path} could not be written: {error.strerror or error}") from error
        answers = await self._ask("opencomposer_stage", {"path": str(path)})
        if wrong := {str(answer.get("base")) for answer in answers} - {base}:
            raise PatchRefused(f"a worker read a patch on {wrong.pop()!r}, and {base!r} was written")
        log.info("server %s has read a patch of %d words", self.api.url, changed)
        return path

    async def _overwrite(self, path: Path) -> None:
        """Apply a patch; retries once if the answer is lost, because overwriting is idempotent. Raises PatchRefused,
        Unavailable."""
        try:
            answers = await self._ask("opencomposer_apply", {"path": str(path)})
        except Refused:
            raise
        except Unavailable:
            answers = await self._ask("opencomposer_apply", {"path": str(path)})
        wrong = sorted({name for answer in answers for name in answer.get("wrong", ["no tensor named"])})
        if wrong:
            raise PatchRefused(f"after the patch {wrong[0]} (and {len(wrong) - 1} more) is not what was published")

    async def _ask(self, method: str, arguments: dict[str, str]) -> list[dict[str, Any]]:
        answers = await self.api.on_workers(method, arguments)
        for answer in answers:
            if not isinstance(answer, dict) or "error" in answer:
                said = answer["error"] if isinstance(answer, dict) else answer
                raise PatchRefused(f"{method}: {said}")
        if not answers:
            raise PatchRefused(f"{method}: no worker answered")
        return answers

    # -- whole ----------------------------------------------------------------------------------------

    async def _write(self, deployment: Deployment) -> Path:
        folder = self.scratch / deployment.name
        shutil.rmtree(folder, ignore_errors=True)
        try:
            await asyncio.to_thread(deployment.write, folder)
        except OSError as error:
            raise SyncFailed(
                f"the weights of {deployment.name!r} could not be written to {folder}: {error.strerror or error}; "
                "free space there or fix its permissions"
            ) from error
        return folder

    async def _load(self, deployment: Deployment, folder: Path) -> None:
        """Load a checkpoint through our extension where available; the extension then knows the layout."""
        self._digests = None
        if not self._bare:
            arguments = {"folder": str(folder), "label": deployment.label}
            try:
                answers = await self.api.on_workers("opencomposer_load", arguments)
            except Refused as error:
                self._bare = f"it was started without {EXTENSION} ({error})"
                self._whole(deployment, self._bare)
            else:
                if self._learned(deployment, answers):
                    return
        await self.api.load(folder)

    def _learned(self, deployment: Deployment, answers: list[Any]) -> bool:
        """Whether the workers hold the checkpoint now. Records whether they accept patches."""
        if any(not isinstance(answer, dict) or "error" in answer for answer in answers) or not answers:
            said = next((a["error"] for a in answers if isinstance(a, dict) and "error" in a), "no worker answered")
            self._whole(deployment, f"opencomposer_load: {said}")
            return False
        try:
            plans = plans_of(answers)
        except PatchRefused as error:
            self._whole(deployment, str(error))
            return True
        if self._failures >= MAX_FAILURES:
            self._whole(deployment, f"{self._failures} patches in a row failed verification (the last: {self.reason})")
        else:
            self._digests = Digests(plans)
            if not self._refused:
                self.reason = ""
        return True
