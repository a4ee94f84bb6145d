"""Eight processes want the same thing at the same moment; exactly one gets it, every time."""

from __future__ import annotations

import pytest

from cowfs.store import open_store
from cowfs.store.refs import leases
from tests.store.racer import COUNT, Racers

ROUNDS = 20


@pytest.mark.slow
def test_put_if_absent_has_one_winner(shared_url: str) -> None:
    store = open_store(shared_url, create=True)
    with Racers(shared_url) as racers:
        for number in range(ROUNDS):
            key = f"race/{number}"
            answers = racers.race("create", key)
            assert sorted(answers) == ["lost"] * (COUNT - 1) + ["won"], f"round {number}"
            assert store.get(key) == b"writer %d" % answers.index("won")
    store.close()


@pytest.mark.slow
def test_acquiring_a_lease_has_one_winner(shared_url: str) -> None:
    store = open_store(shared_url, create=True)
    with Racers(shared_url) as racers:
        for number in range(ROUNDS):
            answers = racers.race("acquire", "contended")
            assert sorted(answers) == ["lost"] * (COUNT - 1) + ["won"], f"round {number}"
            lease = leases.read(store, "contended")
            assert lease is not None
            assert lease.holder is not None
            assert (lease.epoch, lease.holder.mount_path, lease.state) == (
                number + 1,
                f"/mnt/{answers.index('won')}",
                "held",
            )
            racers.release()
    store.close()
