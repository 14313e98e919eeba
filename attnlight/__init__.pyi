from attnlight.api.check import check as check
from attnlight.api.explain import explain as explain
from attnlight.api.run import Results as Results
from attnlight.api.run import load as load
from attnlight.api.run import run as run
from attnlight.report.explanation import Explanation as Explanation

__version__: str
