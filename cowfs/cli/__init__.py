"""The command line: one file per command, loaded when it is used. Data goes to stdout, talk and
progress to stderr."""
