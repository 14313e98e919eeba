"""A tagger that copies: of its heads one has learned where to attend. Run as a module it trains."""

from pathlib import Path

import torch

from attnlight.batch import TextBatch
from attnlight.models import SelfAttentionTagger

CHECKPOINT = Path(__file__).with_name("copying.pt")
LAYER, HEAD = 1, 1  # the head that is trained; queries and keys of the others stay as drawn
LAYERS, HEADS, WORDS, LONGEST = 2, 2, 8, 10


def network() -> SelfAttentionTagger:
    """The tagger with random parameters."""
    torch.manual_seed(0)
    sizes = {"embedding_size": 16, "hidden_size": 32, "filter_size": 32, "feature_size": 4}
    dropouts = dict.fromkeys(("dropout", "attention_dropout", "relu_dropout"), 0.0)
    return SelfAttentionTagger(
        4 + WORDS, WORDS, heads=HEADS, layers=LAYERS, embedding_scale=1.0, **sizes, **dropouts
    )


def texts(count: int, seed: int) -> TextBatch:
    """Random texts of 3 to 10 words; the tag of a word is the word before it, of the first itself."""
    random = torch.Generator().manual_seed(seed)
    words = torch.randint(WORDS, (count, LONGEST), generator=random)
    lengths = torch.randint(3, LONGEST + 1, (count, 1), generator=random)
    mask = torch.arange(LONGEST) < lengths
    labels = words.roll(1, -1)
    labels[:, 0] = words[:, 0]
    return TextBatch(torch.arange(count), (words + 4) * mask, mask, labels.masked_fill(~mask, -100))


def train(steps: int = 700) -> SelfAttentionTagger:
    """The trained tagger, in evaluation mode."""
    model = network().train()
    size = 32 // HEADS
    for number, layer in enumerate(model.attention_layers):
        for part in (layer.get_submodule("query"), layer.get_submodule("key")):
            trained = torch.zeros(32, 1)
            if number == LAYER:
                trained[HEAD * size : (HEAD + 1) * size] = 1
            part.weight.register_hook(lambda gradient, kept=trained: gradient * kept)  # type: ignore[operator, union-attr, misc]
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        batch = texts(64, seed=step)
        loss = torch.nn.functional.cross_entropy(model(batch).logits, batch.labels[batch.mask])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return model.eval()


def trained() -> SelfAttentionTagger:
    """The tagger of the checkpoint, in evaluation mode."""
    model = network()
    model.load_state_dict(torch.load(CHECKPOINT, weights_only=True))
    return model.eval()


if __name__ == "__main__":
    torch.save(train().state_dict(), CHECKPOINT)
