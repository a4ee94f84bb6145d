"""Benchmarks that need the repository: cowfs beside other file systems, its memory, and a soak.

    suite                  `make bench`: the comparison, written to docs/benchmarks
    runner                 runs the workloads on all systems, in turn
    systems/               what is compared, one module each
    trial, workloads/      the workloads that `cowfs.bench` does not have, or has in a simpler form
    jobs, material         what their workers do, and with what
    rows, targets          what is measured, and the targets
    page, plots            how it is shown
    library, stores        versions and stores made for a run

    store_path/            the way between a store and its readers (docs/benchmarks/store.md)
    transfers              uploads, beside `cp` and the store's own puts
    transports             what carries requests best: the device or io_uring, spinning or not
    history                merging forks, and collecting many versions
    recovery               a mount that has uncommitted work to recover
    commit_memory, resident_memory    the memory of each file
    scale                  what sizes that nobody has measured would take (docs/benchmarks/scale.md)
    soak                   many processes for a long time: does anything grow?
    scratch, processes     what these programs have in common

They are not installed with cowfs, so they may depend on other programs and libraries.
"""
