"""The embedded server with its weights, keys and values on the double of a device: `--device` of the real one stands for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from tests.trainer.other_device import other_device, within
from trainer.inference.embedded.serving import server
from trainer.inference.embedded.serving.thread import EngineThread

run, to_thread = EngineThread.serve, asyncio.to_thread


def engine_thread(thread: EngineThread) -> None:
    with within():
        run(thread)


async def other_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    def there() -> Any:
        with within():
            return work(*arguments)

    return await to_thread(there)


if __name__ == "__main__":
    with (
        other_device() as device,
        patch.object(server, "place", lambda *_: device),
        patch.object(EngineThread, "serve", engine_thread),
        patch("asyncio.to_thread", other_thread),
    ):
        server.main()
