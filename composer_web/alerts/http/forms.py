"""The forms of a rule and of a webhook."""

from __future__ import annotations

from django import forms
from django.db.models import Q

from composer_web.alerts.models import Event, Kind, Rule, Webhook
from composer_web.core.detectors import detectors


class RuleForm(forms.ModelForm):
    detector = forms.ChoiceField(required=False, help_text="Of the kind “built-in detector”")
    emails = forms.CharField(required=False, help_text="Addresses, separated by commas", label="E-mail")

    class Meta:
        model = Rule
        fields = (
            "name",
            "kind",
            "metric",
            "detector",
            "comparison",
            "threshold",
            "window",
            "severity",
            "run_name",
            "quiet_minutes",
            "role",
            "emails",
            "webhook",
        )
        labels = {
            "kind": "Watches",
            "detector": "Detector",
            "severity": "Findings of at least",
            "run_name": "Only runs named",
            "quiet_minutes": "Cooldown (minutes)",
            "role": "Shown in the product to at least",
            "webhook": "Webhook",
        }

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        offered = Q(active=True) | Q(pk=self.instance.webhook_id)  # the chosen one stays although it is off
        self.fields["kind"].choices = [("", "choose…"), *Kind.choices]  # type: ignore[attr-defined]
        self.fields["detector"].choices = [("", "choose…"), *((one.name, one.title) for one in detectors())]  # type: ignore[attr-defined]
        self.fields["webhook"].empty_label = "none"  # type: ignore[attr-defined]
        self.fields["webhook"].queryset = Webhook.objects.filter(offered)  # type: ignore[attr-defined]
        if self.instance.pk:
            self.initial["emails"] = ", ".join(self.instance.emails)

    def clean_emails(self) -> list[str]:
        return [part.strip() for part in self.cleaned_data["emails"].split(",") if part.strip()]


class AddressForm(forms.Form):
    """A webhook that is there: its secret stays, and what it is told of is chosen in the list."""

    name = forms.CharField(max_length=80)
    url = forms.CharField(max_length=400, label="Address", help_text="https://host/path")


class WebhookForm(AddressForm):
    events = forms.MultipleChoiceField(
        choices=Event.choices,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        label="Told of",
        help_text="And of the alerts of rules that name it",
    )
