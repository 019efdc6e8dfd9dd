"""A database with every migration applied, made once and copied for each worker and each session."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import psycopg
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from psycopg import sql

from composer_web.env import REPOSITORY, env
from scripts.stack import postgres

TEMPLATE = "migrated"
MAKING = "migrating"
LOCK = 7_316_204
"""Advisory lock of the one worker that makes the template."""
KEPT = REPOSITORY / ".pytest_cache" / "migrated"
"""Dumps of earlier sessions, one a state of the migrations."""


def migrated_template() -> str:
    """The name of the template database. The first worker makes it, from a kept dump where there is one; others wait."""
    address, _, options = env().database_url.partition("?")
    server = f"{address.rsplit('/', 1)[0]}"
    with psycopg.connect(f"{server}/postgres?{options}", autocommit=True) as admin:
        admin.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        if admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [TEMPLATE]).fetchone() is None:
            name = sql.Identifier(MAKING)
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(name))
            admin.execute(sql.SQL("CREATE DATABASE {}").format(name))
            _fill(f"{server}/{MAKING}?{options}")
            admin.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(name, sql.Identifier(TEMPLATE)))
    return TEMPLATE


def _fill(url: str) -> None:
    kept = KEPT / f"{_digest()}.dump"
    if kept.exists():
        _run("pg_restore", "--no-owner", "--exit-on-error", f"--dbname={url}", str(kept))
        return
    before = connection.settings_dict["NAME"]
    connection.close()
    connection.close_pool()
    connection.settings_dict["NAME"] = MAKING
    try:
        call_command("migrate", verbosity=0)
    finally:
        connection.close()
        connection.close_pool()
        connection.settings_dict["NAME"] = before
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in sorted(KEPT.glob("*.dump"), key=os.path.getmtime)[:-3]:
        old.unlink(missing_ok=True)
    part = kept.with_suffix(f".{os.getpid()}")
    _run("pg_dump", "--format=custom", f"--dbname={url}", f"--file={part}")
    part.replace(kept)


def _digest() -> str:
    """Digest of every migration of every app, and of the server that holds the dump."""
    files = sorted(path for config in apps.get_app_configs() for path in Path(config.path, "migrations").glob("*.py"))
    found = hashlib.sha256(str(postgres.binaries()).encode())
    for path in files:
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    for name in ("legacy_triggers.py", "triggers.py"):  # SQL that migrations import
        found.update((REPOSITORY / "composer_web" / "core" / name).read_bytes())
    found.update((REPOSITORY / "requirements.lock").read_bytes())
    return found.hexdigest()[:24]


def _run(program: str, *arguments: str) -> None:
    subprocess.run([str(postgres.binaries() / program), *arguments], check=True, capture_output=True, text=True)
