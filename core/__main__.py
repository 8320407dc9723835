"""`python -m core` is `hyper3`."""

from core.cli import main

main()
