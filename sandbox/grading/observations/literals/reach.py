"""Whether a value of a test goes into a call of the product, wherever it goes before."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.grading.observations.literals.flows import PRODUCT, TITLE, Flows, Path, State
from sandbox.grading.observations.literals.nodes import Node
from sandbox.grading.observations.literals.program import Name

MAX_STEPS = 4000


class Reach:
    """Of one program. What was found out is kept."""

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self._reached: dict[State, dict[State, bool]] = {PRODUCT: {}, TITLE: {}}

    def reaches(self, node: Node, path: Path = ()) -> bool:
        """Whether a value goes into a call of the product."""
        return any(self._arrives(state, PRODUCT) for state in self._flows.climb(node, path))

    def only_names(self, node: Node, said: Callable[[Node], bool]) -> bool:
        """Whether a value goes into the names of tests, and nowhere else but where it is `said` why one fails."""
        waiting = list(self._flows.climb(node, ()))
        if not any(self._arrives(state, TITLE) for state in waiting):
            return False
        seen = set(waiting)
        while waiting and len(seen) < MAX_STEPS:
            place, path = waiting.pop()
            if (place, path) == TITLE:
                continue
            loads = place.loads if isinstance(place, Name) else [None]
            for load in loads:
                onward = list(self._flows.onward(place, path) if load is None else self._flows.climb(load, path))
                above = load.above if load is not None else None
                other = path and above is not None and above.kind in ("member", "index", "bind", "each")
                if not onward and not other and (load is None or not said(load)):
                    return False
                waiting += [state for state in onward if state not in seen]
                seen.update(onward)
        return not waiting

    def _arrives(self, first: State, goal: State) -> bool:
        reached = self._reached[goal]
        if first not in reached:
            waiting, came = [first], dict[State, State | None]({first: None})
            while waiting and len(came) < MAX_STEPS:
                state: State | None = waiting.pop()
                assert state is not None
                if state == goal or reached.get(state):
                    while state is not None:  # and all on the way
                        reached[state] = True
                        state = came[state]
                    break
                if state not in reached:
                    for other in self._flows.onward(*state):
                        if other not in came:
                            came[other] = state
                            waiting.append(other)
            else:
                reached.update(dict.fromkeys([first] if waiting else came, False))
        return reached[first]
