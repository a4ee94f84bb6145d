"""The command line: one file per command, loaded when it is used. Data goes to stdout; messages and
progress go to stderr."""
