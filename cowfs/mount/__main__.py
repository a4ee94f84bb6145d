"""`python -m cowfs.mount`: the process of one mount."""

from cowfs.mount.daemon import main

main()
