"""`python -m scripts.client`: write `oc/models/` and `oc/api/` anew."""

from __future__ import annotations

import os

from scripts.client import answers, methods
from scripts.client.description import Description


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "composer_web.settings")
    import django

    django.setup()
    description = Description.of_the_api()
    answers.write(description)
    methods.write(description)
    print("oc/models/ and oc/api/ are in step with the API")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
