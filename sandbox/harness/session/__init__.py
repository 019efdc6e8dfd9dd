"""A session runs the tool calls of one policy, under one profile, in one sandbox.

It validates arguments, orders the calls of a turn, bounds their output and turns the policy's faults into tool results.
`schemas` describes the tools to a chat model, `prompting` holds the harness's own prompts.
"""

from sandbox.harness.session.prompting import prompt, system_prompt
from sandbox.harness.session.schemas import profile_of_schema, schema_hash_of, schemas_of
from sandbox.harness.session.session import Session

__all__ = ["Session", "profile_of_schema", "prompt", "schema_hash_of", "schemas_of", "system_prompt"]
