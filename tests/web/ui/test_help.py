"""Help without a mouse: each metric, figure and state of the registries has a meaning, and pages show it by a button."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings

from composer_web.accounts.models import DEFAULT_PROJECT
from composer_web.ui.texts.glossary import TERMS
from composer_web.ui.texts.state_meanings import MEANINGS
from tests.browser import seed
from tests.web import seeded
from tests.web.addresses import pages
from tests.web.seeded import client, the_rest
from trainer.learning.metrics import METRICS

world = seeded.world
STATES = {
    "rollouts.Rollout.state": "rollout", "rollouts.Rollout.verdict": "verdict", "rollouts.Group.state": "group",
    "rollouts.Finding.state": "finding", "rollouts.Finding.severity": "severity", "rollouts.Quarantine.state": "quarantine",
    "runs.Run.state": "run", "evals.Evaluation.state": "evaluation", "tasks.Task.review": "review", "tasks.Task.split": "split",
    "tasks.Suite.purpose": "suite", "tasks.GenerationJob.state": "generation", "review.Draft.state": "draft",
    "policies.Policy.kind": "policy", "policies.MeasurementOrder.state": "order", "policies.PolicyImport.state": "order",
    "repositories.Environment.state": "environment", "datasets.Dataset.state": "dataset",
    "datasets.Corpus.state": "dataset",
}  # fmt: skip
"""Field with states → the kind of its meanings."""
ELSEWHERE = {"rollouts.Export.state", "alerts.Delivery.state", "alerts.Rule.severity", "runs.FileDeletion.state"}
"""Fields whose pages say in words what each state means."""
NAMES = ("state", "verdict", "severity", "review", "split", "purpose")


def test_every_metric_and_term_has_a_meaning() -> None:
    for name, metric in METRICS.items():
        assert len(metric.meaning) > 10, name
    for label, text in TERMS.items():
        assert label == label.lower() and text.endswith("."), label


def test_every_state_of_the_models_has_a_meaning() -> None:
    fields = {
        f"{model._meta.app_label}.{model.__name__}.{field.name}": field
        for model in apps.get_models()
        if model.__module__.startswith("composer_web.")
        for field in model._meta.fields
        if field.choices and (field.name in NAMES or f"{model._meta.label}.{field.name}" in STATES)
    }
    assert set(fields) == set(STATES) | ELSEWHERE
    for name, kind in STATES.items():
        values = {str(value) for value, _ in fields[name].flatchoices if value}
        assert values <= MEANINGS[kind].keys(), f"{name}: say in ui/texts/state_meanings.py what each state means"


def test_no_heading_has_its_help_for_the_mouse_alone() -> None:
    for template in Path(settings.BASE_DIR, "templates").rglob("*.html"):
        for tag in re.findall(r"<(?:th|dt)\b[^>]*\btitle=", template.read_text()):
            pytest.fail(f"{template}: {tag} opens for a mouse only; use help_term")


@pytest.mark.django_db
def test_every_figure_and_state_of_a_page_opens_by_a_button(world: seed.World) -> None:
    the_rest(world.people["operator"], "Quartz")
    admin, figures, states = client(world, "admin"), 0, set()
    for address in pages():
        if address.method != "GET" or address.role is None:
            continue
        path = address.path(DEFAULT_PROJECT)
        answer = admin.get(path) if path else None
        if answer is None or answer.status_code != 200 or "html" not in answer.headers.get("Content-Type", ""):
            continue
        html = answer.content.decode()
        for label in re.findall(r'class="figure__label">(.*?)</div>', html, re.DOTALL):
            assert 'class="term"' in label, f"{path}: {label} has no help: give it one in ui/texts/glossary.py"
            figures += 1
        states |= set(re.findall(r'popovertarget="state-(\w+)-', html))
        ids = re.findall(r'\bid="((?:help|state)-[^"]+)"', html)
        assert len(ids) == len(set(ids)), f"{path}: two helps of one name"
    assert figures > 40
    assert states >= {
        "run", "verdict", "group", "evaluation", "validation", "review", "finding", "suite", "environment", "policy", "dataset",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["gateway/settings.html", "policies/_import.html", "policies/_endpoint_fields.html", "tasks/generators.html"],
)
def test_every_field_of_these_forms_says_what_it_does(name: str) -> None:
    text = Path(settings.BASE_DIR, "templates", name).read_text()
    fields = re.findall(r'<(?:input|select|textarea)\b[^>]*?\bname="(\w+)"', text)
    assert len(re.findall(r"field__help\" id=", text)) == len(fields) > 5, fields
