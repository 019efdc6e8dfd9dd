"""Triggers of recorded sessions."""

from __future__ import annotations

import pgtrigger

from composer_web.core.triggers import Trigger


class KeptUntilErased(Trigger):
    """Refuse updates, and deletions except while a session is erased (`serving/recording.py`)."""

    name = "kept"
    when = pgtrigger.Before
    operation = pgtrigger.Update | pgtrigger.Delete
    func = """
        IF TG_OP = 'DELETE' AND coalesce(current_setting('opencomposer.erasing', true), '') = 'on' THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'check_violation';
    """
