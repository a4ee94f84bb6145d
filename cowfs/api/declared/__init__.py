"""Volumes that a file declares: read, planned, applied, mounted. `model` has the objects, `loading`
the file, `plan` what is to be done, `mounting` the mounts."""
