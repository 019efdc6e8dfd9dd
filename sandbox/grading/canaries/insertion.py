"""Insert mutated siblings into hidden test files, under random names and in random positions."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from sandbox.grading.canaries.base import Block, Language, Place, SiblingTest
from sandbox.grading.canaries.literals import NEUTRAL_WORDS, words_of

MAX_SOURCE_BYTES = 512 << 10
MAX_BLOCK_BYTES = 8 << 10
FILE_NAME = re.compile(r"(?P<head>(test_|tests_)?)(?P<stem>.*?)(?P<tail>([._-](test|tests|spec))?(\.[A-Za-z0-9]+)+)")


@dataclass(frozen=True, slots=True)
class Renaming:
    """What of the tests' own names may be changed without breaking them (found out with the oracle's work)."""

    files: bool
    names: bool


@dataclass(frozen=True, slots=True)
class PreparedSuite:
    """What to write into the clean sandbox and what to expect of the run."""

    files: dict[str, bytes]
    ids: dict[str, str]
    """Expected id → the id under which it runs."""
    must_fail: frozenset[str]
    decoys: frozenset[str]
    """Ids of siblings that pass: they run, and are not looked at."""
    siblings: tuple[tuple[SiblingTest, str], ...]
    """Each sibling with its id up to the suffix."""

    def shuffled(self, draw: random.Random) -> tuple[str, ...]:
        """Every id to run, in an order that says nothing."""
        every = sorted({*self.ids.values(), *self.must_fail, *self.decoys})
        draw.shuffle(every)
        return tuple(every)


@dataclass(slots=True)
class _File:
    path: str
    new_path: str
    source: bytes
    blocks: list[Block]
    renamed: dict[tuple[str, ...], str] = field(default_factory=dict)
    """Names of a block → its new own name."""
    given: set[str] = field(default_factory=set)
    """Names drawn so far, shared by the files of one `where`."""


def insert_canaries(
    language: Language,
    files: Mapping[str, str],
    expected: Collection[str],
    siblings: Sequence[SiblingTest],
    *,
    renaming: Renaming,
    draw: random.Random,
) -> PreparedSuite:
    """Insert canaries into `files` (path → pristine text). Files without an expected test or a sibling stay as they are."""
    places = {test_id: language.parse(test_id) for test_id in expected}
    known = _files(language, files, {place.where for place in places.values()}, renaming, draw)
    if renaming.names:
        _name_anew(language, known, places.values(), draw)
    chosen = [
        (sibling, known[sibling.path], _sibling_name(language, known[sibling.path], sibling, draw))
        for sibling in siblings
    ]
    written = {path: text.encode() for path, text in files.items() if path not in known}
    for file in known.values():
        members = [(sibling, name) for sibling, at, name in chosen if at is file]
        written[file.new_path] = _write(file, members, draw)
    heads = {
        id(sibling): language.identify(Place(language.where(file.new_path), (*sibling.names[:-1], name), ""))
        for sibling, file, name in chosen
    }
    return PreparedSuite(
        files=written,
        ids={test_id: _moved(language, place, known) for test_id, place in places.items()},
        must_fail=frozenset(heads[id(sibling)] + suffix for sibling in siblings for suffix in sibling.failing),
        decoys=frozenset(heads[id(sibling)] + suffix for sibling in siblings for suffix in sibling.passing),
        siblings=tuple((sibling, heads[id(sibling)]) for sibling in siblings),
    )


def blocks_of(language: Language, source: bytes) -> list[Block]:
    """The tests of a file; none of one so large that looking for them would take long."""
    return language.blocks(source) if len(source) <= MAX_SOURCE_BYTES else []


def blocks_by_name(language: Language, source: bytes) -> dict[tuple[str, ...], bytes]:
    """Names → text of the tests of a file whose names are theirs alone and whose text is not too long to look at."""
    found: dict[tuple[str, ...], list[Block]] = {}
    for block in blocks_of(language, source):
        found.setdefault(block.names, []).append(block)
    alone = {names: same[0] for names, same in found.items() if len(same) == 1}
    return {names: source[b.start : b.end] for names, b in alone.items() if b.end - b.start <= MAX_BLOCK_BYTES}


def _files(
    language: Language, files: Mapping[str, str], wheres: Collection[str], renaming: Renaming, draw: random.Random
) -> dict[str, _File]:
    """The files that hold expected tests, with the paths they are written to."""
    known: dict[str, _File] = {}
    given: dict[str, set[str]] = {}
    taken = set(files)
    for path, text in files.items():
        if language.where(path) not in wheres:
            continue
        source = text.encode()
        blocks = blocks_of(language, source)
        new_path = _file_name(path, taken, files.values(), draw) if renaming.files else path
        taken.add(new_path)
        known[path] = _File(path, new_path, source, blocks, given=given.setdefault(language.where(path), set()))
    for file in known.values():
        file.given.update(block.names[-1] for block in file.blocks)
    return known


def _file_name(path: str, taken: Collection[str], texts: Collection[str], draw: random.Random) -> str:
    """A new path, with a stem that no other path and no text contains: a module of that name may be loaded from beside it.

    It has several words, as files of the checkout that are not among the hidden ones are unlikely to have.
    """
    pure = PurePosixPath(path)
    match = FILE_NAME.fullmatch(pure.name)
    if match is None:
        return path
    while True:
        stem = "_".join(draw.choice(NEUTRAL_WORDS) for _ in range(draw.randint(2, 3)))
        if not any(stem in other for other in (*taken, *texts)):
            return str(pure.with_name(f"{match['head']}{stem}{match['tail']}"))


def _name_anew(language: Language, known: Mapping[str, _File], places: Collection[Place], draw: random.Random) -> None:
    """Draw new names for the expected tests whose names are used nowhere else."""
    for file in known.values():
        here = [place for place in places if place.where == language.where(file.path)]
        written = [block.names for block in file.blocks]
        # A test without a block of its own (inherited, generated) would lose its name with another's.
        fixed = {place.names[-1] for place in here if place.names and place.names not in written}
        for names in sorted({place.names for place in here if place.names in written}):
            if len(re.findall(language.spelling(names[-1]), file.source)) == 1 and names[-1] not in fixed:
                file.renamed[names] = _fresh(language, file, names[-1], draw, NEUTRAL_WORDS)


def _sibling_name(language: Language, file: _File, sibling: SiblingTest, draw: random.Random) -> str:
    """Made of the same words as the name of the test that the sibling stands beside: of its own where that kept its name."""
    own = words_of([block.names[-1] for block in file.blocks])
    return _fresh(language, file, sibling.names[-1], draw, NEUTRAL_WORDS if sibling.names in file.renamed else own)


def _fresh(language: Language, file: _File, name: str, draw: random.Random, words: Sequence[str]) -> str:
    while True:
        new = language.rename(name, words, draw)
        if new not in file.given and not re.search(language.spelling(new), file.source):
            file.given.add(new)
            return new


def _write(file: _File, siblings: Sequence[tuple[SiblingTest, str]], draw: random.Random) -> bytes:
    """The file with its blocks renamed and each sibling in a drawn place: any member of a cluster may come first."""
    at: dict[int, list[bytes]] = {}
    for index, block in enumerate(file.blocks):
        own = file.source[block.start : block.end]
        members = [_named(own, block, file.renamed.get(block.names))]
        for sibling, name in siblings:
            if sibling.names == block.names:
                members.append(_sibling_text(own, block, sibling, name))
        draw.shuffle(members)
        at.setdefault(index, []).insert(0, members[0])
        later = [i for i, other in enumerate(file.blocks) if i >= index and other.scope == block.scope]
        for member in members[1:]:
            at.setdefault(draw.choice(later), []).append(member)
    out = bytearray()
    position = 0
    for index, block in enumerate(file.blocks):
        gap = b"\n" if file.source[block.start : block.start + 1] in (b" ", b"\t") else b"\n\n"
        out += file.source[position : block.start]
        out += gap.join(text if text.endswith(b"\n") else text + b"\n" for text in at[index])
        position = block.end
    return bytes(out + file.source[position:])


def _named(text: bytes, block: Block, name: str | None) -> bytes:
    return (
        text if name is None else _edited(text, [(block.name_start - block.start, block.name_end - block.start, name)])
    )


def _sibling_text(text: bytes, block: Block, sibling: SiblingTest, name: str) -> bytes:
    start, end = block.name_start - block.start, block.name_end - block.start
    return _edited(text, [(start, end, name), (sibling.start, sibling.end, sibling.text)])


def _edited(text: bytes, edits: Sequence[tuple[int, int, str]]) -> bytes:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new.encode() + text[end:]
    return text


def _moved(language: Language, place: Place, known: Mapping[str, _File]) -> str:
    """The id under which an expected test runs. With several files of one `where`, the one that has the block."""
    files = [file for file in known.values() if language.where(file.path) == place.where]
    for file in files:
        if place.names in file.renamed:
            names = (*place.names[:-1], file.renamed[place.names])
            return language.identify(replace(place, where=language.where(file.new_path), names=names))
    if files:
        holder = next((f for f in files if any(b.names == place.names for b in f.blocks)), files[0])
        return language.identify(replace(place, where=language.where(holder.new_path)))
    return language.identify(place)
