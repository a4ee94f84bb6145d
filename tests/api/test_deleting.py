"""Nobody deletes what is in use, or work that is nowhere else, without saying so."""

from __future__ import annotations

from pathlib import Path

import pytest

from cowfs.blocking import Store, Volume
from cowfs.errors import InvalidStateError, LeaseLostError, NotFoundError

pytestmark = pytest.mark.mount


def test_a_mounted_volume_is_deleted_by_force_only_and_its_work_comes_back(place: Path) -> None:
    volume = Volume.new("v")
    path = volume.mount()
    (path / "f").write_text("committed")
    volume.commit()
    (path / "f").write_text("newer")
    with pytest.raises(InvalidStateError, match="is mounted at"):
        Store().delete("v")
    volume.unmount()
    with pytest.raises(InvalidStateError, match="uncommitted work"):
        Store().delete("v")
    path = volume.mount()
    Store().delete("v", force=True)
    assert [each.name for each in Store().volumes(deleted=True)] == ["v"]
    assert Store().volumes() == []
    with pytest.raises(LeaseLostError, match="was deleted"):
        volume.commit()
    assert (path / "f").read_text() == "newer"
    volume.unmount()
    with pytest.raises(NotFoundError, match="was deleted"):
        Volume.open("v", create=True).mount()

    assert Store().undelete("v")
    again = Store().volume("v")
    path = again.mount()
    assert (path / "f").read_text() == "newer"
    version = again.finalize()
    assert version.is_new
    with version:
        assert (version / "f").read_text() == "newer"
