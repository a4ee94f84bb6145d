"""A machine that mounts one volume, writes, commits, sleeps, is killed, and comes back: the real
session over the simulated store."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from cowfs.base.ids import ChunkHash, PackId, WriteId
from cowfs.control import MountOptions, MountSpec
from cowfs.errors import CorruptError, CowfsError, LeaseHeldError, LeaseLostError, NotFoundError
from cowfs.format import keys
from cowfs.format.heads import Intent
from cowfs.machine.working_copy import WorkingCopy
from cowfs.session import opening
from cowfs.session.session import Session
from cowfs.store.refs import refs
from cowfs.version.commit import CommitRequest
from tests.simulation.promises import Violation
from tests.simulation.world import Actor, Killed, World
from tests.version.working_volume import ReadingVolume, WritableView

NAMES = 5


class View(WritableView):
    def __init__(self, session: Session) -> None:
        self.engine = session.engine
        self.residency = session.residency


class Machine(Actor):
    def __init__(self, world: World, name: str, volume: str) -> None:
        super().__init__(world, name)
        self.volume = volume
        self.home = world.home / name
        self.mounts = 0
        self.tree: dict[bytes, bytes] = {}  # what the working copy holds, as far as the machine knows
        self.is_dirty = False
        self.before: dict[bytes, bytes] = {}  # what files held before they were written last
        self.pins: set[str] = set()  # that have protected what the working copy holds
        self.is_asked = False  # by a collector, to acknowledge its list at once
        self._began = 0  # turn: of the mount

    @property
    def waits(self) -> bool:
        """Its heads do not get through: the heartbeat goes on."""
        return self.outage_until > self.world.turns

    def live(self) -> None:
        """One mount, from the lease to its end."""
        self.is_dead = False
        self._began = self.world.turns
        discard = threading.Event()
        stack = ExitStack()
        self._remember_pin()
        try:
            session = opening.open_session(self._spec(), stack, discard)
            assert session.writer is not None
            self.world.note_opened(self.volume, session.writer.lease.epoch)
            self._check_what_was_kept(session)
            left = self.random.choice((2, 4, 8, 60))
            while left > 0 and not (self.world.is_over or self.is_dead):
                self._act(session)
                left -= not self.waits  # with a head whose outcome is unknown it goes on until the outcome is known
            if self.random.random() < 0.15:
                discard.set()
                self.is_dirty = False
        except (LeaseHeldError, LeaseLostError) as error:
            self.world.note(self, f"{error.message}")
            if isinstance(error, LeaseLostError):
                discard.set()
                self.is_dirty = False
        except (CorruptError, NotFoundError) as error:
            self._give_up(error)
        except CowfsError as error:
            self.world.note(self, f"ends: {error!r}")
        except Killed:
            pass
        finally:
            self._end(stack)
        if discard.is_set() and self.is_dead:  # the working copy was not reached: it is dropped before the next mount
            WorkingCopy(self.home / "working").delete()
        self._stay_away()

    def _stay_away(self) -> None:
        """With work kept, for as long as a collection or two: nothing but a hold, or the pin of a
        killed writer, protects then what the work stands on and what it has uploaded."""
        conditions = self.world.conditions
        if self.is_dirty and not self.world.is_over and self.random.random() < conditions.stays_away:
            self.asleep = conditions.long_turns
            self.world.kept_until = self.world.turns + conditions.long_turns
            self.world.pass_s(3 * 3600.0)  # what is garbage now is no longer too young
            self.world.note(self, "stays away, with work kept")
            for other in self.world.actors:
                other.heed_trouble()

    def _spec(self) -> MountSpec:
        self.mounts += 1
        cache = "cache" if self.random.random() < 0.5 else f"cache{self.mounts}"
        return MountSpec(
            store_url="memory://simulated",
            volume=self.volume,
            mode="rw",
            source=self.volume,
            mount_path=f"/mnt/{self.name}",
            registration=self.name,
            socket="/nowhere",
            log="/nowhere",
            working_copy=str(self.home / "working"),
            options=MountOptions(
                cache_dir=self.home / cache, max_uploads=1, take_over=self.random.random() < 0.5
            ).resolved(),
        )

    def _end(self, stack: ExitStack) -> None:
        try:
            stack.close()
        except CowfsError as error:
            self.world.note(self, f"closing: {error!r}")
        except Killed:
            stack.close()

    def _give_up(self, error: CowfsError) -> None:
        """Only a working copy whose pin was taken for dead may find that its base is gone."""
        self.world.note(self, f"cannot go on: {error!r}")
        if "was deleted" in error.message:
            return  # it may be brought back, and the work with it
        if self.world.was_damaged_since(self._began):
            return  # somebody is about to restore it, or has
        self._remember_pin()
        if not self._has_lost_a_pin():
            raise Violation(f"{self.name}: {error!r}") from error
        self.is_dirty = False
        WorkingCopy(self.home / "working")._delete_locked()

    def _remember_pin(self) -> None:
        working_copy = WorkingCopy(self.home / "working")
        if not self.is_dirty:
            self.pins.clear()
        if working_copy.exists and working_copy.state.pin is not None:
            self.pins.add(working_copy.state.pin)

    def _has_lost_a_pin(self) -> bool:
        """Others' dead pins are no excuse."""
        newest = [refs.newest(self.world.objects, refs.pin(WriteId.from_hex(key.split("/")[1]))) for key in self.pins]
        return any(found is not None and found[1].kind == "dead" for found in newest)

    def _check_what_was_kept(self, session: Session) -> None:
        found = {path: data for path, data in View(session).tree().items() if data is not None}
        version = session.base.version_id
        if self.is_dirty:
            if found != self.tree and found != self._published(session):
                raise Violation(f"{self.name} kept {_short(self.tree)} and finds {_short(found)}")
        elif version is not None and found != self.world.trees[version]:
            raise Violation(f"{self.name} finds {_short(found)} in version {version}")
        self.tree = found
        self.is_dirty = session.engine.is_dirty()

        def remember(intent: Intent, record: object = session.writer.committer._publisher._record_intent) -> None:  # type: ignore[union-attr]
            self.world.remember(intent.version_id, self._asked)
            record(intent)  # type: ignore[operator]

        assert session.writer is not None
        session.writer.committer._publisher._record_intent = remember

    def _published(self, session: Session) -> dict[bytes, bytes] | None:
        version = session.base.version_id
        return self.world.trees[version] if version is not None else {}

    # -- what a machine does

    def _act(self, session: Session) -> None:
        self._remember_pin()
        action = self.random.choices(
            (self._write, self._commit, self._beat, self._upload, self._restore),
            (2, 1, 12, 1, 0) if self.waits else (8, 5, 5, 2, 3),
        )[0]
        if self.is_asked:
            action, self.is_asked = self._answer, False
        try:
            action(session)
        except LeaseLostError:
            raise
        except (CorruptError, NotFoundError):
            raise
        except CowfsError as error:
            self.world.note(self, f"{action.__name__}: {error!r}")

    def _write(self, session: Session) -> None:
        for _ in range(self.random.randrange(1, 4)):
            path = b"f%d" % self.random.randrange(NAMES)
            if path in self.tree and self.random.random() < 0.3:
                View(session).unlink(path)
                del self.tree[path]
            else:
                data = content(self.random.randrange(self.world.conditions.contents))
                if self.random.random() < 0.3:  # what was there before comes back: its pack may be garbage by now
                    data = self.before.get(path, data)
                View(session).write(path, data)
                self.before[path] = self.tree.get(path, data)
                self.tree[path] = data
            self.is_dirty = True
        self.world.note(self, f"has {_short(self.tree)}")

    def _commit(self, session: Session) -> None:
        assert session.writer is not None
        self._asked = dict(self.tree)
        words = f"{self.random.random()}" if self.random.random() < 0.3 else ""
        request = CommitRequest(message=words, given=frozenset({"message"} if words else ()))
        base = session.writer.committer.commit(request)
        assert base.version_id is not None
        if self.world.trees[base.version_id] != self.tree:
            raise Violation(
                f"{self.name} committed {_short(self.tree)} and got {_short(self.world.trees[base.version_id])}"
            )
        self.is_dirty = False
        self.world.commits += 1
        self.world.note(self, f"committed {base.version_id.hex()[:8]} as head {base.head_number}")

    def _beat(self, session: Session) -> None:
        assert session.writer is not None
        session.writer.lease.renew()
        session.writer.committer.acknowledge_collections()

    def _answer(self, session: Session) -> None:
        assert session.writer is not None
        session.writer.committer.acknowledge_collections()

    def _upload(self, session: Session) -> None:
        assert session.writer is not None
        session.writer.committer.upload_quiet(idle_s=0)

    def _restore(self, session: Session) -> None:
        """A chunk is damaged or gone in the store, a read finds it, the file is written anew and
        committed: then it is whole."""
        files = [path for path in self.tree if len(self.tree[path]) > 0]
        if not files or session.engine.is_dirty() or session.base.version_id is None:
            return
        path = self.random.choice(files)
        view = View(session)
        index = session.residency._index
        (row,) = index.content(view.find(path))[0]
        pack = PackId(index.pack_ids()[row[3]])
        kept = self.world.objects.objects.get(keys.pack(pack))
        if kept is None or keys.pack(pack) in self.world.damaged | self.world.spoiled:
            return
        self.world.damaged.add(keys.pack(pack))
        self._spoil(pack, row[4], kept)
        try:
            session.engine.trim_staging(0)
            session.engine.trim_cache(0)
            try:
                view.read(path)
                return
            except CorruptError:
                pass
            self.world.note(self, f"finds {path!r} damaged in pack {pack}, and restores it")
            view.write(path, self.tree[path])
            self.is_dirty = True
            before = session.base
            self._commit(session)
            if session.base != before:
                self._check_restored(session, path, pack, ChunkHash(row[2]))
        finally:
            self.world.objects.set(keys.pack(pack), kept)
            self.world.damaged.discard(keys.pack(pack))
            self.world.healed = self.world.turns
            self.world.check_store(f"{self.name}: what was damaged is there again")

    def _spoil(self, pack: PackId, offset: int, kept: tuple[bytes, int]) -> None:
        if self.random.random() < 0.3:
            self.world.objects.set(keys.pack(pack), None)
            return
        data = bytearray(kept[0])
        data[offset] ^= 0xFF
        self.world.objects.set(keys.pack(pack), (bytes(data), kept[1]))

    def _check_restored(self, session: Session, path: bytes, pack: PackId, hash: ChunkHash) -> None:
        version = session.base.version_id
        assert version is not None
        try:
            with ReadingVolume(self.world.objects, version, self.home / f"check{self.world.commits}") as reader:
                assert reader.read(path) == self.tree[path]
        except CorruptError as error:
            if self.world.repairing:
                return  # the chunk was found in another pack, and nobody has told this writer that it is lost
            raise Violation(f"{self.name} restored {path!r}, and it is not whole in {version}: {error}") from error
        self.world.restored += 1


def content(number: int) -> bytes:
    return b"content %d " % number * (1 + number * 20)


def _short(tree: dict[bytes, bytes] | None) -> str:
    return (
        "nothing"
        if tree is None
        else " ".join(f"{path.decode()}={data[8:11].decode().strip()}" for path, data in sorted(tree.items()))
    )
