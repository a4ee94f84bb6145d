"""The pyfuse3 server: answers a mount's requests on trio (`fast_lane=False`).

    server        the loop, on a thread of its own; what `daemon.server.KernelServer` asks for
    operations    FUSE operations as engine calls
    calls         what may wait, and on what

The only place that imports pyfuse3 and trio, which come with `pip install 'cowfs[pyfuse3]'`.
Nothing is imported here: the native lane serves mounts without them.
"""
