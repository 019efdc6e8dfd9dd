"""Whether a chat template is token-exact: training on rendered conversations and sampling turn by turn give one stream.

Three things are proven on the episode at hand. A scripted turn, read back from its tokens, holds the calls that were
meant. The whole conversation rendered at once by the template has the tokens that the turns have one after another. And
text from outside brings no control token. A template that fails is refused by name, with the first place where it parts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of
from trainer.policy.rendering.chat import ChatRenderer, structured
from trainer.policy.round_trip import TemplateNotExact, not_exact
from trainer.sft.expert_episodes import ExpertEpisode


def check_round_trip(renderer: ChatRenderer, episode: ExpertEpisode) -> None:
    """Raises TemplateNotExact."""
    name = str(renderer.tokenizer.name_or_path) or type(renderer.tokenizer).__name__
    tools = schemas_of(get_profile(episode.profile))
    for index, turn in enumerate(episode.turns):
        read = renderer.parse(renderer.turn(turn.calls), tools=tools)
        meant, got = ([(call.name, call.arguments) for call in calls] for calls in (turn.calls, read.calls))
        if read.error or meant != got:
            raise TemplateNotExact(
                f"the chat template of {name} loses calls: turn {index} of {episode.task_id} was {meant}, "
                f"read back {read.error or got}; use a template whose call syntax the renderer writes and reads"
            )
    ids = stream(renderer, episode)
    whole = whole_conversation(renderer, episode)
    if renderer.prefix_stable and ids != whole[: len(ids)]:
        raise not_exact(renderer, ids, whole, of=episode.task_id, name=name)


def stream(renderer: ChatRenderer, episode: ExpertEpisode) -> list[int]:
    """The tokens of an episode as it is sampled: opening, then turns and what is read between them."""
    ids = renderer.start(list(episode.messages), schemas_of(get_profile(episode.profile)))
    for position, turn in enumerate(episode.turns):
        said = renderer.turn(turn.calls)
        ids += said
        if position < len(episode.turns) - 1:
            ids += renderer.observe(turn.results, said=said, before=ids[: -len(said)])
    return ids


def whole_conversation(renderer: ChatRenderer, episode: ExpertEpisode) -> list[int]:
    """The tokens of the same episode rendered at once, with its calls as the template writes them."""
    messages: list[dict[str, Any]] = [dict(message) for message in episode.messages]
    for position, turn in enumerate(episode.turns):
        messages.append({"role": "assistant", "content": "", "tool_calls": structured(turn.calls)})
        if position < len(episode.turns) - 1:
            messages += [{"role": "tool", "content": r.output, "tool_call_id": r.call_id} for r in turn.results]
    return renderer.conversation(messages, schemas_of(get_profile(episode.profile)))


def check_all(renderer: ChatRenderer, episodes: Sequence[ExpertEpisode], *, max_shapes: int = 16) -> None:
    """The check over a few episodes of each shape (its tools in their order). Raises TemplateNotExact."""
    shapes: set[str] = set()
    for episode in episodes:
        shape = json.dumps([[call.name for call in turn.calls] for turn in episode.turns])
        if shape not in shapes and len(shapes) < max_shapes:
            shapes.add(shape)
            check_round_trip(renderer, episode)
