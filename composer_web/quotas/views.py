"""View of quotas: usage and limits. Admins set them."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from composer_web.accounts.models import Project, User
from composer_web.accounts.permissions import reach
from composer_web.core.errors import UserError
from composer_web.quotas import limits
from composer_web.quotas.models import Quota
from composer_web.quotas.usage import standing
from composer_web.ui.pages import PageRequest, page, show


class QuotaForm(forms.Form):
    user = forms.ModelChoiceField(
        User.objects.filter(is_active=True), required=False, empty_label="everybody without a quota", label="For"
    )
    project = forms.ModelChoiceField(
        Project.objects.filter(archived_at=None), required=False, empty_label="no project", label="Or a project"
    )
    concurrent_rollouts = forms.IntegerField(required=False, min_value=1, label="Rollouts in flight")
    storage_gib = forms.FloatField(required=False, label="Checkpoints, GiB")
    gpu_share = forms.FloatField(
        required=False, label="Share of rollouts", help_text="0 to 1, of all in flight while others run"
    )
    gpus = forms.IntegerField(
        required=False, min_value=1, label="GPUs", help_text="that runs train on at once, one for each rank"
    )


@page()
def quota_list(request: PageRequest) -> HttpResponse:
    form = QuotaForm(request.POST or None)
    if request.method == "POST":
        if not request.user.may("admin"):
            return show(request, "403.html", status=403)
        if form.is_valid():
            try:
                made = limits.set_quota(actor=request.user, **form.cleaned_data)
            except UserError as error:
                form.add_error(error.field, str(error))
            else:
                messages.success(
                    request, "The quota holds from the next dispatch." if made else "The quota is removed."
                )
                return redirect("ops:quotas")
    set_ = Quota.objects.select_related("user", "project").exclude(user=None, project=None)
    mine = {place["id"] for place in reach(request.user)}
    now = standing()
    rows = [
        (
            quota,
            now.use(user_id=quota.user_id, project_id=quota.project_id),
            now.trained(user_id=quota.user_id, project_id=quota.project_id),
        )
        for quota in set_
        if quota.project_id is None or quota.project_id in mine
    ]
    context = {
        "rows": rows,
        "everybody": Quota.objects.filter(user=None, project=None).first(),
        "own": now.use(user_id=request.user.pk),
        "own_gpus": now.trained(user_id=request.user.pk),
        "form": form,
        "may_admin": request.user.may("admin"),
    }
    return show(request, "ops/quotas.html", context, status=422 if form.errors else 200)
