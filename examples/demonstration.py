"""Five ways of making q, k and v, pre-trained on a toy language and compared on one HTML page.

`make study` runs it, in about two minutes on a CPU. Nothing is downloaded.
"""

import math
import random
import time
from collections import Counter
from pathlib import Path
from string import Template
from typing import Any

import torch
from rich.progress import Progress
from transformers import BertTokenizer, PrinterCallback, Trainer, TrainerCallback, TrainingArguments, set_seed

import sharedqkv
from sharedqkv import SharedQKVConfig, SharedQKVForMaskedLM
from sharedqkv.accounting import count_parameters

FOLDER = Path("runs/demonstration")
VARIANTS = ("standard", "symmetric", "pairwise", "shared", "narrow")
SEEDS = (0, 1)
STEPS, BATCH = 300, 64
TRAINING_SENTENCES, HELD_OUT_SENTENCES = 8000, 500
MASKS, LENGTH = 3, 26

ROLES = {  # what one does, what many do, and to what
    "baker": ("bakes", "bake", ("bread", "cakes")),
    "doctor": ("heals", "heal", ("wounds", "fevers")),
    "farmer": ("grows", "grow", ("corn", "wheat")),
    "painter": ("paints", "paint", ("walls", "doors")),
    "pilot": ("flies", "fly", ("planes", "gliders")),
    "singer": ("sings", "sing", ("songs", "hymns")),
    "tailor": ("sews", "sew", ("coats", "shirts")),
    "writer": ("writes", "write", ("letters", "books")),
}
NAMES = ("anna", "eva", "hugo", "karl", "mia", "nora", "paul", "tom")
PLACES = ("bridge", "garden", "market", "mill", "river", "tower")
ADJECTIVES = ("clever", "happy", "old", "quiet", "tall", "young")
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

Row = dict[str, list[int]]
Losses = dict[str, list[float]]  # by variant, one a seed


def perhaps_described(rng: random.Random, noun: str) -> str:
    return rng.choice(("", rng.choice(ADJECTIVES) + " ")) + noun


def places(rng: random.Random, at_least: int) -> str:
    """Phrases that come between the words that belong together, with nouns of either number."""
    nouns = [perhaps_described(rng, rng.choice(PLACES)) for _ in range(rng.randint(at_least, 2))]
    return "".join(f"{rng.choice(('behind', 'near'))} the {noun}{rng.choice(('', 's'))} " for noun in nouns)


def agreement(rng: random.Random) -> str:
    """The verb agrees with a subject that stands apart: the old bakers near the mill bake bread ."""
    role = rng.choice(list(ROLES))
    one, many, objects = ROLES[role]
    ending, verb = rng.choice((("", one), ("s", many)))
    return f"the {perhaps_described(rng, role)}{ending} {places(rng, 1)}{verb} {rng.choice(objects)} ."


def recall(rng: random.Random) -> str:
    """What one does follows from a role told before: anna the baker meets tom the pilot and then tom flies planes ."""
    people = list(zip(rng.sample(NAMES, 2), rng.sample(list(ROLES), 2), strict=True))
    first, second = (f"{name} the {perhaps_described(rng, role)}" for name, role in people)
    actor, role = rng.choice(people)
    verb, _, objects = ROLES[role]
    return f"{first} meets {second} {places(rng, 0)}and then {actor} {verb} {rng.choice(objects)} ."


def write_corpus(seed: int) -> tuple[list[str], list[str]]:
    """Sentences to train on and sentences held out, all distinct."""
    rng = random.Random(seed)
    sentences: dict[str, None] = {}
    while len(sentences) < TRAINING_SENTENCES + HELD_OUT_SENTENCES:
        sentences[rng.choice((agreement, recall))(rng)] = None
    return list(sentences)[HELD_OUT_SENTENCES:], list(sentences)[:HELD_OUT_SENTENCES]


