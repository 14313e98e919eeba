"""`attnlight push`: a run on the Hugging Face hub, with its model card."""

import logging
from pathlib import Path
from typing import Any

from attnlight.cli import card
from attnlight.cli.arguments import VerbParser
from attnlight.data.digests import digests
from attnlight.errors import InputError, one_line
from attnlight.storage.files import read_json
from attnlight.storage.hub import RUN_FILES
from attnlight.storage.model_folder import HUB_ID, require_run

DESCRIPTION = """\
Send a run to the Hugging Face hub: fit.yaml and best.ckpt, its verdicts, and as README.md the card that
`attnlight card` writes. All arrive in one commit or none does. Wherever a model is named, org/name then is
that run."""
EPILOG = """\
attnlight push checkpoints/sst_bilstm/seed0 org/name --private

The token is that of `hf auth login`, or HF_TOKEN. fit.yaml is sent as it is, with the paths in it."""
_USE = """\

## Use

```python
import attnlight

print(*attnlight.explain("{name}", "a text"))
```
"""
_DENIED = {401: "does not know your token", 403: "does not let your token write there"}


def main(argv: list[str]) -> int:
    """Send a run, and print the address of the commit."""
    parser = VerbParser("push", description=DESCRIPTION, epilog=EPILOG)
    add = parser.add_argument
    add("run", metavar="RUN", type=Path, help="checkpoints/<experiment>/<run>")
    add("name", metavar="org/name", help="the repository on the hub")
    add("--private", action="store_true", help="make a repository that only you see")
    add("--overwrite", action="store_true", help="replace what the repository holds")
    options = parser.parse_args(argv)
    if not HUB_ID.fullmatch(options.name):
        raise InputError(f"{options.name!r} is not the id of a repository; expected org/name.")
    run: Path = options.run
    require_run(run)
    files = {p.relative_to(run).as_posix(): p for name in RUN_FILES for p in sorted(run.glob(name))}
    if "best.ckpt" not in files:
        raise InputError(f"there is no checkpoint {run / 'best.ckpt'} to send.")
    (digest,) = digests(run, [files["best.ckpt"]]).values()
    for name, path in files.items():
        checkpoint = name.endswith(".json") and read_json(path).get("checkpoint")
        if checkpoint and not digest.startswith(str(checkpoint)):
            raise InputError(
                f"{path} is the verdict of another checkpoint than best.ckpt: `attnlight test {run} "
                "--tests card --overwrite` makes that of this one."
            )
    card.main([str(run)])
    readme = (run / "report/card.md").read_text("utf-8") + _USE.format(name=options.name)
    print(_commit(options.name, files, readme, options.private, options.overwrite))
    return 0


def _commit(name: str, files: dict[str, Path], readme: str, private: bool, overwrite: bool) -> Any:  # noqa: ANN401
    """The address of the one commit that brings all files to a repository, made where it is missing."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
    from huggingface_hub.errors import HfHubHTTPError

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it warns of each attempt
    hub = HfApi()
    try:
        hub.create_repo(name, private=private, exist_ok=True)
        there = set(hub.list_repo_files(name)) - {".gitattributes"}
        if there and not overwrite:
            raise InputError(
                f"{name} holds {min(there)} and other files on the hub: give another name, or add "
                "--overwrite to replace them."
            )
        gone = [path for path in there - files.keys() if path.startswith("report/verdict")]
        operations: list[Any] = [CommitOperationAdd("README.md", readme.encode())]
        operations += [CommitOperationAdd(path, str(file)) for path, file in files.items()]
        operations += [CommitOperationDelete(path) for path in gone]
        return hub.create_commit(name, operations, commit_message="Send a run").commit_url
    except InputError:
        raise
    except Exception as error:
        reason = isinstance(error, HfHubHTTPError) and _DENIED.get(error.response.status_code)
        remedy = "`hf auth login` stores one that may write" if reason else "nothing was committed"
        reason = reason or f"cannot take the files ({type(error).__name__}: {one_line(error)})"
        raise InputError(f"{name}: the Hugging Face hub {reason}; {remedy}.") from error
