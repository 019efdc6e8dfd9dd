"""allauth's security key forms, with short names, audit entries, and error messages for malformed responses."""

from __future__ import annotations

import struct
from typing import Any

from allauth.mfa.adapter import get_adapter
from allauth.mfa.webauthn.forms import (
    AddWebAuthnForm,
    AuthenticateWebAuthnForm,
    EditWebAuthnForm,
    ReauthenticateWebAuthnForm,
)
from django import forms
from django.db import transaction

from composer_web.accounts.services import audit

ODD = (AttributeError, LookupError, NotImplementedError, RecursionError, TypeError, ValueError, struct.error)
"""Exceptions of allauth's and fido2's parsers for responses that no browser sends."""


class _Named(forms.Form):
    """A key's name is short, since the list of keys and the audit log show it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        required = self.fields["name"].required
        help_text = "Where the key is, for example: key ring, laptop"
        self.fields["name"] = forms.CharField(max_length=60, required=required, help_text=help_text)


class AddKeyForm(_Named, AddWebAuthnForm):
    def clean(self) -> Any:
        try:
            return super().clean()
        except ODD as error:
            raise get_adapter().validation_error("incorrect_code") from error


class RenameKeyForm(_Named, EditWebAuthnForm):
    def save(self) -> Any:
        before, name = self.instance.wrap().name, self.cleaned_data["name"]
        with transaction.atomic():
            key = super().save()
            audit(actor=key.user, action="second_factor.rename", target=f"user:{key.user_id}", before=before, name=name)
        return key


class UseKeyForm(AuthenticateWebAuthnForm):
    def clean_credential(self) -> Any:
        try:
            return super().clean_credential()
        except ODD as error:
            raise get_adapter().validation_error("incorrect_code") from error


class ConfirmByKeyForm(UseKeyForm, ReauthenticateWebAuthnForm):
    pass
