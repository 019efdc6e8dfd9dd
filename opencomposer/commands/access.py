"""Projects, people, tokens, quotas and the audit log."""

from __future__ import annotations

from typing import Annotated

import typer

from opencomposer.errors import UsageError
from opencomposer.nouns import Noun, Role, fields
from opencomposer.session import Session

PANEL = "Administration"
PROJECT_COLUMNS = ("slug", "name", "role", "open", "library", "archived")
MEMBER_COLUMNS = ("username", "role", "created_at")
TOKEN_COLUMNS = ("id", "name", "prefix", "scopes", "project", "expires_at", "last_used_at", "revoked_at")
LIMITS = ("concurrent_rollouts", "storage_gib", "gpu_share", "gpus")
QUOTA_COLUMNS = ("username", "project", *LIMITS, "rollouts_now", "bytes_now", "gpus_now")
PEOPLE_COLUMNS = ("username", "role", "active", "projects", "email", "last_login")
INVITATION_COLUMNS = ("id", "username", "role", "project", "project_role", "email", "expires_at")
AUDIT_COLUMNS = ("id", "at", "actor_name", "via", "action", "target", "detail")
AUDIT_FILTERS = ("who", "action", "target", "via", "since", "until")

projects = Noun("projects", "Projects that separate the work of teams.", panel=PANEL)
projects.lists("/projects", PROJECT_COLUMNS, "List the projects that you can see.", paged=False)


@projects.command("create", example='ours "Our project"')
def create_project(session: Session, slug: str, name: str) -> None:
    """Create a project."""
    session.output.rows([session.api.post("/projects", {"slug": slug, "name": name})], PROJECT_COLUMNS)


@projects.command("update", example="ours --library --no-open")
def update_project(
    session: Session,
    slug: str,
    name: str | None = None,
    open_to_all: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Everybody has in it the role of the account.")
    ] = None,
    library: Annotated[
        bool | None, typer.Option(help="Its tasks, suites, environments and policies can be read in every project.")
    ] = None,
    archived: Annotated[bool | None, typer.Option(help="Kept, and shown to admins only.")] = None,
) -> None:
    """Change a project; what is not named stays."""
    known = {one["slug"]: one for one in session.api.get("/projects")}
    if slug not in known:
        raise UsageError(f"there is no project {slug!r} that you can see; there are: {', '.join(known) or 'none'}")
    stays = {field: known[slug][field] for field in ("name", "open", "library", "archived")}
    changes = fields(name=name, open=open_to_all, library=library, archived=archived)
    session.output.rows([session.api.patch("/projects/{slug}", {**stays, **changes}, slug=slug)], PROJECT_COLUMNS)


members = Noun("members", "People of a project.", panel=PANEL)


@members.command("list", example="ours")
def list_members(session: Session, project_slug: Annotated[str, typer.Argument(metavar="PROJECT")]) -> None:
    """List the members of a project."""
    session.output.rows(session.api.get("/projects/{slug}/members", slug=project_slug), MEMBER_COLUMNS)


@members.command("create", example="ours ada reviewer")
def create_member(
    session: Session, project_slug: Annotated[str, typer.Argument(metavar="PROJECT")], username: str, role: Role
) -> None:
    """Add a member to a project, or change a role."""
    body = {"username": username, "role": role}
    session.output.rows([session.api.post("/projects/{slug}/members", body, slug=project_slug)], MEMBER_COLUMNS)


@members.command("delete", example="ours ada")
def delete_member(
    session: Session, project_slug: Annotated[str, typer.Argument(metavar="PROJECT")], username: str
) -> None:
    """Remove a member from a project."""
    found = session.api.get("/projects/{slug}/members", slug=project_slug)
    role = next((one["role"] for one in found if one["username"] == username), "viewer")
    body = {"username": username, "role": role}
    session.api.post("/projects/{slug}/members/remove", body, slug=project_slug)
    session.output.said(f"removed {username} from {project_slug}", {"removed": username})


people = Noun("people", "Accounts.", panel=PANEL)
people.lists("/people", PEOPLE_COLUMNS, "List accounts with their roles.", paged=False)


