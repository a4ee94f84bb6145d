"""`python -m cowfs.supervisor DIRECTORY`: the supervisor whose socket and lock are there."""

import sys

from cowfs.supervisor.process import main

main(sys.argv[1])
