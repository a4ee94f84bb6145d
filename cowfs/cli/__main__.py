"""`python -m cowfs.cli` is `cowfs`."""

from cowfs.cli.start import main

main()
