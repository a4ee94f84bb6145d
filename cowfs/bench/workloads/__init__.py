"""The workloads: a module for each group, each with `run(trial)`."""
