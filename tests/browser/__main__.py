"""python -m tests.browser: fill the empty, migrated database that the settings name with a small world to look at."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "composer_web.settings")
django.setup()

from tests.browser import benchmark, corners, seed  # noqa: E402 (models load only after setup)

world = seed.world()
benchmark.benchmark(world.people)
corners.corners(world)
print(f"people: viewer, reviewer, operator, admin; password: {seed.PASSWORD}")
