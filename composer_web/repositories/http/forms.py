"""The form of a new repository."""

from __future__ import annotations

from typing import Any

from django import forms

from composer_web.accounts.models import User
from composer_web.repositories.models import Repository, SourceKind
from composer_web.repositories.requests import request_archive, request_repository
from sandbox.repositories.archives import MAX_PACKED_BYTES


class RepositoryForm(forms.Form):
    kind = forms.ChoiceField(choices=SourceKind.choices, label="Source")
    location = forms.CharField(
        required=False, max_length=500, label="Address, path or package",
        help_text="https address of a git repository, a folder of this machine, or a package's name on the index",
    )  # fmt: skip
    revision = forms.CharField(
        required=False,
        max_length=200,
        help_text="Branch, tag or commit; of a package the version. The newest if empty; it is pinned.",
    )
    token = forms.CharField(
        required=False, max_length=500, label="Access token", widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text="For a private git repository. Stored encrypted; it enters no sandbox, no log and no page.",
    )  # fmt: skip
    archive = forms.FileField(required=False, help_text=f".tar.gz or .zip, at most {MAX_PACKED_BYTES >> 20} MiB")
    name = forms.CharField(
        required=False, max_length=120, help_text="Of the environment; made from the source if empty"
    )

    def save(self, *, actor: User) -> Repository:
        """Raises UserError, Conflict."""
        said: dict[str, Any] = self.cleaned_data
        if said["kind"] == SourceKind.ARCHIVE:
            file = said["archive"]
            return request_archive(
                name=said["name"], filename=file.name, content=file.read(MAX_PACKED_BYTES + 1), actor=actor
            )
        return request_repository(
            kind=said["kind"], location=said["location"], name=said["name"], revision=said["revision"], token=said["token"],
            actor=actor,
        )  # fmt: skip

    def clean(self) -> dict[str, Any]:
        said: dict[str, Any] = super().clean() or {}
        if "@" in said.get("location", ""):  # it may hold a password: a refused form does not give it back
            self.data = {name: self.data.get(name, "") for name in self.fields} | {"location": ""}
        if said.get("kind") == SourceKind.ARCHIVE:
            if not said.get("archive"):
                self.add_error("archive", "Choose the archive to upload.")
        elif not said.get("location"):
            self.add_error("location", "Say where the repository is.")
        return said