@people.command("update", example="ada --role operator")
def update_person(
    session: Session,
    username: str,
    role: Annotated[Role | None, typer.Option(help="Role in the installation.")] = None,
) -> None:
    """Change the role of an account."""
    if role is None:
        raise UsageError("name what to change: --role; `people stop` and `people start` disable and enable an account")
    _change_person(session, username, role=role)


@people.command("stop", example="ada")
def stop_person(session: Session, username: str) -> None:
    """Disable an account: end its sign-ins and tokens."""
    _change_person(session, username, active=False)


@people.command("start", example="ada")
def start_person(session: Session, username: str) -> None:
    """Enable an account again."""
    _change_person(session, username, active=True)


def _change_person(session: Session, username: str, **changes: object) -> None:
    made = session.api.patch("/people/accounts/{username}", changes, username=username)
    session.output.rows([made], PEOPLE_COLUMNS)


invitations = Noun("invitations", "Links by which people make their accounts.", panel=PANEL)
invitations.lists("/people/invitations", INVITATION_COLUMNS, "List open invitations.", paged=False)
invitations.deletes("/people/invitations/{invitation_id}", "Revoke an invitation.", example="3")


@invitations.command("create", example="ada --role operator --email ada@example.org")
def create_invitation(
    session: Session,
    username: str,
    role: Role = "viewer",
    email: Annotated[str, typer.Option(help="The link is sent there if a mail server is set up.")] = "",
    member_of: Annotated[str, typer.Option(metavar="PROJECT", help="Project that the account joins.")] = "",
    member_role: Annotated[Role, typer.Option(help="Role in that project.")] = "viewer",
    days: Annotated[int, typer.Option(help="Days until the link expires.")] = 7,
) -> None:
    """Invite somebody. The link works once and is shown once."""
    body = {"username": username, "role": role, "email": email, "days": days}
    member = {"project": member_of, "project_role": member_role if member_of else ""}
    session.output.one(session.api.post("/people/invitations", {**body, **member}))


tokens = Noun("tokens", "Your API tokens; the Tokens page makes and revokes them.", panel=PANEL)
tokens.lists("/tokens", TOKEN_COLUMNS, "List your tokens.", paged=False)

quotas = Noun("quotas", "How much each person and project can use.", panel=PANEL)
quotas.lists("/quotas", QUOTA_COLUMNS, "List limits and what is used of them.", paged=False)


@quotas.command("update", example="project:ours --gpus 4 --storage-gib 500")
def update_quota(
    session: Session,
    subject: Annotated[str, typer.Argument(help="person:NAME, project:NAME, or everybody (the default of people).")],
    concurrent_rollouts: Annotated[int | None, typer.Option(help="Rollouts in flight.")] = None,
    storage_gib: Annotated[float | None, typer.Option(help="GiB of kept checkpoints.")] = None,
    gpu_share: Annotated[
        float | None, typer.Option(help="Share of all rollouts in flight while others run, between 0 and 1.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs in training at once.")] = None,
) -> None:
    """Replace all limits of one subject; what is not named has no limit, and without any the quota is deleted."""
    kind, _, name = subject.partition(":")
    if subject != "everybody" and (kind not in ("person", "project") or not name):
        raise UsageError(f"{subject!r}: write person:NAME, project:NAME or everybody")
    target = {} if subject == "everybody" else {"username" if kind == "person" else "project": name}
    limits = fields(concurrent_rollouts=concurrent_rollouts, storage_gib=storage_gib, gpu_share=gpu_share, gpus=gpus)
    session.output.rows([session.api.put("/quotas", {**target, **limits})], QUOTA_COLUMNS)


audit = Noun("audit", "Who changed what.", panel=PANEL)
audit.lists(
    "/audit", AUDIT_COLUMNS, "List changes, newest first. `--action run.` is every change of runs, `--target run:12` one run.",
    filters=AUDIT_FILTERS, example="--who ada --action run. --since 2026-11-01",
)  # fmt: skip

NOUNS = (projects, members, people, invitations, tokens, quotas, audit)
