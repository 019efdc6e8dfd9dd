from oc.cli import main

raise SystemExit(main())
