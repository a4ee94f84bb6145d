"""`python -m cowfs.daemon`: the process of one mount."""

from cowfs.daemon.process import main

main()
