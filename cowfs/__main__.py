"""`python -m cowfs` is `cowfs`."""

from cowfs.cli.start import main

main()
