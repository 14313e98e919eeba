"""What the study of a classifier shows, in sentences that follow from its intervals."""

from __future__ import annotations

from attnlight.report.study.comparisons import Reader, beyond, guiding, needed
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.groups import guides, uniforms
from attnlight.report.study.lambdas import selection
from attnlight.report.study.missing import missing
from attnlight.report.study.reading import Study
from attnlight.report.study.sentences import Verdict


def verdicts(study: Study, estimates: Estimates) -> list[Verdict]:
    """The answers to Wiegreffe & Pinter's questions on this corpus."""
    base = study.bases[0]
    uniform, trained = uniforms(study), study.architecture(base)
    found = [
        Verdict("Is attention needed here?", needed(study, estimates, uniform, trained)),
        Verdict(
            "Is the adversary's divergence beyond seed variance?",
            [selection(study), *beyond(study, estimates, base)],
        ),
        Verdict(
            "Do adversarial weights still guide an MLP?",
            guiding(study, estimates, guides(study), Reader()),
        ),
    ]
    lacking = missing(study)
    return [*found, Verdict("What is missing?", lacking)] if lacking else found
