"""Full-text search over all trajectories. Postgres indexes the words of each trajectory when it is recorded.

Words are runs of letters, digits and underscores, case-insensitive and not stemmed, because code is searched verbatim.
Strings with punctuation (`helpers/m3.py`, `a->b`) are searched as a phrase of their words: text and query are tokenized
the same way. A very long rollout is indexed in part, and the number of omitted characters is stored with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from django.contrib.postgres.search import SearchQuery
from django.db import connection
from django.db.models import QuerySet

from composer_web.rollouts.models import Rollout, RolloutText
from composer_web.rollouts.trajectory.transcript import as_text
from trainer.types import Trajectory

MAX = 100_000
"""Maximum indexed characters per rollout, well below the limit of one tsvector (1 MiB)."""
LONGEST = 200
"""Maximum characters of a query."""

WORDS = re.compile(r"\w+")
PIECES = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')


def text_of(trajectory: Trajectory) -> tuple[str, int]:
    """Text to index, the policy's output before its input, and the number of omitted characters."""
    parts, room, missing = [], MAX, 0
    for part in _parts(trajectory):
        words = " ".join(WORDS.findall(part[: 4 * room])) if room > 0 else ""
        missing += max(0, len(part) - 4 * room) if room > 0 else len(part)
        missing += max(0, len(words) - room)
        parts.append(words[:room])
        room -= len(words) + 1
    return " ".join(parts), missing


def _parts(trajectory: Trajectory) -> Iterator[str]:
    yield trajectory.task_id
    for turn in trajectory.turns:
        yield turn.text
    yield trajectory.patch
    yield trajectory.report.cause
    for message in trajectory.messages:
        yield as_text(message.get("content", ""))
    for turn in trajectory.turns:
        for call in turn.calls:
            yield f"{call.name} {as_text(call.arguments)}"
        for result in turn.results:
            yield result.output


def index(rows: Sequence[tuple[int, Trajectory]]) -> None:
    """Index the words of rollouts, by id. Existing entries are replaced."""
    texts = [(pk, *text_of(trajectory)) for pk, trajectory in rows]
    if not texts:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO rollouts_rollouttext (rollout_id, words, missing) "
            "SELECT id, to_tsvector('simple', body), missing "
            "FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS given (id, body, missing) "
            "ON CONFLICT (rollout_id) DO UPDATE SET words = EXCLUDED.words, missing = EXCLUDED.missing",
            [[row[0] for row in texts], [row[1] for row in texts], [row[2] for row in texts]],
        )


def parse(text: str) -> str:
    """The query in the syntax of `websearch_to_tsquery`: words, "phrases", OR, and -without."""
    pieces = []
    for minus, phrase, word in PIECES.findall(text[:LONGEST]):
        if word.upper() == "OR":
            pieces.append("or")
            continue
        words = WORDS.findall(phrase or word)
        if words:
            pieces.append(f'{minus}"{" ".join(words)}"')
    return " ".join(pieces)


def holding(query: QuerySet[Rollout], text: str) -> QuerySet[Rollout]:
    """Rollouts that match the query; none if it contains no word."""
    parsed = parse(text)
    if not parsed:
        return query.none()
    search = SearchQuery(parsed, search_type="websearch", config="simple")
    return query.filter(pk__in=RolloutText.objects.filter(words=search).values("pk"))


def first_words(text: str) -> str:
    """First phrase or word of a query, to search for inside a matching trajectory."""
    for minus, phrase, word in PIECES.findall(text[:LONGEST]):
        if not minus and (phrase or word) and word.upper() != "OR":
            return str(phrase or word)
    return ""
