"""`python -m cowfs.cli` is `cowfs`."""

from cowfs.cli.main import main

main()
