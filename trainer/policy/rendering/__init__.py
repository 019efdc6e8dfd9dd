"""Renderers: messages to tokens, and sampled tokens back to calls, for each family of models.

`chat` says what a renderer does, and `detect` chooses one. `family` is a model's template as code, from the package
`renderers`; `template` renders with the policy's own template and parses with that package; `toy` has the toy policy's
calls. `controls` keeps text from outside from becoming a control token, and `reading` turns a parsed response into a
`ParsedTurn`.
"""

from trainer.policy.rendering.detect import FAMILIES, KEY, choose, make_renderer
from trainer.policy.rendering.template import TemplateRenderer
from trainer.policy.rendering.toy import ToyRenderer

__all__ = ["FAMILIES", "KEY", "TemplateRenderer", "ToyRenderer", "choose", "make_renderer"]
