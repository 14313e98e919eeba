"""`attnlight env`: what a report of a fault needs to say of the machine."""

import os
import platform
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version

from attnlight import __version__
from attnlight.cli.arguments import VerbParser
from attnlight.data.prepared import cache_root

# pip's name of a requirement, at its beginning.
_NAME = re.compile(r"[\w.-]+")


def main(argv: Sequence[str]) -> int:
    """Print versions, devices, the cache and the variables that attnlight reads."""
    what = "Print versions, devices, the cache and variables."
    VerbParser("env", description=what).parse_args(argv)
    import torch

    print(f"attnlight {__version__}, Python {platform.python_version()}, {platform.platform()}")
    try:
        named = requires("attnlight") or []
    except PackageNotFoundError:  # a checkout on PYTHONPATH
        named = ["torch", "lightning", "datasets", "transformers"]
    matches = [_NAME.match(text) for text in named if 'extra == "dev"' not in text]
    for name in sorted({match[0] for match in matches if match}):
        try:
            print(f"{name} {version(name)}")
        except PackageNotFoundError:
            print(f"{name} is not installed")
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    names += ["mps"] if torch.backends.mps.is_available() else []
    print(f"devices: {', '.join(names) or 'no accelerator'}; {os.cpu_count()} cores")
    root = cache_root()
    files = [path for path in root.rglob("*") if path.is_file()] if root.is_dir() else []
    size = sum(path.stat().st_size for path in files) / 1e9
    print(f"cache: {root}, {len(files)} files, {size:.2f} GB")
    for name in sorted(name for name in os.environ if name.startswith("ATTNLIGHT_")):
        print(f"{name}={os.environ[name]}")
    return 0
