"""The ModelCheckpoint in the real Trainer of Lightning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.plugins.io import AsyncCheckpointIO

import cowfs
from cowfs.blocking import RWVolume
from cowfs.errors import ConflictError, InvalidInputError
from cowfs.integrations.training.lightning import CommitCheckpoints

pytestmark = pytest.mark.filterwarnings("ignore::")


class Model(BoringModel):  # type: ignore[misc] # untyped where lightning is not installed
    fails_at = -1

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.global_step == self.fails_at:
            raise KeyError("the training fails")
        found = super().training_step(batch, batch_idx)
        self.log("train_loss", found["loss"])
        return found


def make_trainer(run: RWVolume, steps: int = 6, **options: Any) -> Trainer:
    chosen = {"every_n_train_steps": 2, "save_last": True, "save_top_k": 1, **options}
    return Trainer(
        max_steps=steps,
        callbacks=[CommitCheckpoints(run, **chosen)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
        limit_val_batches=0,
    )


def test_each_checkpoint_is_a_whole_version(run: RWVolume) -> None:
    make_trainer(run).fit(Model())
    history = run.history()
    assert [each.labels["step"] for each in history] == ["6", "4", "2"]
    for version in history:
        step = version.labels["step"]
        names = sorted(each.name for each in version.files.ls("checkpoints"))
        assert names == [f"epoch=0-step={step}.ckpt", "last.ckpt"], "removed before the commit"
        with version.files.open("checkpoints/last.ckpt") as file:
            assert torch.load(file, weights_only=False)["global_step"] == int(step)
        assert float(version.labels["train_loss"]) > 0
        assert version.labels["epoch"] == "0"


def test_a_run_resumes_from_the_last_whole_checkpoint(run: RWVolume) -> None:
    make_trainer(run, steps=4).fit(Model())
    (run / "checkpoints" / "last.ckpt").write_bytes(b"half")
    assert cowfs.checkpoints(run).resume() is not None
    trainer = make_trainer(run, steps=8)
    trainer.fit(Model(), ckpt_path=run / "checkpoints" / "last.ckpt")
    assert trainer.global_step == 8
    assert [each.labels["step"] for each in run.history()] == ["8", "6", "4", "2"]


def test_a_checkpoint_of_an_exception_is_committed(run: RWVolume) -> None:
    model = Model()
    model.fails_at = 3
    with pytest.raises(KeyError, match="the training fails"):
        make_trainer(run, save_on_exception=True).fit(model)
    assert [each.labels["step"] for each in run.history()] == ["3", "2"]


def test_an_error_of_a_commit_ends_the_training(run: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ConflictError("not committed")

    monkeypatch.setattr(run, "commit", fails)
    with pytest.raises(ConflictError, match="not committed"):
        make_trainer(run).fit(Model())


def test_what_a_volume_cannot_hold_is_refused(run: RWVolume, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="not below the mount"):
        CommitCheckpoints(run, dirpath=tmp_path)
    trainer = Trainer(
        max_steps=1, callbacks=[CommitCheckpoints(run)], plugins=[AsyncCheckpointIO()], logger=False, accelerator="cpu"
    )
    with pytest.raises(InvalidInputError, match="AsyncCheckpointIO"):
        trainer.fit(Model())
