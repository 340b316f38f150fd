"""Byte-level BPE as in the provenance of the reply lengths: 2,048 ids, one of them the end of a text.

256 bytes, one special token and the merges, learnt on the training paragraphs only. The special token ends every
paragraph in training, so it is the one by which a reply ends itself. It is never added when a prompt is encoded.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 2048
END_OF_TEXT = "<|endoftext|>"


def train_tokenizer(paragraphs: Iterable[str], vocabulary: int = VOCABULARY) -> Tokenizer:
    """Learn the merges. The result has at most `vocabulary` ids; id 0 is `END_OF_TEXT`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,  # pyright: ignore[reportCallIssue]
        special_tokens=[END_OF_TEXT],  # pyright: ignore[reportCallIssue]
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),  # pyright: ignore[reportCallIssue]
        show_progress=False,  # pyright: ignore[reportCallIssue]
    )
    tokenizer.train_from_iterator(paragraphs, trainer=trainer)
    return tokenizer


def lengths(tokenizer: Tokenizer, paragraphs: Iterable[str]) -> list[int]:
    """Tokens of each paragraph encoded alone, nothing added."""
    return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(paragraphs), add_special_tokens=False)]


def stream(tokenizer: Tokenizer, paragraphs: Iterable[str]) -> tuple[list[int], list[int]]:
    """(ids, starts): all paragraphs in one row, `END_OF_TEXT` after each; `starts[i]` is where paragraph i begins."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    if end is None:
        raise ValueError(f"this tokenizer has no {END_OF_TEXT} token: train one with engine.model.bpe")
    ids: list[int] = []
    starts: list[int] = []
    for encoding in tokenizer.encode_batch(list(paragraphs), add_special_tokens=False):
        starts.append(len(ids))
        ids.extend(encoding.ids)
        ids.append(end)
    return ids, starts


def save_tokenizer(tokenizer: Tokenizer, folder: str | Path, positions: int) -> None:
    """Write tokenizer.json and tokenizer_config.json so that `AutoTokenizer` reads the folder."""
    from transformers import PreTrainedTokenizerFast

    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        model_max_length=positions,
    )
    wrapped.save_pretrained(str(folder))
    settings = Path(folder) / "tokenizer_config.json"
    known = json.loads(settings.read_text(encoding="utf-8"))
    known["tokenizer_class"] = "PreTrainedTokenizerFast"  # the name that older and newer transformers know
    settings.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
