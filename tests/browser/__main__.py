"""python -m tests.browser: fill the empty, migrated database that the settings name with a small world to look at."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "composer_web.settings")
django.setup()

from tests.browser import benchmark, seed  # noqa: E402 (models load only after setup)

benchmark.benchmark(seed.world().people)
print(f"people: viewer, reviewer, operator, admin; password: {seed.PASSWORD}")
