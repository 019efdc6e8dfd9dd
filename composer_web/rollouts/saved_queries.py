"""Saved queries of the rollouts table."""

from __future__ import annotations

from composer_web.rollouts.export_models import SavedQuery
from composer_web.rollouts.filters import RolloutFilter
from composer_web.ui.saved_views import Shelf

SHELF = Shelf(SavedQuery, "query", (*RolloutFilter.base_filters, "sort"))
clean, queries_for, save, delete = SHELF.clean, SHELF.of, SHELF.save, SHELF.delete
