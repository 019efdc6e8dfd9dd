"""The function-tool schemas of a profile, and the hash that trajectories record of them."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any

from sandbox.harness.profile import Profile, profiles
from sandbox.harness.tools import select


@lru_cache
def schemas_of(profile: Profile) -> list[dict[str, Any]]:
    """The OpenAI function-tool descriptions that a policy under `profile` is given. Shared: not to be changed."""
    return [tool.schema() for tool in select(profile.tools).values()]


@lru_cache
def schema_hash_of(profile: Profile) -> str:
    """SHA-256 of the canonical JSON of `schemas_of(profile)`; recorded in every trajectory."""
    text = json.dumps(schemas_of(profile), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def profile_of_schema(digest: str) -> Profile | None:
    """The profile whose tools have this `schema_hash_of`; None for tools of another version."""
    return next((profile for profile in profiles() if schema_hash_of(profile) == digest), None)
