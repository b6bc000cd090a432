"""`python -m meshctl`: the same as the console script."""

from meshctl.cli import main

main()
