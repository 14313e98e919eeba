"""The files of a corpus's folder without those of runs in it."""

import os
from pathlib import Path
from tempfile import mkdtemp

from attnlight.storage.run_folder import is_run

_LOGS = ("wandb", "lightning_logs")


def without_runs(folder: Path, scratch: Path) -> Path:
    """The folder or, where commands run in it have left runs, links in `scratch` to other files.

    Runs are left out with the folder of their experiment, and so are logs of other runs.
    """
    files, complete = [], True
    for place, folders, names in os.walk(folder, followlinks=False):
        inside = {name: Path(place, name) for name in folders if name not in _LOGS}
        kept = [
            name for name, path in inside.items() if not any(map(is_run, (path, *path.glob("*/"))))
        ]
        complete &= len(kept) == len(folders)
        folders[:] = kept
        files += [Path(place, name) for name in names]
        files += [link for name in kept if (link := Path(place, name)).is_symlink()]
    if complete:
        return folder
    scratch.mkdir(parents=True, exist_ok=True)
    links = Path(mkdtemp(dir=scratch)) / folder.name  # from which `datasets` derives a name
    for file in files:
        link = links / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    return links
