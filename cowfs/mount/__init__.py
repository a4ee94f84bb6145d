"""The mount daemon: one process that serves one mount (`python -m cowfs.mount`, started by `api`).

`daemon` is its life from specification to exit; `session` what it holds meanwhile (store, lease, index, engine);
`operations` and the modules beside it answer the kernel; `requests` answers the control socket.
Only this package imports trio and pyfuse3, and importing it imports neither.
"""
