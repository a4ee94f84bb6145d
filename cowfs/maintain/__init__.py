"""Maintenance of a store: checks, repairs, measures and copies its contents. No engine, no process,
no mount; `api` opens the stores."""
