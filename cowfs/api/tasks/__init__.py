"""Volumes as arguments and results of functions: `cowfs.task`.

task_volume   what a call mounts, and the notation SOURCE[:PATH][:MODE]
scope         the volumes of the call that is running: `cowfs.current`
returned      replaces writers in a result by their versions
call          opens the volumes of one call, publishes them, or leaves them
arguments     a text given for a volume
stopping      SIGTERM ends the body of a call, not the process: for `task`
systems       the task system that the program runs in, for `produced_by`
task          the decorator
program       a program in place of the function: `cowfs exec`
supervising   the program's process: forwards signals, reaps orphans, hands over the terminal
mapping       a function for each shard, each in a fork, and one merge: `cowfs.map`
checkpoints   the commits of a training loop, in a thread: `cowfs.checkpoints`
signals       receives all signals of this process while a program runs: for `program`
"""
