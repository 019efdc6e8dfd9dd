"""A prepared corpus: `documents.jsonl` in its order, and `provenance.json` that says where every part came from."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.tasks.spec import TaskSpec
from trainer.midtrain.corpus.clean import Cleaned, Guard, clean
from trainer.midtrain.corpus.documents import Document
from trainer.midtrain.corpus.readers import SourceUnreadable, is_git, read_source

DOCUMENTS, PROVENANCE = "documents.jsonl", "provenance.json"
MAX_KINDS = 100
"""Languages, and licences of a source, that the provenance counts one by one."""


@dataclass(frozen=True, slots=True)
class Source:
    """A place to read, and what it does not say itself: how it is named, its commit and its licence."""

    path: Path
    name: str = ""
    revision: str = ""
    licence: str = ""

    @property
    def title(self) -> str:
        path = self.path if self.path.is_file() else self.path.resolve()
        return self.name or (path.name if path.is_file() else path.name.removesuffix(".git"))

    @property
    def kind(self) -> str:
        if self.path.is_file():
            return self.path.suffix.removeprefix(".")
        return "git" if is_git(self.path) else "folder"

    def read(self) -> Iterator[Document]:
        """Raises SourceUnreadable."""
        for document in read_source(self.path):
            yield document.model_copy(
                update={
                    "source": self.title,
                    "revision": document.revision or self.revision,
                    "licence": document.licence or self.licence,
                }
            )


class SourceFacts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    kind: str
    revision: str = ""
    documents: int
    characters: int
    licences: dict[str, int]


class Provenance(BaseModel):
    """What a corpus is made of; `digest` names its documents in their order."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    digest: str
    documents: int
    characters: int
    languages: dict[str, int]
    """Language → documents."""
    sources: tuple[SourceFacts, ...]
    dropped: dict[str, int]
    examples: dict[str, list[str]]
    guarded_tasks: int
    """Tasks that the corpus was kept clear of."""
    guards: tuple[Guard, ...] = ()
    """Suites that these tasks are of, where they came from a suite."""


def prepare(
    out: Path,
    sources: Sequence[Path | Source],
    *,
    against: Iterable[TaskSpec] = (),
    guards: Sequence[Guard] = (),
    look: Callable[[], None] = lambda: None,
) -> Provenance:
    """Read, clean and write a corpus; the folder is complete when `provenance.json` is there. `look` is called between
    documents and may raise. Raises SourceUnreadable."""
    places = [source if isinstance(source, Source) else Source(source) for source in sources]
    tasks = list(against)
    out.mkdir(parents=True, exist_ok=True)
    (out / PROVENANCE).unlink(missing_ok=True)
    report = Cleaned()
    total = hashlib.sha256()
    languages: Counter[str] = Counter()
    facts: dict[str, dict[str, Any]] = defaultdict(lambda: {"documents": 0, "characters": 0, "licences": Counter()})

    def read() -> Iterator[Document]:
        for place in places:
            for document in place.read():
                look()
                yield document

    with (out / DOCUMENTS).open("w", encoding="utf-8") as file:
        for document in clean(read(), against=tasks, report=report):
            file.write(document.model_dump_json() + "\n")
            total.update(document.digest.encode())
            languages[document.language] += 1
            one = facts[document.source]
            one["documents"] += 1
            one["characters"] += len(document.text)
            one["licences"][document.licence or "unknown"] += 1
            one["revision"] = document.revision
    kinds = {place.title: place.kind for place in places}
    if not report.kept:
        dropped = ", ".join(f"{count} {reason}" for reason, count in report.dropped.items())
        raise SourceUnreadable(f"no document is left{f' ({dropped} left out)' * bool(dropped)}; add sources with text")
    made = Provenance(
        digest=total.hexdigest(),
        documents=report.kept,
        characters=sum(one["characters"] for one in facts.values()),
        languages=_commonest(languages),
        sources=tuple(
            SourceFacts(name=name, kind=kinds[name], **{**one, "licences": _commonest(one["licences"])})
            for name, one in sorted(facts.items())
        ),
        dropped=dict(report.dropped),
        examples=report.examples,
        guarded_tasks=len(tasks),
        guards=tuple(guards),
    )
    staged = out / f"{PROVENANCE}.partial"
    staged.write_text(made.model_dump_json(indent=1) + "\n", encoding="utf-8")
    staged.replace(out / PROVENANCE)
    return made


def _commonest(counts: Counter[str]) -> dict[str, int]:
    """The most common first; all beyond `MAX_KINDS` are one."""
    found = dict(counts.most_common(MAX_KINDS))
    if rest := counts.total() - sum(found.values()):
        found["others"] = found.get("others", 0) + rest
    return found


def provenance(corpus: Path) -> Provenance:
    """Raises SourceUnreadable: no corpus, or one whose preparation did not end."""
    try:
        return Provenance.model_validate_json((corpus / PROVENANCE).read_bytes())
    except (OSError, ValidationError) as error:
        raise SourceUnreadable(
            f"{corpus} holds no complete corpus; prepare it on the page Corpora or with `opencomposer corpora create`"
        ) from error


def documents(corpus: Path) -> list[Document]:
    """All documents, proven against the digest. Raises SourceUnreadable."""
    said = provenance(corpus)
    total, read = hashlib.sha256(), []
    with (corpus / DOCUMENTS).open(encoding="utf-8") as file:
        for line in file:
            read.append(Document.model_validate(json.loads(line)))
            total.update(read[-1].digest.encode())
    if total.hexdigest() != said.digest:
        raise SourceUnreadable(f"{corpus / DOCUMENTS} is not what {PROVENANCE} describes; prepare the corpus again")
    return read
