"""What datasets and corpora are asked for by, the same for page, API and command."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from ninja import Schema
from pydantic import Field

from composer_web.api.schemas import Body

NAME = r"^\w[\w.-]{0,79}$"
MAX_ROLLOUTS = 100_000


class Wanted(Body):
    """Sources of a dataset, and suites to decontaminate against."""

    folder: str = Field(default="", max_length=400, description="File or folder below the data folder's `incoming`")
    rollouts: str = Field(
        default="",
        max_length=2000,
        description="Filters as the list of rollouts has them, and `suite`: run=12&reward_min=1&suite=train",
    )
    most: int = Field(default=MAX_ROLLOUTS, gt=0, le=MAX_ROLLOUTS, description="Most rollouts, the newest first")
    suites: list[str] | None = Field(
        default=None, description="Suites to decontaminate against; all that are held out or benchmarks when not given"
    )


class DatasetIn(Wanted):
    name: str = Field(pattern=NAME, description="Unused so far; runs name it in `stage.dataset`")


class CorpusWanted(Body):
    """Sources of a corpus, and suites to decontaminate against."""

    sources: list[Annotated[str, Field(min_length=1, max_length=400)]] = Field(
        default=[],
        max_length=50,
        description="`repository:NAME` (its commit at HEAD), `environment:NAME`, or a file or folder below the data folder's "
        "`incoming`",
    )
    suites: list[str] | None = Field(
        default=None, description="Suites to decontaminate against; all that are held out or benchmarks when not given"
    )


class CorpusIn(CorpusWanted):
    name: str = Field(pattern=NAME, description="Unused so far in this installation; runs name it in `stage.corpus`")


class CorpusOut(Schema):
    name: str
    state: str
    documents: int
    characters: int
    dropped: int
    installed: bool = Field(description="Prepared by `manage.py corpus`, for every project")
    wanted: dict[str, Any]
    provenance: dict[str, Any] | None
    cause: str
    created_at: datetime
    finished_at: datetime | None


class DatasetOut(Schema):
    id: int
    name: str
    state: str
    conversations: int
    dropped: int
    wanted: dict[str, Any]
    provenance: dict[str, Any] | None
    cause: str
    created_at: datetime
    finished_at: datetime | None
