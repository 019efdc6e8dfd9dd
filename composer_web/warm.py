"""What a server process builds before its first request, so that no visitor waits for it."""

from __future__ import annotations

import gc
import logging
import sys
from pathlib import Path

from django.template import TemplateDoesNotExist, TemplateSyntaxError, engines
from django.template.backends.django import DjangoTemplates
from django.urls import get_resolver

from composer_web.core.heap import freeze_heap

log = logging.getLogger(__name__)
YOUNG = 20_000
"""Objects more than before that start a collection, instead of 700: one large page makes and drops tens of thousands, and
with the usual number every twentieth of them stopped for a full collection."""
SWITCH_SECONDS = 0.001
"""Longest time that a computing thread keeps the interpreter from the event loop, instead of 5 ms. A page takes it a dozen
times, so next to a thread that prepares a long request each page took 60 ms longer."""


def warm() -> int:
    """Addresses and templates; then what is there already is left out of later garbage collections, which otherwise stop
    a request for a few tenths of a second each. Returns the number of templates that were compiled."""
    resolver = get_resolver()
    resolver.reverse_dict  # noqa: B018 (builds the table of names, and imports every page's module)
    compiled = 0
    for engine in engines.all():
        if not isinstance(engine, DjangoTemplates):
            continue
        for folder in engine.template_dirs:
            compiled += sum(_compile(engine, path.relative_to(folder)) for path in Path(folder).rglob("*.html"))
    freeze_heap()
    gc.set_threshold(YOUNG)
    sys.setswitchinterval(SWITCH_SECONDS)
    return compiled


def _compile(engine: DjangoTemplates, name: Path) -> bool:
    try:
        engine.get_template(name.as_posix())
    except (TemplateDoesNotExist, TemplateSyntaxError) as error:  # of an app that is not in use here
        log.debug("template %s: %s", name, error)
        return False
    return True
