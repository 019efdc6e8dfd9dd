"""A filter by a row that people know by its name and links by its number, such as the run of a list."""

from __future__ import annotations

from typing import Any

import django_filters as filters
from django import forms
from django.apps import apps
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.urls import reverse_lazy
from django.utils.html import format_html
from django.utils.safestring import SafeString

from composer_web.core.numbers import ROW_ID, whole

LISTED = 5
"""Rows that an error names where several match."""


class NamedWidget(forms.TextInput):
    """A text field with names to choose from, fetched when it gets the focus."""

    def __init__(self, names: Any) -> None:
        super().__init__(attrs={"autocomplete": "off", "placeholder": "name or number", "maxlength": 200})
        self.names = names

    def render(self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None) -> SafeString:
        listed = f"{name}-names"
        field = super().render(name, value, {**(attrs or {}), "list": listed}, renderer)
        return format_html(
            '{}<datalist id="{}" hx-get="{}" hx-trigger="focusin from:closest label once" hx-swap="innerHTML"></datalist>',
            field,
            listed,
            self.names,
        )


class NamedField(forms.CharField):
    """The id of the row whose number or name is given, whole or in part. What several rows match is refused."""

    def __init__(self, *, model: str, names: str, **kwargs: Any) -> None:
        super().__init__(widget=NamedWidget(reverse_lazy(names)), **kwargs)
        self.model_label = model

    @property
    def rows(self) -> QuerySet[Model]:
        model: type[Model] = apps.get_model(self.model_label)
        return model._default_manager.all()

    def clean(self, value: Any) -> int | None:
        text = str(super().clean(value) or "").strip()
        if not text:
            return None
        number = whole(text.removeprefix("#"), digits=ROW_ID)
        if number is not None:
            return number
        noun = self.model_label.rpartition(".")[2].lower()
        for how in ("name__iexact", "name__icontains"):
            found = list(self.rows.filter(**{how: text}).order_by("-pk").values_list("pk", flat=True)[: LISTED + 1])
            if len(found) == 1:
                return int(found[0])
            if found:
                numbers = ", ".join(f"#{pk}" for pk in found[:LISTED]) + (" and more" if len(found) > LISTED else "")
                raise ValidationError(f"{text!r} is in the name of several {noun}s: {numbers}; give the number of one")
        raise ValidationError(
            f"no {noun} has the number or name {text!r}; choose one of the names that the field offers"
        )

    def told(self, value: str) -> str:
        """The row's name, for the chip of a filter in force."""
        number = whole(value.removeprefix("#"), digits=ROW_ID)
        return value if number is None else str(self.rows.filter(pk=number).first() or value)


class NamedFilter(filters.Filter):
    """Rows whose `field_name` is the id of what is named. `model` is its label, `names` the address of names to choose from."""

    field_class = NamedField


RUN = {"model": "runs.Run", "names": "runs:names"}
"""Arguments of a filter by run."""