def build_tokenizer(sentences: list[str]) -> BertTokenizer:
    words = sorted({word for sentence in sentences for word in sentence.split()})
    return BertTokenizer(vocab={word: index for index, word in enumerate((*SPECIAL_TOKENS, *words))})


def mask(sentences: list[str], tokenizer: BertTokenizer, seed: int) -> list[Row]:
    """Rows with MASKS words hidden, and labels for these positions only."""
    rng = random.Random(seed)
    encoded = tokenizer(sentences, padding="max_length", max_length=LENGTH)
    rows = []
    for tokens, attention_mask in zip(encoded["input_ids"], encoded["attention_mask"], strict=True):
        positions = sorted(rng.sample(range(1, sum(attention_mask) - 1), MASKS))
        labels = [tokens[position] for position in positions]
        hidden = [tokenizer.mask_token_id if i in positions else token for i, token in enumerate(tokens)]
        row = {"input_ids": hidden, "attention_mask": attention_mask, "masked_positions": positions, "labels": labels}
        rows.append(row)
    return rows


def unigram_loss(training: list[Row], held_out: list[Row]) -> float:
    """Loss of guessing the hidden words by their frequency, without looking at the sentence."""
    counts = Counter(label for row in training for label in row["labels"])
    hidden = [label for row in held_out for label in row["labels"]]
    return -sum(math.log(counts[label] / counts.total()) for label in hidden) / len(hidden)


def build_config(variant: str, vocab_size: int) -> SharedQKVConfig:
    return SharedQKVConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attention_variant=variant,
        norm_placement="pre",
    )


class AdvanceBar(TrainerCallback):
    def __init__(self, progress: Progress, task: Any):
        self.progress, self.task = progress, task

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.progress.advance(self.task)


