"""Runs one task as a pod does: inputs.pb, task, outputs.pb or error.pb.

python -m tests.integrations.flyte_pod MODULE TASK OUTPUT_DIRECTORY [INPUTS]
"""

from __future__ import annotations

import asyncio
import sys

import flyte.errors
from flyte._internal.runtime.convert import convert_from_native_to_error
from flyte._internal.runtime.entrypoints import load_and_run_task
from flyte._internal.runtime.io import upload_error
from flyte.models import ActionID, RawDataPath


async def run(module: str, task: str, output: str, inputs: str | None = None) -> None:
    await load_and_run_task(
        action=ActionID(name=f"action-{task}", run_name="run-7", project="p", domain="d", org="o"),
        raw_data_path=RawDataPath(path=output),
        output_path=output,
        run_base_dir=output,
        version="1",
        controller=None,
        resolver="flyte._internal.resolvers.default.DefaultTaskResolver",
        resolver_args=["mod", module, "instance", task],
        input_path=inputs,
    )


async def main(module: str, task: str, output: str, inputs: str | None = None) -> None:
    """Reports the errors that Flyte's program in a pod does (flyte/_bin/runtime.py), no others."""
    try:
        await run(module, task, output, inputs)
    except (flyte.errors.RuntimeSystemError, flyte.errors.RuntimeUserError) as error:
        found = convert_from_native_to_error(error)
        await upload_error(found.err, output, recoverable=found.recoverable)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
