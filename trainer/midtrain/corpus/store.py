"""A prepared corpus: `documents.jsonl` in its order, and `provenance.json` that says where every part came from."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.tasks.spec import TaskSpec
from trainer.midtrain.corpus.clean import Cleaned, Guard, clean
from trainer.midtrain.corpus.documents import Document
from trainer.midtrain.corpus.readers import SourceUnreadable, read_source

DOCUMENTS, PROVENANCE = "documents.jsonl", "provenance.json"


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
    out: Path, sources: Sequence[Path], *, against: Sequence[TaskSpec] = (), guards: Sequence[Guard] = ()
) -> Provenance:
    """Read, clean and write a corpus; the folder is complete when `provenance.json` is there. Raises SourceUnreadable."""
    out.mkdir(parents=True, exist_ok=True)
    (out / PROVENANCE).unlink(missing_ok=True)
    report = Cleaned()
    total = hashlib.sha256()
    languages: Counter[str] = Counter()
    facts: dict[str, dict[str, Any]] = defaultdict(lambda: {"documents": 0, "characters": 0, "licences": Counter()})

    def read() -> Iterator[Document]:
        for source in sources:
            yield from read_source(source)

    with (out / DOCUMENTS).open("w", encoding="utf-8") as file:
        for document in clean(read(), against=against, report=report):
            file.write(document.model_dump_json() + "\n")
            total.update(document.digest.encode())
            languages[document.language] += 1
            one = facts[document.source]
            one["documents"] += 1
            one["characters"] += len(document.text)
            one["licences"][document.licence or "unknown"] += 1
            one["revision"] = document.revision
    kinds = {_name(source): _kind(source) for source in sources}
    made = Provenance(
        digest=total.hexdigest(),
        documents=report.kept,
        characters=sum(one["characters"] for one in facts.values()),
        languages=dict(languages.most_common()),
        sources=tuple(SourceFacts(name=name, kind=kinds[name], **one) for name, one in sorted(facts.items())),
        dropped=dict(report.dropped),
        examples=report.examples,
        guarded_tasks=len(against),
        guards=tuple(guards),
    )
    staged = out / f"{PROVENANCE}.partial"
    staged.write_text(made.model_dump_json(indent=1) + "\n", encoding="utf-8")
    staged.replace(out / PROVENANCE)
    return made


def provenance(corpus: Path) -> Provenance:
    """Raises SourceUnreadable: no corpus, or one whose preparation did not end."""
    try:
        return Provenance.model_validate_json((corpus / PROVENANCE).read_bytes())
    except (OSError, ValidationError) as error:
        raise SourceUnreadable(
            f"{corpus} holds no complete corpus; prepare it with `python -m trainer.midtrain.corpus`"
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


def _name(source: Path) -> str:
    return source.name if source.is_file() else source.resolve().name.removesuffix(".git")


def _kind(source: Path) -> str:
    if source.is_file():
        return source.suffix.removeprefix(".")
    return "git" if (source / ".git").exists() or (source / "HEAD").is_file() else "folder"
