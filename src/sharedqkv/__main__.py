"""`python -m sharedqkv` is the console script."""

from sharedqkv_console import main

raise SystemExit(main())
