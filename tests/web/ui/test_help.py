"""Help without a mouse: each metric, figure and state of the registries has a meaning, and pages show it by a button."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings
from django.template.loader import render_to_string

from composer_web.accounts.models import DEFAULT_PROJECT
from composer_web.runs.charts.panels import RL, RL_FURTHER, SUPERVISED, definition
from composer_web.ui.texts.glossary import TERMS, sentence
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
    "rollouts.Export.state": "export", "alerts.Delivery.state": "delivery",
    "datasets.Corpus.state": "dataset",
}  # fmt: skip
"""Field with states → the kind of its meanings."""
ELSEWHERE = {"alerts.Rule.severity", "runs.FileDeletion.state"}
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


EXPLAINED = {
    "ops/_run_card.html": "ops/_home.html",
    "studies/_run.html": "studies/_results.html",
    "rollouts/_turn_findings.html": "rollouts/_findings.html",
    "rollouts/_report.html": "rollouts/detail.html",
    "tasks/_controls.html": "tasks/detail.html",
    "rollouts/standalone/top.html": "", "rollouts/standalone/end.html": "",  # a file that people download
}  # fmt: skip
"""Template with plain badges of states → the one that explains them on the same page."""


def test_every_plain_badge_of_a_state_has_a_list_of_meanings_on_its_page() -> None:
    root = Path(settings.BASE_DIR, "templates")
    with_badges = set()
    for template in root.rglob("*.html"):
        name, text = str(template.relative_to(root)), template.read_text()
        if re.search(r"{% badge [\w.]*(?:state|verdict|severity|review|tone)\b", text):
            with_badges.add(name)
            other = EXPLAINED.get(name)
            where = text if other is None else (root / other).read_text() if other else "{% state_help "
            assert re.search(r"{% state(?:_help)? ", where), f"{name}: list its states by state_help, or use state"
    assert EXPLAINED.keys() <= with_badges
    for kinds in re.findall(r'{% state_help "[^"]+" "([^"]+)"', "".join(t.read_text() for t in root.rglob("*.html"))):
        assert set(kinds.split()) <= MEANINGS.keys()


@pytest.mark.django_db
def test_every_figure_and_state_of_a_page_opens_by_a_button(world: seed.World) -> None:
    the_rest(world.people["operator"], "Quartz")
    admin, figures, states, listed = client(world, "admin"), 0, set(), set()
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
        assert not re.search(r"<th[^>]*>\s*State\s*</th>", html), f"{path}: a column of states without their meanings"
        listed |= set(re.findall(r'popovertarget="states-(\w+)', html))
        states |= set(re.findall(r'popovertarget="state-(\w+)-', html))
        ids = re.findall(r'\bid="((?:help|states?|head)-[^"]+)"', html)
        assert len(ids) == len(set(ids)), f"{path}: two helps of one name"
    assert figures > 40
    assert listed >= {"run", "group", "evaluation", "finding", "environment", "worker", "rule"}, listed
    assert states >= {
        "run", "verdict", "group", "evaluation", "validation", "review", "finding", "suite", "environment", "policy", "dataset",
    }  # fmt: skip


SELF_EVIDENT = {
    "accounts": "username password again role project name open library archived",  # labels say it; a row's own select
    "datasets/_text.html": "{{ name }}",  # its partial writes the help
    "partials": "what format name shared",
    "reports": "*",  # the editor shows at once what a field does
    "repositories/list.html": "package",
    "review/_annotations.html": "value text",
    "review/_item.html": "q-{{ question.id }}",  # the question stands above
    "rollouts/_bulk.html": "value_verdict value_tag value_assignee value_queue",  # the button says it
    "rollouts/_decide.html": "note",
    "rollouts/findings.html": "note",
    "evals/list.html": "grader",  # the button says it
    "runs/_files.html": "kinds final annotated",  # the table says what each deletes
    "runs/_form_more.html": "after sweep sweep_mode template_name template_description",
    "runs/_form_source.html": "text file",
    "runs/_labels.html": "notes",
    "runs/charts.html": "key title section",
    "runs/list.html": "tags",
    "runs/new.html": "view stage",
    "runs/templates.html": "name description",
    "alerts/webhooks.html": "events",
    "studies/_field.html": "{{ field.name }}",
    "tasks/_review.html": "note into value instruction",
    "tasks/imports.html": "file",
    "tasks/list.html": "value_tag value_split value_suite",
}
"""Template, or folder → fields without a line of help, and why they need none."""
CONTROL = re.compile(r'<(?:input|select|textarea)\b(?:[^>"]|"[^"]*")*?\bname="([^"]+)"(?:[^>"]|"[^"]*")*')


def test_every_field_of_a_form_says_what_it_does() -> None:
    root, seen = Path(settings.BASE_DIR, "templates"), 0
    for template in sorted(root.rglob("*.html")):
        name, text = str(template.relative_to(root)), template.read_text()
        if name.split("/")[0] in ("mfa", "account", "allauth", "socialaccount", "usersessions"):
            continue  # passwords and codes
        forms = re.findall(r"<form\b.*?</form>", text, re.DOTALL) or [text] * template.name.startswith("_")
        plain = f"{SELF_EVIDENT.get(name, '')} {SELF_EVIDENT.get(name.split('/')[0], '')}".split()
        for form in forms:
            if 'method="post"' not in form.partition(">")[0] and "<form" in form:
                continue
            for control in CONTROL.finditer(form):
                if (
                    'type="hidden"' in control[0]
                    or "*" in plain
                    or control[1] in plain
                    or any("{{" in one for one in plain)
                ):
                    continue
                described = re.search(r'aria-describedby="([^"]+)"', control[0])
                assert described, f"{name}: say below {control[1]!r} what it does: class field__help, aria-describedby"
                assert f'id="{described[1]}"' in text, f"{name}: no text {described[1]}"
                seen += 1
    assert seen > 80


@pytest.mark.parametrize(
    "name",
    [
        "evals/_ask.html",
        "evals/release.html",
        "evals/releases.html",
        "tasks/suites.html",
        "review/list.html",
        "gateway/settings.html",
        "policies/_import.html",
        "policies/_endpoint_fields.html",
        "policies/promotion.html",
        "tasks/generators.html",
    ],
)
def test_the_help_of_a_field_is_a_sentence(name: str) -> None:
    text = Path(settings.BASE_DIR, "templates", name).read_text()
    for said in re.findall(r'field__help" id="[^"]*">\s*([^<]+?)\s*<', text):
        assert len(said) > 12 and (said.endswith(".") or "{%" in said), f"{name}: {said}"


def test_the_help_of_a_chart_explains_each_of_its_series() -> None:
    for panel in (*RL, *RL_FURTHER, *SUPERVISED):
        explained = " ".join(text for _, text in panel.meanings) or panel.meaning
        for key in panel.shown:
            assert sentence(definition(key).meaning) in explained, f"{panel.title}: {key}"
    two = render_to_string("partials/chart.html", {"panel": RL[0]})
    assert "<b>mean</b>" in two and "<b>best of K</b>" in two
    many = replace(
        RL[0], keys=tuple(f"reward/source/{i}" for i in range(6)), labels=tuple("abcdef"), right=("reward/mean",)
    )
    assert [labels for labels, _ in many.meanings] == ["a, b, c, d, …", "mean"]


def test_meaning_is_not_for_the_mouse_alone() -> None:
    """A `title` repeats what a control is, or shows in full what is cut. What explains stands in a help that opens."""
    root = Path(settings.BASE_DIR, "templates")
    for template in root.rglob("*.html"):
        for tag, title in re.findall(r"<([a-z]+)\b[^>]*?\stitle=\"([^\"]*)\"", template.read_text()):
            cut = re.fullmatch(r"{{ ?[\w.]*(?:hash|digest)(?:\|default:'')? ?}}", title)
            control = tag in ("a", "button", "summary", "input")
            if title == "Drag to move" or template.parent.parent.name == "allauth" or template.name == "_head.html":
                continue  # buttons beside it move too; the library's; the failure in full is on the page below
            assert cut or control, f"{template}: title={title!r} of a {tag} opens for a mouse only; use help_term"
            assert not re.search(r"description|meaning|\.what\b|\.cause\b", title), f"{template}: {title}"
            assert len(title.split()) <= 12 or "{" in title, f"{template}: {title}"


def test_attempts_and_their_rules_open_by_a_button() -> None:
    attempt = {"verdict": "failed", "what": "edits the tests", "id": "T1", "rules": ["tests-edited"]}
    html = render_to_string(
        "tasks/_controls.html", {"controls": {"wrong": [attempt], "cheats": [attempt]}, "version": None}
    )
    assert (
        len(re.findall(r'<button type="button" class="badge badge--good badge--help" popovertarget="attempt-', html))
        == 2
    )
    assert html.count("edits the tests") == 2 and "found by tests-edited" in html and "title=" not in html
