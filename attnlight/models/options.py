"""Options of the networks, as configurations and checkpoints give them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NotRequired, TypedDict, TypeVar, get_args, get_type_hints

from attnlight.errors import InputError, did_you_mean
from attnlight.models.attention import AttentionName, NormalizerName, RandomAttentionName
from attnlight.models.encoders import EncoderName

Initialization = Literal["default", "xavier"]
AttendTo = Literal["states", "states_and_embeddings"]
DropoutOn = Literal["context", "logits"]
PairDecoder = Literal["tanh", "affine"]
TaggerEncoder = Literal["transformer", "bilstm", "tokens"]
TranslationAttention = Literal["additive", "uniform", "general", "dot", "scaled_dot", "none"]
ReadoutName = Literal["study", "text", "residual"]


class CustomNetwork(TypedDict):
    """A custom network: an `AttentionModel` made from these arguments and those of the corpus.

    Its constructor receives the entries of the corpus's spec that it names, and `num_classes`.
    """

    class_path: str
    init_args: NotRequired[dict[str, Any]]


@dataclass(frozen=True)
class ClassifierNet:
    """A classifier that reads a text through attention over its words, or over its sentences.

    Args:
        hierarchical: Compose words to sentences and sentences to the text, each with a separate
            encoder and attention; needs a corpus with sentences.
        encoder: The encoder that turns embeddings into the states attended to. `orthogonal_lstm` is an
            LSTM from the first token to the last whose states are orthogonal to the mean of those before
            (Mohankumar et al. 2020).
        attend_to: What attention weights and the classification layer reads: `states`, or each state and
            the embedding below it, one after the other (Tutek & Snajder 2020).
        attention: The scoring function of a state. `random_by_token` and `random_by_text` are drawn
            once and not trained, by the token, or by the token and the index of its text.
        normalizer: From scores to weights that sum to 1. `sparsemax` (Martins & Astudillo 2016) and
            `entmax15` (Peters et al. 2019) give weights of exactly 0 on the mask too.
        embedding_size: Size E of a token embedding.
        hidden_size: Size of the encoder's states, per direction for the recurrent ones.
        attention_size: Size of additive attention's hidden layer; null: half a state.
        embedding_scale: Standard deviation of randomly drawn embeddings.
        embedding_dropout: Dropout on token embeddings, before the (word) encoder.
        sentence_dropout: Dropout on sentence vectors, before the sentence encoder.
        dropout: Dropout of the classification layer.
        dropout_on: `context`, before that layer, or `logits`, after it as Serrano & Smith's code.
        initialization: `xavier`, as Serrano & Smith: Xavier-uniform weights of affine maps and from
            a recurrent network's input, orthogonal ones from its state, biases of zero (their GRUs
            start some at 1, meant for the forget gate of an LSTM); `default` is torch's.
    """

    hierarchical: bool = False
    encoder: EncoderName = "bilstm"
    attend_to: AttendTo = "states"
    attention: AttentionName | RandomAttentionName = "additive"
    normalizer: NormalizerName = "softmax"
    embedding_size: int = 300
    hidden_size: int = 128
    attention_size: int | None = None
    embedding_scale: float = 0.1
    embedding_dropout: float = 0.0
    sentence_dropout: float = 0.0
    dropout: float = 0.0
    dropout_on: DropoutOn = "context"
    initialization: Initialization = "default"


@dataclass(frozen=True)
class PairNet:
    """A classifier of pairs, whose query attends over the words of a passage.

    Args:
        encoder: The encoder that turns the passage's embeddings into the states attended to.
        attend_to: As of `ClassifierNet`, of the passage.
        attention: The scoring function of a state and the query.
        normalizer: From scores to weights, as of `ClassifierNet`.
        decoder: The layers after attention. `tanh`, as Jain & Wallace: a hidden layer of half a
            state's size that reads the passage and the query, not affine in attention; `affine`: the
            sum of an affine layer over each.
        share: Encode the query with the passage's embeddings and encoder; otherwise, as published,
            it has its own.
        query_encoder: The encoder of the query; null: one like the passage's.
        embedding_size: Size E of a token embedding.
        hidden_size: Size of the encoders' states, per direction for the recurrent ones.
        attention_size: Size of additive attention's hidden layer; null: half a state.
        embedding_scale: Standard deviation of randomly drawn embeddings.
        embedding_dropout: Dropout on token embeddings.
        dropout: Dropout of the decoder's context.
    """

    encoder: EncoderName = "bilstm"
    attend_to: AttendTo = "states"
    attention: AttentionName = "additive"
    normalizer: NormalizerName = "softmax"
    decoder: PairDecoder = "tanh"
    share: bool = False
    query_encoder: EncoderName | None = None
    embedding_size: int = 300
    hidden_size: int = 128
    attention_size: int | None = None
    embedding_scale: float = 1.0
    embedding_dropout: float = 0.0
    dropout: float = 0.0


@dataclass(frozen=True)
class TaggerNet:
    """A tagger that reads each token's sentence through self-attention.

    Args:
        encoder: `transformer`: a linear map and sinusoidal positions below the layers of attention;
            `bilstm`: a BiLSTM instead; `tokens`: an affine map and tanh of each token alone.
        readout: The layers after the last attention. `study`: residual, feed-forward, layer norm
            and affine layer, as in Yang's (2020) released encoder; not affine in attention.
            `text`: an affine layer over the concatenated heads, as in the text of that report; a
            token then influences its own tag only through its attention to itself. `residual`: an
            affine layer over the sum of these and the token's state.
        layers: Layers of attention; those below the last have residual and feed-forward parts.
        heads: Heads of each.
        normalizer: From scores to weights in each, as of `ClassifierNet`.
        hidden_size: Size D of a state.
        filter_size: Size within the feed-forward parts.
        embedding_size: Size of a word's embedding.
        feature_size: Size of each feature's embedding.
        embedding_scale: Standard deviation of randomly drawn embeddings.
        dropout: Dropout on the input of the first layer.
        attention_dropout: Dropout on attention weights.
        relu_dropout: Dropout within the feed-forward parts.
    """

    encoder: TaggerEncoder = "transformer"
    readout: ReadoutName = "study"
    layers: int = 1
    heads: int = 4
    normalizer: NormalizerName = "softmax"
    hidden_size: int = 128
    filter_size: int = 128
    embedding_size: int = 100
    feature_size: int = 32
    embedding_scale: float = 0.1
    dropout: float = 0.2
    attention_dropout: float = 0.2
    relu_dropout: float = 0.2


@dataclass(frozen=True)
class Seq2SeqNet:
    """A translation network, whose decoder attends to the states of the source.

    Args:
        encoder: The encoder of the source.
        attention: `additive`, `general`, `dot`, `scaled_dot` or `uniform`; `none`: the encoder's last
            states alone.
        step: `bahdanau`: attention is of the decoder's state before a step; `luong`: after it; null:
            the latter for dot products.
        normalizer: From scores to weights, as of `ClassifierNet`.
        embedding_size: Size E of a token embedding.
        hidden_size: Size of the encoder's states, per direction.
        decoder_size: Size of the decoder's state; null: `hidden_size`.
        attention_size: Size of additive attention's hidden layer; null: that of the decoder's state.
        embedding_scale: Standard deviation of randomly drawn embeddings of the source.
        initialization: Standard deviation of all parameters in the beginning, .01 as Pruthi et al.;
            null: torch's.
        dropout: Dropout on embeddings and before the map to the vocabulary.
        teacher_forcing: Probability that the word before is the true one in training; evaluation
            always gives the true one.
    """

    encoder: Literal["bigru", "bilstm"] = "bigru"
    attention: TranslationAttention = "additive"
    step: Literal["bahdanau", "luong"] | None = None
    normalizer: NormalizerName = "softmax"
    embedding_size: int = 256
    hidden_size: int = 512
    decoder_size: int | None = None
    attention_size: int | None = None
    embedding_scale: float = 0.1
    initialization: float | None = None
    dropout: float = 0.5
    teacher_forcing: float = 0.5


Group = TypeVar("Group")


def group_of(kind: type[Group], options: Group | Mapping[str, Any], group: str = "net") -> Group:
    """A group of options, with defaults for those that are not given; messages call it `group`.

    Raises:
        InputError: An option is unknown, is null where it may not be, or is a dropout outside [0, 1).
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    given: dict[str, Any] = dict(vars(options) if isinstance(options, kind) else options or {})  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    for name, value in given.items():
        if name not in names:
            hint = f"{did_you_mean(name, names)}; expected one of: {', '.join(names)}"
            raise InputError(f"{group} has no option {name!r}{hint}.")
        if value is None and type(None) not in get_args(hints[name]):
            raise InputError(f"{group}.{name} is null; expected a value.")
        if name.endswith("dropout") and not 0 <= value < 1:
            raise InputError(f"{name} is {value}; it must be at least 0 and below 1.")
    return kind(**given)
