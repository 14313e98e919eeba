"""What measures models of transformers is not collected without it."""

from importlib.util import find_spec

collect_ignore = (
    [] if find_spec("transformers") else ["pretrained.py", "peers.py", "ferret_sets.py"]
)
