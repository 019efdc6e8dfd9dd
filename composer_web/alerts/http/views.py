"""Views of alerts: current alerts, rules, webhooks and their deliveries, and the user's notifications."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig

from composer_web.alerts.http.filters import AlertFilter
from composer_web.alerts.http.forms import AddressForm, RuleForm, WebhookForm
from composer_web.alerts.http.tables import AlertTable, DeliveryTable
from composer_web.alerts.models import Event, Notice, Rule, Webhook
from composer_web.alerts.rules import selectors, services
from composer_web.core.errors import NotFound, UserError
from composer_web.ui.filters import strict
from composer_web.ui.pages import PageRequest, act, page, show

PER_PAGE = 50


@require_safe
@page()
def alert_list(request: PageRequest) -> HttpResponse:
    found = strict(AlertFilter, request.GET, queryset=selectors.alerts())
    table = AlertTable(found.qs)
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    if request.headers.get("HX-Request"):
        return show(request, "partials/rows.html", {"table": table})
    return show(request, "alerts/list.html", {"table": table, "filter": found, "live": "alerts", "tab": "alerts"})


@page()
def rule_list(request: PageRequest) -> HttpResponse:
    """The rules; operators make new ones here."""
    form = RuleForm(request.POST or None)
    if request.method == "POST":
        if not request.user.may("operator"):
            raise PermissionDenied("this needs the role operator")
        if form.is_valid():
            try:
                rule = services.make_rule(actor=request.user, **form.cleaned_data)
            except UserError as error:
                form.add_error(error.field if error.field in form.fields else None, str(error))
            else:
                messages.success(request, f"Rule “{rule.name}” is active.")
                return redirect("alerts:rules")
    context = {"rules": selectors.rules(), "form": form, "tab": "rules"}
    return show(request, "alerts/rules.html", context, status=422 if form.errors else 200)


@page("operator")
def rule_edit(request: PageRequest, pk: int) -> HttpResponse:
    rule = selectors.get_rule(pk)
    form = RuleForm(request.POST or None, instance=rule)
    shown = {
        "form": form, "row": selectors.get_rule(pk), "tab": "rules", "where": "Rules", "back": reverse("alerts:rules"),
        "lead": "What it watches, and who is told.",
    }  # fmt: skip
    return _edited(
        request, form, shown, lambda: services.change_rule(rule=rule, actor=request.user, **form.cleaned_data)
    )


@page("operator")
def webhook_edit(request: PageRequest, pk: int) -> HttpResponse:
    webhook = selectors.get_webhook(pk)
    form = AddressForm(request.POST or None, initial={"name": webhook.name, "url": webhook.url})
    shown = {
        "form": form, "row": webhook, "tab": "webhooks", "where": "Webhooks", "back": reverse("alerts:webhooks"),
        "lead": "Its secret stays. What still waits goes to the new address.",
    }  # fmt: skip
    return _edited(
        request, form, shown, lambda: services.change_webhook(webhook=webhook, actor=request.user, **form.cleaned_data)
    )


def _edited(
    request: PageRequest, form: RuleForm | AddressForm, shown: dict[str, Any], save: Callable[[], Rule | Webhook]
) -> HttpResponse:
    """The form; when it is sent and right, what it says is saved."""
    if request.method == "POST" and form.is_valid():
        try:
            saved = save()
        except UserError as error:
            form.add_error(error.field if error.field in form.fields else None, str(error))
        else:
            messages.success(request, f"“{saved.name}” is changed.")
            return redirect(shown["back"])
    return show(request, "alerts/edit.html", shown, status=422 if form.errors else 200)


@require_POST
@page("operator")
def rule_change(request: PageRequest, pk: int, action: str) -> HttpResponse:
    rule = selectors.get_rule(pk)
    doings = {
        "on": (lambda: services.switch_rule(rule=rule, active=True, actor=request.user), "It watches again."),
        "off": (lambda: services.switch_rule(rule=rule, active=False, actor=request.user), "It is switched off."),
        "remove": (lambda: services.remove_rule(rule=rule, actor=request.user), "Removed."),
    }
    if action not in doings:
        raise NotFound("action", repr(action))
    doing, done = doings[action]
    return act(request, doing, done=done, to="alerts:rules")


@page("operator")
def webhook_list(request: PageRequest) -> HttpResponse:
    """Webhooks; a new one's secret is in this one answer only."""
    form, secret = WebhookForm(request.POST or None), ""
    if request.method == "POST" and form.is_valid():
        try:
            _, secret = services.make_webhook(actor=request.user, **form.cleaned_data)
        except UserError as error:
            form.add_error(error.field if error.field in form.fields else None, str(error))
        else:
            form = WebhookForm()
    context = {
        "webhooks": selectors.webhooks(),
        "form": form,
        "secret": secret,
        "tab": "webhooks",
        "known": Event.choices,
    }
    answer = show(request, "alerts/webhooks.html", context, status=422 if form.errors else 200)
    answer["Cache-Control"] = "no-store"
    return answer


@require_POST
@page("operator")
def webhook_change(request: PageRequest, pk: int, action: str) -> HttpResponse:
    webhook = selectors.get_webhook(pk)
    if action == "test":
        done = "A test message is on its way; its delivery is listed here."
        return act(
            request,
            lambda: services.try_webhook(webhook=webhook, actor=request.user),
            done=done,
            to="alerts:deliveries",
        )
    if action == "events":
        events = request.POST.getlist("events")
        return act(
            request,
            lambda: services.subscribe(webhook=webhook, events=events, actor=request.user),
            done=f"“{webhook.name}” is told of {len(events)} kind{'s' * (len(events) != 1)} of events.",
            to="alerts:webhooks",
        )
    if action not in ("on", "off"):
        raise NotFound("action", repr(action))
    return act(
        request,
        lambda: services.switch_webhook(webhook=webhook, active=action == "on", actor=request.user),
        done=f"“{webhook.name}” is switched {action}.",
        to="alerts:webhooks",
    )


@require_safe
@page("operator")
def delivery_list(request: PageRequest) -> HttpResponse:
    table = DeliveryTable(selectors.deliveries())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    if request.headers.get("HX-Request"):
        return show(request, "partials/rows.html", {"table": table})
    return show(request, "alerts/deliveries.html", {"table": table, "live": "alerts", "tab": "deliveries"})


@require_POST
@page("operator")
def delivery_repeat(request: PageRequest, pk: int) -> HttpResponse:
    row = selectors.get_delivery(pk)
    return act(
        request,
        lambda: services.repeat(delivery=row, actor=request.user),
        done="It is tried again.",
        to="alerts:deliveries",
    )


@require_safe
@page()
def notice_list(request: PageRequest) -> HttpResponse:
    """One's own notices, newest first; with `bell` only the bell of the top bar."""
    if "bell" in request.GET:
        return show(request, "alerts/_bell.html")
    rows = list(selectors.notices(request.user)[:200])
    template = "alerts/_notices.html" if request.headers.get("HX-Request") else "alerts/notices.html"
    return show(request, template, {"notices": rows, "unread": sum(row.read_at is None for row in rows)})


@require_POST
@page()
def notice_read(request: PageRequest, pk: int | None = None) -> HttpResponse:
    """One notice, or all: of the person who asks, whatever number is given."""
    if pk is not None and not Notice.objects.filter(pk=pk, user=request.user).exists():
        raise NotFound("notice", pk)
    services.mark_read(user=request.user, notice=pk)
    return redirect("alerts:notices")
