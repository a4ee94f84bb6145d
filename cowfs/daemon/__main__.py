"""`python -m cowfs.daemon`: the process of one mount; with `apart`, it does not stay a descendant
of its starter."""

import gc
import sys

from cowfs.daemon import parting

if sys.argv[1:] == ["apart"]:
    parting.part()

gc.disable()  # loading creates no garbage: searching for it takes a twentieth of the start

from cowfs.daemon.main import main  # noqa: E402

gc.enable()
main()
