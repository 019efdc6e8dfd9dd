"""Engine affinity: a request goes to the engine with its session's keys, else its prompt's, else to the least loaded
one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from trainer.inference.contract import GenerateRequest

REMEMBERED = 65536
SLACK = 8
"""Requests by which an engine may exceed the least loaded one and still attract requests for its cached keys."""


class Loaded(Protocol):
    @property
    def running(self) -> set: ...


M = TypeVar("M", bound=Loaded)


class Affinity(Generic[M]):
    """Stores the last engine of each session and of each prompt; both tables are bounded."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._places: OrderedDict[tuple[str, object], M] = OrderedDict()

    def choose(self, request: GenerateRequest, replicas: Sequence[M]) -> M:
        """Choose one of `replicas`, which must not be empty. A group shares its prompt, and so its keys."""
        least = min(replicas, key=lambda replica: len(replica.running))
        chosen = least
        for place in _places(request):
            known = self._places.get(place)
            if known is not None and known in replicas:
                session = place[0] == "session"
                if session or len(known.running) <= len(least.running) + SLACK:
                    chosen = known
                    break
        for place in _places(request):
            self._places[place] = chosen
            self._places.move_to_end(place)
        while len(self._places) > self._remembered:
            self._places.popitem(last=False)
        return chosen

    def place(self, deployment: str, session: str) -> M | None:
        """The engine that the session's last request went to."""
        return self._places.get(("session", (deployment, session)))

    def forget(self, replica: M) -> None:
        """Remove an engine that is gone with all its keys."""
        for place in [place for place, known in self._places.items() if known is replica]:
            del self._places[place]


def _places(request: GenerateRequest) -> list[tuple[str, object]]:
    prompt: tuple[str, object] = ("prompt", (request.deployment, hash(tuple(request.prompt_ids))))
    if request.session is None:
        return [prompt]
    return [("session", (request.deployment, request.session)), prompt]
