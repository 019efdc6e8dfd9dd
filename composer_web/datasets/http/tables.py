"""The table of datasets."""

from __future__ import annotations

from typing import ClassVar

import django_tables2 as tables

from composer_web.datasets.models import Dataset
from composer_web.ui.tables import STRONG, AgoColumn, NumberColumn, StateColumn, Table


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