def pretrain(config: SharedQKVConfig, seed: int, training: list[Row], held_out: list[Row], bar: AdvanceBar) -> float:
    """Train from scratch; gives the held-out loss."""
    set_seed(seed)
    arguments = TrainingArguments(
        output_dir=str(FOLDER),
        seed=seed,
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=HELD_OUT_SENTENCES,
        learning_rate=3e-3,
        warmup_steps=STEPS // 10,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    model = SharedQKVForMaskedLM(config)
    trainer = Trainer(model, arguments, train_dataset=training, eval_dataset=held_out, callbacks=[bar])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer.evaluate()["eval_loss"]


def compare(training: list[Row], held_out: list[Row], vocab_size: int) -> Losses:
    losses: Losses = {variant: [] for variant in VARIANTS}
    with Progress() as progress:
        task = progress.add_task("", total=len(VARIANTS) * len(SEEDS) * STEPS)
        for variant in VARIANTS:
            config = build_config(variant, vocab_size)
            for seed in SEEDS:
                progress.update(task, description=f"{variant:>9}, seed {seed}")
                losses[variant].append(pretrain(config, seed, training, held_out, AdvanceBar(progress, task)))
    return losses


def draw_losses(losses: Losses, bar: float) -> str:
    """One dot a seed on a scale from no loss to the loss of guessing."""
    shapes = []
    for row, variant in enumerate(VARIANTS):
        y = 20 + 26 * row
        shapes.append(f'<text y="{y}" dy="4">{variant}</text><path d="M90,{y} H320"/>')
        shapes += [f'<circle cx="{90 + 230 * loss / bar:.1f}" cy="{y}" r="5"/>' for loss in losses[variant]]
    return "".join(shapes)


def table_rows(losses: Losses, vocab_size: int) -> str:
    counts = {variant: count_parameters(build_config(variant, vocab_size)) for variant in VARIANTS}
    rows = []
    for variant in VARIANTS:
        saved = 1 - counts[variant].qkv / counts["standard"].qkv
        mean, half_range = sum(losses[variant]) / len(SEEDS), (max(losses[variant]) - min(losses[variant])) / 2
        cells = (f"{counts[variant].model:,}", f"{saved:.1%}", f"{mean:.3f} ± {half_range:.3f}")
        rows.append(f"<tr><th>{variant}</th>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return "\n".join(rows)


PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>sharedqkv demonstration</title><style>
:root { color-scheme: light dark; --line: #ccc; --mark: #0b62a8 }
@media (prefers-color-scheme: dark) { :root { --line: #444; --mark: #6db6f2 } }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } .note { border-left: 4px solid var(--mark); padding-left: 1rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { padding: .3rem 0 .3rem .4rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: bottom }
th:first-child { text-align: left; padding-left: 0 } td { white-space: nowrap }
@media (max-width: 30rem) { table { font-size: .8rem } }
svg { width: min(100%, 28rem); font-size: 14px; fill: currentColor }
path { stroke: var(--line) } circle { fill: var(--mark) }
</style></head><body><h1>Five ways of making queries, keys and values</h1>
<p class="note"><strong>This proves nothing about the paper's claim.</strong> Two seeds of a tiny model on toy text, at
one learning rate, show that the package works from text to table. How the variants compare on real text is open.</p>
<table><thead><tr><th>variant</th><th>parameters</th><th>q/k/v saved</th><th>held-out loss</th></tr></thead>
<tbody>$rows</tbody><tfoot><tr><th colspan="3">the bar to beat: unigram entropy</th><td>$bar</td></tr></tfoot></table>
<p>Lower is better; ± is half the distance between the two seeds. The bar is the loss of guessing by word frequency
alone. “q/k/v saved” counts the weights that make queries, keys and values; <em>narrow</em> also halves the output
projection, which brings the whole to the size of <em>shared</em>.</p>
<svg viewBox="0 0 340 170" role="img" aria-label="Held-out loss of every seed, from 0 to the bar">
<path d="M90,5 V140 M320,5 V140"/>$plot<text x="86" y="160">0</text>
<text x="340" y="160" text-anchor="end">the bar: $bar</text></svg>
<p>Every dot is one seed. $setting</p><p><small>$origin Again: <code>make study</code>.</small></p></body></html>
""")
SETTING = f"""The model fills in {MASKS} hidden words a sentence: verbs agree with a subject that stands apart (“the old
bakers near the mill bake bread”), names recall a role (“anna the baker meets tom the pilot and then tom flies planes”).
It trains for {STEPS} steps of {BATCH} sentences out of {TRAINING_SENTENCES:,}; {HELD_OUT_SENTENCES} others are held
out, with the same words hidden for all variants. Seeds differ in starting weights and in the order of sentences."""


def write_page(losses: Losses, bar: float, vocab_size: int, seconds: float) -> Path:
    origin = f"sharedqkv {sharedqkv.__version__}, torch {torch.__version__}, {seconds:.0f} s on this machine."
    rows, plot = table_rows(losses, vocab_size), draw_losses(losses, bar)
    page = PAGE.substitute(rows=rows, plot=plot, bar=f"{bar:.3f}", setting=SETTING, origin=origin)
    unfinished = FOLDER / "report.html.unfinished"
    unfinished.write_text(page, encoding="utf-8")
    return unfinished.replace(FOLDER / "report.html")


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    # The matrices are too small to gain from threads, which wait for each other on a busy machine.
    torch.set_num_threads(1)
    started = time.monotonic()
    training_sentences, held_out_sentences = write_corpus(seed=0)
    tokenizer = build_tokenizer(training_sentences)
    epochs = math.ceil(STEPS * BATCH / TRAINING_SENTENCES)
    training = [row for epoch in range(epochs) for row in mask(training_sentences, tokenizer, seed=1 + epoch)]
    held_out = mask(held_out_sentences, tokenizer, seed=0)
    losses = compare(training, held_out, len(tokenizer))
    bar = unigram_loss(training, held_out)
    print(f"report: {write_page(losses, bar, len(tokenizer), time.monotonic() - started)}")


if __name__ == "__main__":
    main()
