"""Do attributions depend on what the model has learned?"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution import DEFAULT_METHODS, build_attributions
from attnlight.batch import AttentionOutput, HasOwnParameters, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.digests import text_digest
from attnlight.errors import InputError
from attnlight.functional.correlation import rank_agreement
from attnlight.functional.ranking import TIE
from attnlight.functional.readout.instances import other_items
from attnlight.models.build import build_model
from attnlight.models.parts import part_names, with_parameters
from attnlight.models.readout import Readout
from attnlight.reference.base_spec import read_base

_ARCHITECTURE = ("problem", "net", "spec")  # hyperparameters that a network is built from
_OF_BASES = {"spec", "base", "guide_checkpoint", "inherited"}  # those that differ between seeds
_NO_OBJECTIVE = {"objective": {"lambda_deceive": 0.0}}  # what a task without penalties leaves out


class Sanity(InterpretabilityTest):
    """Rank correlation of attributions before and after the model's parameters are randomised.

    The cascade of Adebayo et al. (2018): the parameters of the decoder are drawn anew, then also
    those of the attention, the encoder and the embeddings, or of the parts that the network names
    (`part_names`), as the network draws them when it is built: word vectors are not read again. All
    models explain the class that the trained model predicts. Spearman's correlation over the items
    of a row, of scores with their signs (`signed`) and of their sizes (`sizes`), by the label L of
    each method:

    * `signed_<k>_<L>`, `sizes_<k>_<L>`: the trained model and the one whose first k parts are random.
    * `signed_random_<L>`, `sizes_random_<L>`: two models, all of whose parts are random.
    * `signed_seeds_<L>`, `sizes_seeds_<L>`: the trained model and that of `against`, which is the
      correlation to expect of explanations that depend on what is learned.

    Parameters are drawn once. Intervals resample texts, so that another `seed` may give values
    outside them.

    Scores within 1e-5 of the row's largest are ties. A correlation is undefined if either model's
    scores tie all items or one of them is NaN. If rows are tokens (a tagger), a method that deletes
    items has no score of the token itself, which is left out. Scores that do not depend on the
    parameters (`random`, `external`) correlate perfectly, and fail.

    Args:
        methods: Names of attribution methods, or mappings such as
            `{name: occlusion, replacement: delete, label: deletion}`.
        against: A run of the same configuration with another seed, or its checkpoint; None: none.
        max_instances: Run on this many texts, chosen by a seeded hash; None: all.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    needs_gradients = True
    shows_table = True

    def __init__(
        self,
        methods: Sequence[str | dict[str, Any]] = DEFAULT_METHODS,
        against: str | None = None,
        max_instances: int | None = 500,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(max_instances=max_instances, **options)
        self.methods, self.against = build_attributions(methods, self.name), against
        self._models: dict[str, Any] = {}  # by step, "random" or "seeds", as columns are named
        name = None
        if against is not None:
            path = Path(against).resolve()
            folder = path.parent if path.suffix == ".ckpt" else path
            name = "/".join(folder.parts[-2:])
        self.metadata: dict[str, Any] = {"tie": TIE, "against": name}

    @override
    def prepare(self, around: Surroundings) -> None:
        super().prepare(around)
        own = json.loads(json.dumps(around.hparams, default=str))
        if not own.keys() >= set(_ARCHITECTURE):
            tested = around.owner if isinstance(around.owner, pl.LightningModule) else around.model
            raise InputError(
                f"{self.name} builds the network again, for which {type(tested).__name__} lacks the "
                "options: it needs a task of attnlight."
            )
        if self.against is None:
            return
        corpus = around.corpus
        if corpus is None:
            raise InputError(
                f"against of {self.name} needs the corpus of the run, to compare it with that of "
                f"{self.against}: use `attnlight sanity`."
            )
        self._second = read_base(self.against)
        identity = self._second.identity
        encoding = corpus.encoding
        trained = corpus.fingerprint if encoding is None else encoding.corpus
        vocabulary = text_digest(corpus.tokenizer_json)
        if (identity.corpus, identity.vocabulary) != (trained, vocabulary):
            raise InputError(
                f"{self.against} was trained on another corpus or on other splits of it "
                f"({identity.corpus}, this run on {trained}): compare with a run of the same `data`."
            )
        theirs, ours = _NO_OBJECTIVE | dict(identity.options), _NO_OBJECTIVE | own
        for group in sorted(theirs.keys() & ours.keys() - _OF_BASES):
            other, this = (
                options[group] if isinstance(options[group], dict) else {group: options[group]}
                for options in (theirs, ours)
            )
            for name, value in other.items():
                if value != this.get(name):
                    raise InputError(
                        f"{self.against} is not this run with another seed: its {name} is {value}, "
                        f"here {this.get(name)}."
                    )

    @override
    def begin(self, around: Surroundings) -> None:
        # The models that are compared share the parameters that are not random with the task's model,
        # which stays as it is.
        task: Any = around.owner
        model: Any = task.model
        initial = [initial_parameters(task.hparams, self.seed, draw) for draw in range(2)]
        parts, names = part_names(model), []
        self._models = {}
        for step, part in enumerate(parts.values(), start=1):
            names += part
            values = {name: initial[0][name] for name in names}
            self._models[str(step)] = with_parameters(model, values, [task])
        self._models["random"] = with_parameters(model, initial[1], [task])
        if self.against is not None:
            second: Any = self._second.model
            values = dict(second.named_parameters())
            if all(torch.equal(p.cpu(), values[n]) for n, p in model.named_parameters()):
                raise InputError(
                    f"{self.against} has the parameters of this run: compare with another seed."
                )
            self._models["seeds"] = with_parameters(model, values, [task])
            self.metadata |= {"against_fingerprint": self._second.identity.fingerprint}
        self.metadata |= {"parts": list(parts)}
        compared = [str(len(parts)), *(n for n in ("seeds", "random") if n in self._models)]
        self.measures = tuple(f"signed_{k}_{label}" for label in self.methods for k in compared)
        super().begin(around)

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        if not self._models:
            raise InputError(f"{self.name} has no models to compare with before `begin`.")
        target, others = output.logits.argmax(-1), other_items(batch, output)
        scores: dict[str, dict[str, Tensor]] = {}
        for name, model in {"trained": readout.model, **self._models}.items():
            with torch.no_grad():
                found = model.eval()(batch).apply(Tensor.detach)
            scores[name] = {
                label: method(model, batch, found, target) for label, method in self.methods.items()
            }
        columns: dict[str, Any] = {}
        for name in self._models:
            reference = str(len(self.metadata["parts"])) if name == "random" else "trained"
            for label in self.methods:
                pair = scores[reference][label], scores[name][label]
                known = output.mask & (others | ~(pair[0].isnan() | pair[1].isnan()))
                sizes = pair[0].abs(), pair[1].abs()
                for kind, (one, other) in {"signed": pair, "sizes": sizes}.items():
                    correlation = rank_agreement(one, other, known, ["spearman"])["spearman"]
                    columns[f"{kind}_{name}_{label}"] = correlation
        return columns


def initial_parameters(hparams: Mapping[str, Any], seed: int, draw: int) -> dict[str, Tensor]:
    """Parameters as a task's network draws them, by name.

    They depend on the seed and the number of the draw alone, and are not those with which a run of
    the same seed started, to which its trained parameters are close.
    """
    digest = hashlib.sha256(f"sanity {seed} {draw}".encode()).digest()
    with torch.random.fork_rng(devices=[]):
        # The generator of the CPU alone: `torch.manual_seed` would reset those of GPUs too.
        torch.default_generator.manual_seed(int.from_bytes(digest[:7], "big"))
        model: Any = build_model(*(hparams[name] for name in _ARCHITECTURE))
        if isinstance(model, HasOwnParameters):  # it starts from those of a pretrained model
            model.draw_parameters()
    return dict(model.named_parameters())
