"""The environments table."""

from __future__ import annotations

from typing import ClassVar

import django_tables2 as tables

from composer_web.repositories.models import Environment
from composer_web.ui.tables import STRONG, AgoColumn, NumberColumn, StateColumn, Table
from composer_web.ui.templatetags import ui


class EnvironmentTable(Table):
    help: ClassVar = {
        "source": "Package or repository that was installed.",
        "tests": "Tests of the repository that the build ran.",
        "bytes": "Disk that the environment takes.",
        "digest": "Hash of the environment. Equal digests: equal files.",
    }
    name = tables.Column(linkify=("repositories:detail", {"pk": tables.A("pk")}), attrs=STRONG)
    source = tables.Column()
    state = StateColumn("environment")
    tests = NumberColumn(accessor="detail__tests", orderable=False, verbose_name="Tests")
    bytes = tables.Column(
        accessor="detail__bytes", orderable=False, verbose_name="Size", attrs={"td": {"class": "num"}}
    )
    digest = tables.Column(default="–")
    updated_at = AgoColumn(verbose_name="Changed")

    empty_template = "repositories/empty.html"

    class Meta:
        model = Environment
        fields = ("name", "source", "state", "tests", "bytes", "digest", "updated_at")

    def render_bytes(self, value: int) -> str:
        return ui.size(value)

    def render_digest(self, value: str) -> str:
        return ui.short(value, 12)
