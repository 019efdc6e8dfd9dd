"""Addresses of release 0.1 lead to the new ones, with their query and method."""

from __future__ import annotations

import pytest
from django.test import Client


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/evals/", "/evaluations/"),
        ("/evals/releases/?suite=train", "/evaluations/releases/?suite=train"),
        ("/sessions/7/", "/gateway/sessions/7/"),
        ("/sessions/7/download.jsonl", "/gateway/sessions/7/download.jsonl"),
        ("/sessions/settings/", "/gateway/settings/"),
        ("/evals//elsewhere.example/", "/evaluations//elsewhere.example/"),
    ],
)
def test_an_old_address_leads_to_the_new_one(old: str, new: str) -> None:
    for answer in (Client().get(old), Client().post(old)):
        assert (answer.status_code, answer["Location"]) == (308, new)
