"""Maintenance of a store: what lies in it is checked, repaired, counted and copied. No engine, no
process, no mount; `api` opens the stores."""
