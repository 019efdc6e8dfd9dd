"""The tables of datasets and corpora."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import django_tables2 as tables

from composer_web.datasets.models import Corpus, Dataset
from composer_web.ui.tables import STRONG, AgoColumn, NumberColumn, StateColumn, Table

SHOWN = 3


class DatasetTable(Table):
    help: ClassVar = {
        "conversations": "Conversations to train on.",
        "dropped": "Conversations left out: duplicates, filtered ones, and those too close to measured tasks.",
    }
    name = tables.Column(linkify=("datasets:detail", {"pk": tables.A("pk")}), attrs=STRONG)
    state = StateColumn("dataset")
    conversations = NumberColumn()
    dropped = NumberColumn(verbose_name="Left out")
    created_by = tables.Column(accessor="created_by__username", default="–", verbose_name="Created by", orderable=False)
    created_at = AgoColumn(verbose_name="Created")

    empty_template = "datasets/empty.html"

    class Meta:
        model = Dataset
        fields = ("name", "state", "conversations", "dropped", "created_by", "created_at")


class CorpusTable(Table):
    """A table of a list: corpora of the installation have no row."""

    help: ClassVar = {
        "documents": "Documents to train on.",
        "characters": "Characters of all documents.",
        "dropped": "Documents left out: duplicates, and those too close to measured tasks.",
        "sources": "Where the documents come from.",
        "languages": "Languages of the documents, by the ends of their names.",
    }

    name = tables.Column(linkify=("datasets:corpus", {"name": tables.A("name")}), attrs=STRONG)
    state = StateColumn("dataset")
    documents = NumberColumn()
    characters = NumberColumn()
    languages = tables.Column(accessor="provenance__languages", default="–", orderable=False)
    sources = tables.Column(accessor="provenance__sources", default="–", orderable=False)
    dropped = NumberColumn(verbose_name="Left out")
    created_by = tables.Column(accessor="created_by__username", default="–", verbose_name="Created by", orderable=False)
    created_at = AgoColumn(verbose_name="Created")

    empty_template = "datasets/no_corpora.html"

    class Meta:
        model = Corpus
        fields = (
            *(
                "name",
                "state",
                "documents",
                "characters",
                "languages",
                "sources",
                "dropped",
                "created_by",
                "created_at",
            ),
        )

    def render_languages(self, value: dict[str, int]) -> str:
        return _first(value)

    def render_sources(self, value: list[dict[str, str]]) -> str:
        return _first([source["name"] for source in value])


def _first(names: Collection[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(list(names)[:SHOWN]) + (f" and {more} more" if more > 0 else "")
