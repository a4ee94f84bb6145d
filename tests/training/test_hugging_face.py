"""The callback in the real Trainer, with torch on the processor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainingArguments

import cowfs
from cowfs.blocking import RWVolume
from cowfs.errors import ConflictError, InvalidInputError, InvalidStateError
from cowfs.integrations.training.hugging_face import CommitCheckpoints

pytestmark = pytest.mark.filterwarnings("ignore::")


class Line(torch.nn.Module):  # type: ignore[misc] # untyped where torch is not installed
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x: Any = None, labels: Any = None) -> dict[str, Any]:
        out = self.weight * x
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}


DATA = [{"x": torch.tensor([float(n)]), "labels": torch.tensor([3.0 * n])} for n in range(8)]


def make_trainer(run: RWVolume, output: Path | None = None, steps: int = 6) -> Trainer:
    arguments = TrainingArguments(
        output_dir=output or run / "out",
        max_steps=steps,
        save_steps=2,
        logging_steps=1,
        save_total_limit=1,
        learning_rate=0.01,
        per_device_train_batch_size=2,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    return Trainer(Line(), arguments, train_dataset=DATA, callbacks=[CommitCheckpoints(run, labels={"job": "a"})])


def test_each_checkpoint_is_a_whole_version(run: RWVolume) -> None:
    make_trainer(run).train()
    last = cowfs.checkpoints(run).find_last()
    assert last is not None
    assert [each.labels["step"] for each in last.history()] == ["6", "4", "2"]
    for version in last.history():
        step = version.labels["step"]
        names = {each.name for each in version.files.ls(f"out/checkpoint-{step}")}
        assert {"model.safetensors", "optimizer.pt", "trainer_state.json", "scheduler.pt"} <= names
        assert [each.name for each in version.files.ls("out")] == [f"checkpoint-{step}"], "rotated before the commit"
        assert version.labels["job"] == "a"
        assert float(version.labels["loss"]) > 0


def test_a_run_resumes_from_the_last_whole_checkpoint(run: RWVolume) -> None:
    make_trainer(run, steps=4).train()
    torn = run / "out" / "checkpoint-6"
    torn.mkdir()
    (torn / "trainer_state.json").write_text('{"best')
    assert cowfs.checkpoints(run).resume() is not None
    trainer = make_trainer(run, steps=8)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 8
    assert [each.labels["step"] for each in run.history()] == ["8", "6", "4", "2"]


def test_an_error_of_a_commit_ends_the_training(run: RWVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ConflictError("not committed")

    monkeypatch.setattr(run, "commit", fails)
    with pytest.raises(ConflictError, match="not committed"):
        make_trainer(run).train()


def test_what_a_volume_cannot_hold_is_refused(run: RWVolume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match="not below the mount"):
        make_trainer(run, output=tmp_path / "out").train()
    trainer = make_trainer(run)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(InvalidStateError, match="one writing machine"):
        trainer.callback_handler.on_train_begin(trainer.args, trainer.state, trainer.control)


RANKS = """
import sys
from cowfs.blocking import Volume

sys.path.insert(0, sys.argv[1])
from tests.training.test_hugging_face import make_trainer

run = Volume.open("run")
run.mount()
make_trainer(run, steps=4).train()
import torch.distributed
torch.distributed.destroy_process_group()
"""


def test_two_ranks_are_in_each_version(run: RWVolume, tmp_path: Path) -> None:
    """Rank 0 waits until the other one has written its state."""
    program = tmp_path / "ranks.py"
    program.write_text(RANKS)
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*command, str(program), str(root)], capture_output=True, text=True, timeout=300, cwd=root)
    assert done.returncode == 0, done.stderr
    history = run.history()
    assert [each.labels["step"] for each in history] == ["4", "2"]
    for version in history:
        names = {each.name for each in version.files.ls(f"out/checkpoint-{version.labels['step']}")}
        assert {"rng_state_0.pth", "rng_state_1.pth"} <= names
