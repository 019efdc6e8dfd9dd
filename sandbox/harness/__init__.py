"""The product harness: the tools that a policy works with, the same in training and in use.

`profile` says which tools an episode offers and within which bounds, `types` what calls and results are. The tools themselves are
in `tools/`; `session/` runs them.
"""

from sandbox.harness.errors import HarnessFailure, ToolFailure
from sandbox.harness.profile import Profile, get_profile, profiles
from sandbox.harness.types import ToolCall, ToolError, ToolErrorKind, ToolResult

__all__ = [
    "HarnessFailure",
    "Profile",
    "ToolCall",
    "ToolError",
    "ToolErrorKind",
    "ToolFailure",
    "ToolResult",
    "get_profile",
    "profiles",
]
