"""Saved queries of the rollouts table."""

from __future__ import annotations

from composer_web.ops.shelves import Shelf
from composer_web.rollouts.filters import RolloutFilter
from composer_web.rollouts.kept_models import SavedQuery

SHELF = Shelf(SavedQuery, "query", (*RolloutFilter.base_filters, "sort"))
clean, queries_for, save, delete = SHELF.clean, SHELF.of, SHELF.save, SHELF.delete
