"""Volumes declared by a file. `model` has the objects, `loading` reads the file, `plan` derives the
steps, `applying` runs them, and `mounting` makes the mounts."""
