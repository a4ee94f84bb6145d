"""The mount daemon: one process that serves one mount (`python -m cowfs.daemon`, started by `api`).

`process` is its life from specification to exit; `cowfs.session` what it holds meanwhile; `lane`
answers the kernel, or `pyfuse` beside it (`server` says what both offer); `requests` answers the
control socket. Only `pyfuse` imports trio and pyfuse3.
"""
