"""The mount daemon: one process that serves one mount (`python -m cowfs.daemon`, started by `api`).

`process` is its life from specification to exit; `cowfs.session` what it holds meanwhile;
`operations` and the modules beside it answer the kernel; `requests` answers the control socket.
Only this package imports trio and pyfuse3, and importing it imports neither.
"""
