"""Benchmarks that need the repository: cowfs beside other file systems, its memory, and a soak.

    suite                  `make bench`: the comparison, written to docs/benchmarks
    runner                 runs the workloads on all systems, in turn
    systems/               what is compared, one module each
    trial, workloads/      the workloads that `cowfs.bench` does not have, or has in a simpler form
    rows, targets          what is measured, and the targets
    page, plots            how it is shown
    library, stores        versions and stores made for a run

    resident_memory        the memory of each file of a resident mount
    soak                   many processes for a long time: does anything grow?

They are not installed with cowfs, so they may depend on other programs and libraries.
"""
