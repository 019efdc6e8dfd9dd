"""Saved views of the runs table: filters, order and columns."""

from __future__ import annotations

from composer_web.runs.filters import RunFilter
from composer_web.runs.models import SavedView
from composer_web.ui.saved_views import Shelf

SHELF = Shelf(SavedView, "view", (*RunFilter.base_filters, "sort", "cols"))
clean, views_for, save_view, delete_view = SHELF.clean, SHELF.of, SHELF.save, SHELF.delete
