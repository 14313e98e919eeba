"""What the user got wrong, in one sentence."""


class InputError(ValueError):
    """A mistake in a file, an option or a corpus, told in one sentence that names it.

    The command line prints the sentence and exits with status 2; no traceback is shown unless
    `ATTNLIGHT_DEBUG=1`.
    """
