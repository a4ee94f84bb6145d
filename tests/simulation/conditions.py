"""What is frequent in one simulated world, drawn by its seed.

One mixture for all worlds makes most schedules rare: where two machines take one volume from each
other, hardly any head stays unsettled for the length of a collection. So each world has its own:
fewer machines or all of them, few contents (much is equal, so much is found again) or many,
troubles with heads often or seldom and short or long, a collector that is quick or one that is
slow.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

MACHINES = (
    (("ada", "one"), ("bob", "one"), ("cyd", "two")),
    (("ada", "one"), ("bob", "one")),
    (("ada", "one"), ("cyd", "two")),
    (("ada", "one"),),
)
SKEWS_S = (0.0, 30.0, 280.0)
"""A collector refuses to work with a clock that is wrong by more than 300 s."""


@dataclass(frozen=True)
class Conditions:
    machines: tuple[tuple[str, str], ...]  # name, volume
    contents: int  # different ones in the world
    collector_share: int  # turns of the collector beside one of each machine
    collector_rest: int  # turns between two collections, at most
    head_sleeps: float  # a machine sleeps for days with its head in its hand
    head_outages: float  # a machine's heads do not get through for a while
    long_turns: int  # how long these two take
    has_owner: bool  # who deletes volumes and brings them back
    grace_s: float  # for so long they can be brought back
    has_forker: bool  # who forks any version there ever was
    has_merger: bool  # who works in forks of "one", and merges them into it
    has_pusher: bool  # who copies versions to a mirror and back
    has_two_collectors: bool
    has_keeper: bool  # who prunes, tags, rolls back and restores; else all but the newest count as pruned
    has_two_keepers: bool  # one sets a tag, while another prunes
    skews_s: tuple[float, ...]  # of somebody's clock, either way
    stays_away: float  # a machine with uncommitted work is not mounted again for long
    paged: float  # a long list comes in two pages
    has_repairer: bool  # who finds packs damaged, and repairs the store
    times_off_s: float  # the store has several servers: an object's time is off by up to that, either way
    has_slow_puts: bool  # a pack's time is that at which its upload began (S3, in parts)
    altered: float  # an answer is damaged on its way


def conditions_of(seed: int) -> Conditions:
    drawn = random.Random(f"{seed} conditions")
    found = Conditions(
        machines=drawn.choice(MACHINES),
        contents=drawn.choice((6, 12, 24)),
        collector_share=drawn.choice((1, 4)),
        collector_rest=drawn.choice((1, 600)),
        head_sleeps=drawn.choice((0.04, 0.15)),
        head_outages=drawn.choice((0.04, 0.15, 0.3)),
        long_turns=drawn.choice((200, 600)),
        has_owner=drawn.random() < 0.3,
        grace_s=drawn.choice((0.1, 0.1, 60.0)) * 24 * 3600,
        has_forker=drawn.random() < 0.3,
        has_merger=drawn.random() < 0.4,
        stays_away=drawn.choice((0.05, 0.5)),
        has_keeper=drawn.random() < 0.35,
        has_two_keepers=drawn.random() < 0.6,
        skews_s=drawn.choice(((0.0,), (0.0,), SKEWS_S)),
        paged=drawn.choice((0.0, 0.1, 0.5)),
        has_pusher=seed % 3 == 2,
        has_two_collectors=seed % 6 in (2, 3),
        times_off_s=drawn.choice((0.0, 0.0, 5.0)),
        has_slow_puts=drawn.random() < 0.3,
        has_repairer=drawn.random() < 0.3,
        altered=drawn.choice((0.0, 0.0, 0.01)),
    )
    if not found.has_pusher:
        return found
    # A copy takes as many requests as a collection: with few others they meet often.
    return replace(found, machines=MACHINES[-1], collector_share=4, collector_rest=1)
