"""A neural tagger for chapter 14, a program of its own: BiLSTM-CRF with words and their letters, PyTorch.

    python bilstm.py TEXTS ANSWER SEED PATIENCE

TEXTS holds "train", "dev" and "test": {name: [[words, labels] of a sentence]}, as JSON. Training ends when
accuracy on "dev" has not risen for PATIENCE epochs; the weights of the best epoch tag.

Words in lower case as vectors, drawn at random (no text beside the training part is read), a convolution over
letters, a bidirectional LSTM, a linear layer, and the CRF of chapter 02 (Lample and others 2016; Ma and Hovy
2016).
"""

import json
import random
import resource
import sys
import time
from collections import Counter
from itertools import chain
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

WORD, LETTER, FILTERS, HIDDEN = 100, 25, 30, 100  # sizes; HIDDEN is that of each direction
BATCH, RATE, DROPOUT, CLIP, EPOCHS = 16, 2e-3, 0.5, 5.0, 60
PAD, UNKNOWN = 0, 1


class Tagger(nn.Module):
    """log p(labels | words) of padded batches: words (B, T), letters (B, T, C), length (B,), y (B, T)."""

    def __init__(self, n_words, n_letters, n_labels):
        super().__init__()
        self.word = nn.Embedding(n_words, WORD, padding_idx=PAD)
        self.letter = nn.Embedding(n_letters, LETTER, padding_idx=PAD)
        self.convolution = nn.Conv1d(LETTER, FILTERS, 3, padding=1)
        self.lstm = nn.LSTM(WORD + FILTERS, HIDDEN, batch_first=True, bidirectional=True)
        self.linear, self.drop = nn.Linear(2 * HIDDEN, n_labels), nn.Dropout(DROPOUT)
        self.start = nn.Parameter(torch.zeros(n_labels))
        self.pair = nn.Parameter(torch.zeros(n_labels, n_labels))

    def scores(self, words, letters, length):
        """(B, T, L): of labels, from the sentence as a whole; that of the start is in the first."""
        spelt = self.convolution(self.letter(letters).flatten(0, 1).transpose(1, 2)).relu()
        # whatever longer words are beside it
        spelt = (spelt * (letters.flatten(0, 1) != PAD)[:, None]).amax(2)
        x = torch.cat([self.word(words), spelt.view(*words.shape, FILTERS)], 2)
        packed = pack_padded_sequence(self.drop(x), length, batch_first=True, enforce_sorted=False)
        x = self.linear(self.drop(pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]))
        return torch.cat([x[:, :1] + self.start, x[:, 1:]], 1)

    def loss(self, words, letters, length, y):
        """-log p in nats, summed over sentences: log Z by the forward recursion minus the score of y."""
        node, mask = self.scores(words, letters, length), torch.arange(words.shape[1]) < length[:, None]
        alpha = node[:, 0]
        for t in range(1, node.shape[1]):
            new = torch.logsumexp(alpha[:, :, None] + self.pair, 1) + node[:, t]
            alpha = torch.where(mask[:, t, None], new, alpha)
        own = (node.gather(2, y[..., None])[..., 0] * mask).sum()
        return alpha.logsumexp(1).sum() - own - (self.pair[y[:, :-1], y[:, 1:]] * mask[:, 1:]).sum()

    @torch.no_grad()
    def best(self, words, letters, length):
        """The best labels of each sentence, by Viterbi."""
        node, found = self.scores(words, letters, length), []
        for x, n in zip(node, length.tolist(), strict=True):
            score, back = x[0], []
            for t in range(1, n):
                high, before = (score[:, None] + self.pair).max(0)
                score, back = high + x[t], [*back, before]
            path = [int(score.argmax())]
            for before in reversed(back):
                path.append(int(before[path[-1]]))
            found.append(path[::-1])
        return found


def padded(rows):
    """Lists of numbers as rows of one tensor."""
    return pad_sequence([torch.tensor(row) for row in rows], True)


def batches(sentences, known, letters, labels=None, size=BATCH):
    """Padded tensors of sentences in their order; with labels also those."""
    for i in range(0, len(sentences), size):
        some, gold = zip(*sentences[i : i + size], strict=True)
        ids = padded([known.get(word.lower(), UNKNOWN) for word in words] for words in some)
        spelt = padded([letters.get(c, UNKNOWN) for c in word] for words in some for word in words)
        length = [len(words) for words in some]
        batch = [ids, pad_sequence(torch.split(spelt, length), True), torch.tensor(length)]
        if labels:
            batch.append(padded([labels[label] for label in y] for y in gold))
        yield batch


def main(texts, answer, seed, patience):
    torch.set_num_threads(1)
    torch.manual_seed(int(seed))
    order, parts = random.Random(int(seed)), json.loads(Path(texts).read_text(encoding="utf-8"))
    train, begin = parts["train"], time.process_time()
    counts = Counter(word.lower() for words, _ in train for word in words)
    known = {word: i for i, word in enumerate(counts, 2)}
    rare = torch.tensor([False, False, *(n == 1 for n in counts.values())])
    seen = {c for words, _ in train for word in words for c in word}
    letters = {c: i for i, c in enumerate(sorted(seen), 2)}
    gold = [label for _, y in parts["dev"] for label in y]
    labels = {label: i for i, label in enumerate(sorted({label for _, y in train for label in y}))}
    names, model = list(labels), Tagger(len(known) + 2, len(letters) + 2, len(labels))
    step, curve, best = torch.optim.Adam(model.parameters(), RATE), [], (-1.0, 0, None)

    def tag(sentences):
        model.eval()
        found = [path for batch in batches(sentences, known, letters) for path in model.best(*batch)]
        return [[names[y] for y in path] for path in found]

    while len(curve) < EPOCHS and len(curve) - best[1] < int(patience):
        model.train()
        order.shuffle(train)
        for words, *rest in batches(train, known, letters, labels):
            hidden = rare[words] & (torch.rand(words.shape) < 0.5)  # so that the unknown word is learnt, too
            step.zero_grad()
            (model.loss(words.masked_fill(hidden, UNKNOWN), *rest) / len(words)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            step.step()
        said = chain.from_iterable(tag(parts["dev"]))
        right = [a == b for a, b in zip(gold, said, strict=True)]
        curve.append((time.process_time() - begin, sum(right) / len(right)))
        print(*curve[-1], flush=True)
        if curve[-1][1] > best[0]:
            best = curve[-1][1], len(curve), {name: x.clone() for name, x in model.state_dict().items()}
    model.load_state_dict(best[2])
    begin = time.process_time()
    found = {"labels": tag(parts["test"]), "tagging": time.process_time() - begin}
    found |= {"weights": sum(x.numel() for x in model.parameters()), "curve": curve, "best": best[1]}
    found |= {"MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, "version": torch.__version__}
    Path(answer).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
