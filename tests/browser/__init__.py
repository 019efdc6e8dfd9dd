"""Tests in a real browser. `seed` makes the small product that they look at, `places` and `states` name its pages."""
