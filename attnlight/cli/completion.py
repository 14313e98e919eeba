"""`attnlight completion`: a script by which a shell completes commands, without starting Python."""

import re
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO

from attnlight.cli.arguments import VerbParser
from attnlight.storage.shipped import TRAINED, shipped_configs

DESCRIPTION = "Print a script that completes verbs, options, and shipped configurations and tests."
EPILOG = """\
attnlight completion bash > ~/.local/share/bash-completion/completions/attnlight
attnlight completion zsh >> ~/.zshrc

The script knows what this version has; print it again after another is installed.
"""
SCRIPT = """\
_attnlight() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}}
  local words='' first=''
  case $COMP_CWORD/$before/$verb/$word in
    1/*) words='{verbs}' ;;
    */--tests/*) words='{tests}' first=${{word%"${{word##*,}}"}} ;;
    */--model/*) words='{models}' ;;
    */--data/*) words='{data}' ;;
{options}
    */fit/*) words='{experiments}' ;;
    */study/*) words='{studies}' ;;
    */configs/*) words='{configs}' ;;
    */completion/*) words='bash zsh' ;;
    */explain/*|*/test/*) words='{trained}' ;;
  esac
  COMPREPLY=($(compgen -P "$first" -W "$words" -- "${{word##*,}}"))
}}
complete -o default -F _attnlight attnlight
"""
ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"
# Verbs of the Trainer have a parser of a second or two; these take the options of another.
LIKE = {"validate": "test", "predict": "test", "sanity": "test"}


def main(argv: Sequence[str]) -> int:
    """Print the script of a shell."""
    parser = VerbParser("completion", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("shell", choices=["bash", "zsh"])
    shell, verbs = parser.parse_args(argv).shell, _help(r"^  ([a-z]+) {2,}")
    option = r"(?<![\w-])(--[a-z][\w.+]*)(?<![.])"
    listed = {verb: " ".join(sorted({*_help(option, verb)})) for verb in verbs if verb not in LIKE}
    lines = [f"    */{verb}/-*) words='{listed[LIKE.get(verb, verb)]}' ;;" for verb in verbs]
    shipped = shipped_configs()
    kinds = ("tests", "models", "data", "experiments", "studies")
    stems = {
        kind: " ".join(name.split("/")[1] for name in shipped if name.startswith(f"{kind}/"))
        for kind in kinds
    }
    trained = " ".join(sorted(path.parent.name for path in TRAINED.glob("*/best.ckpt")))
    words = {"verbs": " ".join(verbs), "configs": " ".join(shipped), "trained": trained}
    script = SCRIPT.format(options="\n".join(lines), **words, **stems)
    print(f"{ZSH if shell == 'zsh' else ''}{script}", end="")
    return 0


def _help(pattern: str, *verb: str) -> list[str]:
    """What a pattern finds in the help of attnlight, or of a verb."""
    with redirect_stdout(StringIO()) as said, suppress(SystemExit):
        import_module("attnlight.__main__").main([*verb, "--help"])
    return re.findall(pattern, said.getvalue(), re.MULTILINE)
