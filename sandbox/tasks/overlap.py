"""Near-duplicates among tasks, and tasks for training that lie too close to held-out ones: MinHash over their content.

What is compared of a task is what there is to learn from it: the words of its instruction, and the lines that the oracle
changes with those around them. Templates of instructions are the same in many tasks, so words alone make no duplicate.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rensa import RMinHash, RMinHashLSH

from sandbox.errors import TaskInvalid
from sandbox.tasks.spec import BuiltEnvironment, SuiteVerifier, TaskSpec

PERMUTATIONS = 128
BANDS = 32
"""With 4 rows each, two documents that share 0.7 of their shingles meet in a band with probability 0.9998."""
THRESHOLD = 0.7
"""Share of common shingles from which two tasks are nearly the same."""
SHINGLE = 4
CONTEXT = 6
"""Lines around a change that belong to it."""
SEED = 20_260
Pristine = Callable[[TaskSpec, str], str]
"""The text of a file as the task begins with it, "" where there is none."""


class TasksOverlap(TaskInvalid):
    """Tasks of training are nearly the same as held-out ones, or two of a suite nearly the same as each other."""


@dataclass(frozen=True, slots=True)
class Pair:
    first: str
    second: str
    """Task ids."""
    share: float
    """Estimated share of shingles in common; 1 for the same change."""
    why: str

    def __str__(self) -> str:
        return f"{self.first} and {self.second}: {self.why}"


@dataclass(frozen=True, slots=True)
class Print:
    """What a task is compared by."""

    id: str
    shingles: tuple[str, ...]
    change: str
    """Digest of the normalised change; equal for the same change under another name of task."""
    place: str
    """Family: one place of one package belongs to one side."""


def print_of(task: TaskSpec, pristine: Pristine) -> Print:
    changed: list[str] = []
    normal: list[str] = []
    for path, text in sorted(task.gold.items()):
        before = pristine(task, path)
        lines, both = _around_change(before, text)
        changed += lines
        normal += [path, *both]
    verifier = task.verifier
    tests = sorted(verifier.fail_to_pass) if isinstance(verifier, SuiteVerifier) else [str(verifier.cases)]
    words = _words(" ".join(changed)) or _words(task.instruction)
    digest = hashlib.sha256("\n".join((*normal, *tests)).encode()).hexdigest()
    place = task.family if task.source != "procedural" else ""
    return Print(task.id, tuple(_shingles(words)), digest, place)


def _around_change(before: str, after: str) -> tuple[list[str], list[str]]:
    """(changed lines with their neighbourhood, the changed lines alone), without layout."""
    old, new = ([" ".join(line.split()) for line in text.split("\n")] for text in (before, after))
    around: list[str] = []
    exact: list[str] = []
    for tag, i, j, k, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            around += new[max(0, k - CONTEXT) : end + CONTEXT]
            exact += [*(f"-{line}" for line in old[i:j]), *(f"+{line}" for line in new[k:end])]
    return around, exact


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text.lower())


def _shingles(words: Sequence[str]) -> Iterator[str]:
    for at in range(max(1, len(words) - SHINGLE + 1)):
        yield " ".join(words[at : at + SHINGLE])


class Index:
    """Prints by content; asks for what lies near another."""

    def __init__(self) -> None:
        self._lsh = RMinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS, num_bands=BANDS)
        self._known: list[tuple[Print, RMinHash]] = []
        self._changes: dict[str, int] = {}
        self._places: dict[str, int] = {}

    def add(self, one: Print) -> None:
        key = len(self._known)
        hashed = _hashed(one)
        self._known.append((one, hashed))
        self._lsh.insert(key, hashed)
        self._changes.setdefault(one.change, key)
        for place in _places(one):
            self._places.setdefault(place, key)

    def near(self, one: Print, *, places: bool = False) -> Pair | None:
        """The nearest of those that are too near, with the reason; `places` also refuses another task of the same place."""
        if (same := self._changes.get(one.change)) is not None:
            return Pair(one.id, self._known[same][0].id, 1.0, "the same change and the same tests")
        if places:
            for place in _places(one):
                if (same := self._places.get(place)) is not None:
                    return Pair(one.id, self._known[same][0].id, 1.0, f"both are about {place}")
        hashed = _hashed(one)
        best: Pair | None = None
        for key in self._lsh.query(hashed):
            other, its = self._known[key]
            share = hashed.jaccard(its)
            if share >= THRESHOLD and (best is None or share > best.share):
                best = Pair(one.id, other.id, share, f"{share:.0%} of the changed code is the same")
        return best


def _places(one: Print) -> list[str]:
    return [place for place in one.place.split("+") if place]


def _hashed(one: Print) -> RMinHash:
    made = RMinHash(num_perm=PERMUTATIONS, seed=SEED)
    made.update(list(one.shingles))
    return made


def duplicates(prints: Iterable[Print]) -> list[Pair]:
    """Tasks of one suite that are nearly the same as one before them."""
    index, found = Index(), []
    for one in prints:
        if (pair := index.near(one)) is not None:
            found.append(pair)
        else:
            index.add(one)
    return found


def overlap(training: Iterable[Print], held_out: Iterable[Print]) -> list[Pair]:
    """Tasks for training that are nearly the same as held-out ones, or are about the same place."""
    index = Index()
    for one in held_out:
        index.add(one)
    return [pair for one in training if (pair := index.near(one, places=True)) is not None]


def refuse(pairs: Sequence[Pair], what: str) -> None:
    """Raises TasksOverlap that names the first pairs."""
    if pairs:
        more = f" (and {len(pairs) - 3} more)" if len(pairs) > 3 else ""
        named = "; ".join(str(pair) for pair in pairs[:3])
        raise TasksOverlap(f"{what}: {named}{more}", remedy="Leave one of each out, or make them with another seed")


def built_pristine(read: Callable[[str, str], str]) -> Pristine:
    """How tasks begin, where `read` gives a file of a built environment by digest and path."""

    def begin(task: TaskSpec, path: str) -> str:
        environment = task.environment
        if isinstance(environment, BuiltEnvironment):
            return environment.overrides[path] if path in environment.overrides else read(environment.digest, path)
        return environment.files.get(path, "")

    return begin
