"""`python -m opencomposer`."""

from opencomposer.app import main

raise SystemExit(main())
