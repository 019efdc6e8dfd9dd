"""The licence of a checkout according to its own files. For information only: no decision depends on it."""

from __future__ import annotations

import re

from sandbox.repositories.checkout import Checkout

_TEXTS = (
    ("MIT", r"Permission is hereby granted, free of charge, to any person obtaining a copy"),
    ("Apache-2.0", r"Apache License,?\s+Version 2\.0"),
    ("AGPL-3.0", r"GNU AFFERO GENERAL PUBLIC LICENSE"),
    ("LGPL", r"GNU (?:LESSER|LIBRARY) GENERAL PUBLIC LICENSE"),
    ("GPL-3.0", r"GNU GENERAL PUBLIC LICENSE\s+Version 3"),
    ("GPL-2.0", r"GNU GENERAL PUBLIC LICENSE\s+Version 2"),
    ("MPL-2.0", r"Mozilla Public License,? (?:Version |v\. ?)2\.0"),
    ("BSD-3-Clause", r"Redistribution and use in source and binary forms[\s\S]*Neither the name"),
    ("BSD-2-Clause", r"Redistribution and use in source and binary forms"),
    ("ISC", r"Permission to use, copy, modify, and(?:/or)? distribute this software for any purpose"),
    ("PSF-2.0", r"PYTHON SOFTWARE FOUNDATION LICENSE"),
    ("Unlicense", r"This is free and unencumbered software"),
)


def licence_of(checkout: Checkout) -> str:
    """An SPDX-like name; empty where nothing is said."""
    declared = checkout.table("project").get("license")
    if isinstance(declared, str) and declared:
        return declared[:80]
    names = sorted(
        p for p in checkout.files if "/" not in p and re.match(r"(?:licen[cs]e|copying|unlicense)", p, re.IGNORECASE)
    )
    for path in names:
        text = checkout.text(path)
        for name, sign in _TEXTS:
            if re.search(sign, text):
                return name
        return "other"
    if found := re.search(r"(?m)^License(?:-Expression)?: *(\S[^\n]{0,79})", checkout.text("PKG-INFO")):
        return found[1] if found[1] != "UNKNOWN" else ""
    return ""
