"""A prepared dataset: `conversations.jsonl` in its order, and `provenance.json` that says where every part came from.

It is written once: a dataset that a run has learned from stays what it was.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.tasks.spec import TaskSpec
from trainer.midtrain.corpus.clean import Guard, runs, runs_of, words_of
from trainer.midtrain.corpus.readers import SourceUnreadable
from trainer.sft.conversations.conversation import Conversation, SourceFacts, Unfit
from trainer.sft.conversations.readers import digest_of, files_of, read_file

CONVERSATIONS, PROVENANCE = "conversations.jsonl", "provenance.json"
MIN_CONVERSATIONS = 10
"""With fewer there is nothing to hold out."""
SHOWN = 5


class Provenance(BaseModel):
    """What a dataset is made of; `digest` names its conversations in their order."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    digest: str
    conversations: int
    trained_messages: int
    characters: int
    sources: tuple[SourceFacts, ...]
    dropped: dict[str, int]
    """Reason → conversations."""
    examples: dict[str, list[str]]
    """Reason → the first few: where, and what was found."""
    guards: tuple[Guard, ...]
    """Suites that the dataset was kept clear of."""


def prepare(
    out: Path,
    read: Iterable[Conversation | Unfit],
    *,
    sources: Sequence[SourceFacts],
    guards: Sequence[Guard] = (),
    against: Iterable[TaskSpec] = (),
) -> Provenance:
    """Clean and write a dataset; the folder is complete when `provenance.json` is there.

    Raises SourceUnreadable: it is there already, or nothing of the sources can be trained on.
    """
    if (out / PROVENANCE).exists():
        raise SourceUnreadable(f"there is a dataset {out.name!r} already, and runs may name it; choose another name")
    out.mkdir(parents=True, exist_ok=True)
    tasks = list(against)
    guarded, bundles = runs_of(tasks), {task.bundle_hash for task in tasks}
    kept: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    seen: set[str] = set()
    total, messages, characters = hashlib.sha256(), 0, 0
    with (out / CONVERSATIONS).open("w", encoding="utf-8") as file:
        for one in read:
            found = one if isinstance(one, Unfit) else _unfit(one, seen, guarded, bundles)
            if found is not None:
                dropped[found.reason] += 1
                shown = examples.setdefault(found.reason, [])
                if len(shown) < SHOWN:
                    shown.append(f"{found.source}, {found.place}" + f": {found.detail}" * bool(found.detail))
                continue
            assert isinstance(one, Conversation), "what is unfit was dropped"
            line = one.model_dump_json()
            file.write(line + "\n")
            total.update(line.encode())
            kept[one.source] += 1
            messages += sum(message.trained for message in one.messages)
            characters += sum(map(len, one.texts()))
    made = Provenance(
        digest=total.hexdigest(),
        conversations=sum(kept.values()),
        trained_messages=messages,
        characters=characters,
        sources=tuple(source.model_copy(update={"conversations": kept[source.name]}) for source in sources),
        dropped=dict(dropped),
        examples=examples,
        guards=tuple(guards),
    )
    if made.conversations < MIN_CONVERSATIONS:
        raise SourceUnreadable(_too_few(made))
    staged = out / f"{PROVENANCE}.partial"
    staged.write_text(made.model_dump_json(indent=1) + "\n", encoding="utf-8")
    staged.replace(out / PROVENANCE)
    return made


def _unfit(one: Conversation, seen: set[str], guarded: frozenset[int], bundles: set[str]) -> Unfit | None:
    """Why it is left out: a copy, or of a task that is measured."""
    if (key := one.key) in seen:
        return Unfit(source=one.source, place=one.place, reason="duplicate")
    seen.add(key)
    if one.bundle_hash in bundles or (
        guarded and any(run in guarded for text in one.texts() for run in runs(words_of(text)))
    ):
        return Unfit(source=one.source, place=one.place, reason="contaminated", detail=one.task)
    return None


def _too_few(made: Provenance) -> str:
    why = "; ".join(f"{count} {reason} (e.g. {made.examples[reason][0]})" for reason, count in made.dropped.items())
    return (
        f"{made.conversations} conversations can be trained on, at least {MIN_CONVERSATIONS} are needed"
        f"{f'; left out: {why}' if why else ''}; add more, or mend those"
    )


def file_sources(paths: Sequence[Path]) -> list[tuple[Path, SourceFacts]]:
    """The files of these paths; those of a folder are named with it. Raises SourceUnreadable."""
    return [
        (
            file,
            SourceFacts(
                name=file.relative_to(path.parent).as_posix(),
                kind=file.suffix.removeprefix("."),
                digest=digest_of(file),
            ),
        )
        for path in paths
        for file in files_of(path)
    ]


def read_sources(found: Sequence[tuple[Path, SourceFacts]]) -> Iterable[Conversation | Unfit]:
    """Raises SourceUnreadable."""
    for file, facts in found:
        yield from read_file(file, facts.name)


def provenance(folder: Path) -> Provenance:
    """Raises SourceUnreadable: no dataset, or one whose preparation did not end."""
    try:
        return Provenance.model_validate_json((folder / PROVENANCE).read_bytes())
    except (OSError, ValidationError) as error:
        raise SourceUnreadable(
            f"{folder.name!r} is no complete dataset; prepare it on the page Datasets or with `opencomposer datasets create`"
        ) from error


def conversations(folder: Path) -> list[Conversation]:
    """All of them, proven against the digest. Raises SourceUnreadable."""
    said = provenance(folder)
    total, read = hashlib.sha256(), []
    try:
        with (folder / CONVERSATIONS).open(encoding="utf-8") as file:
            for line in file:
                total.update(line.rstrip("\n").encode())
                read.append(Conversation.model_validate(json.loads(line)))
    except (OSError, ValueError) as error:
        raise SourceUnreadable(f"dataset {folder.name!r} cannot be read: {error}; prepare it anew") from error
    if total.hexdigest() != said.digest:
        raise SourceUnreadable(f"dataset {folder.name!r} is not what its {PROVENANCE} describes; prepare it anew")
    return read
