"""The mount daemon: one process that serves one mount (`python -m cowfs.daemon`, started by `api`).

`process` runs it from specification to exit, with a `cowfs.session`. `lane`, or `pyfuse` as the
alternative, answers the kernel (`request_server` defines their interface); `requests` answers the
control socket. Only `pyfuse` imports trio and pyfuse3.
"""
