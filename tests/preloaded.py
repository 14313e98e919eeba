"""What the processes have imported that `tests.commands.attnlight_on_two` forks."""

import os
from importlib import import_module

os.environ["OMP_NUM_THREADS"] = "1"
for module in ("datasets", "wandb", *(f"attnlight.{n}" for n in ("callbacks", "cli", "tasks"))):
    import_module(module)
