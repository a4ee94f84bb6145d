"""A training with torch that is killed at random moments ends as one that never was.

Its checkpoint is two files, written in place, and an optimizer with momentum: one step lost, done
twice or mixed of two states changes every later weight.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import torch

from cowfs.blocking import Volume

KILLS = 20
PROGRAM = """
import sys
import torch
import cowfs
from cowfs.blocking import Volume

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

def train(step):
    data = torch.randn(32, 64, generator=torch.Generator().manual_seed(step))
    optimizer.zero_grad()
    loss = ((model(data) - data.sum(1, keepdim=True)) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss

if sys.argv[1] == "alone":
    for step in range(int(sys.argv[2])):
        train(step)
    torch.save(model.state_dict(), sys.argv[3])
    sys.exit()

run = Volume.open("run", create=True)
run.mount()
saver = cowfs.checkpoints(run)
first = 0
if (last := saver.resume()) is not None:
    model.load_state_dict(torch.load(run / "model.pt"))
    optimizer.load_state_dict(torch.load(run / "optimizer.pt"))
    first = int(last.labels["step"]) + 1
print("resumed", first, flush=True)
for step in range(first, 1_000_000):
    loss = train(step)
    torch.save(model.state_dict(), run / "model.pt")
    torch.save(optimizer.state_dict(), run / "optimizer.pt")
    saver.save(step, loss=loss)
    print("saved", step, flush=True)
"""


def test_a_killed_training_ends_as_one_that_never_was(place: Path) -> None:
    seed = int(os.environ.get("COWFS_MODEL_SEED", random.randrange(1 << 32)))
    print(f"COWFS_MODEL_SEED={seed}")
    moments, reached, began = random.Random(seed), 0, []
    for _ in range(KILLS):
        with subprocess.Popen([sys.executable, "-c", PROGRAM, "run"], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            assert words[:1] == ["resumed"], "it did not resume"
            began.append(int(words[1]))
            assert began[-1] >= reached - 1, "a commit that had ended is lost"
            time.sleep(moments.uniform(0, 0.8))
            process.kill()
            steps = [
                int(line.split()[1]) for line in process.stdout if line.startswith("saved") and line.endswith("\n")
            ]
            reached = max([began[-1], *(step + 1 for step in steps)])
    print("resumed from steps", began)
    run = Volume.open("run")
    last = next(each for each in run.history() if "step" in each.labels)
    run.discard(force=True)
    count = int(last.labels["step"]) + 1
    alone = place / "alone.pt"
    subprocess.run([sys.executable, "-c", PROGRAM, "alone", str(count), str(alone)], check=True, timeout=300)
    with last.files.open("model.pt") as file:
        found = torch.load(file)
    expected = torch.load(alone)
    assert count > KILLS
    assert all(torch.equal(found[name], expected[name]) for name in expected)
