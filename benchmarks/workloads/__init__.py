"""The groups of workloads that differ from those of `cowfs.bench`: a module each, with
`run(trial)`."""
