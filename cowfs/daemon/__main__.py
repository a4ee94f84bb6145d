"""`python -m cowfs.daemon`: the process of one mount."""

import gc

gc.disable()  # nothing that is loaded becomes garbage: looking for some is a twentieth of the start

from cowfs.daemon.process import main  # noqa: E402

gc.enable()
main()
