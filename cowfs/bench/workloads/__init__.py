"""What is done in one session of a system: a module for each group of workloads, each with `run(trial)`."""
