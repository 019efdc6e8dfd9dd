"""The main navigation: one list, the current section marked by the address."""

from __future__ import annotations

from dataclasses import dataclass

from django import template
from django.urls import reverse

register = template.Library()

SECTIONS = (
    ("Runs", "runs:list", ("/runs", "/datasets")),
    ("Rollouts", "rollouts:list", ("/rollouts",)),
    ("Findings", "rollouts:findings", ("/findings",)),
    ("Review", "review:list", ("/review", "/drafts")),
    ("Tasks", "tasks:list", ("/tasks", "/suites", "/environments", "/generators", "/imports")),
    ("Policies", "policies:list", ("/policies", "/promotion")),
    ("Gateway", "gateway:settings", ("/sessions",)),
    ("Evals", "evals:list", ("/evals",)),
    ("System", "ops:system", ("/system",)),
)


@dataclass(frozen=True)
class Item:
    label: str
    url: str
    current: bool


@register.simple_tag(takes_context=True)
def nav_items(context: template.Context) -> list[Item]:
    path = context["request"].path
    return [Item(label, reverse(name), path.startswith(prefixes)) for label, name, prefixes in SECTIONS]
