#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# What the tokenizers library makes of a text, for accel to be compared with.
#     library.py golden DIR            writes the files of this directory anew
#     library.py train DIR BYTES VOCAB a text of so many bytes and two tokenizers
#     library.py compare FILE TEXT BIN are the ids in BIN those of the library?
import json
import os
import random
import struct
import sys

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,  # noqa: E402
                        pre_tokenizers, processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Scripts, symbols, digits of other scripts, combining marks, letters of Unicode 16.
BLOCKS = [(0x41, 0x5B), (0x61, 0x7B), (0xC0, 0x250), (0x370, 0x400), (0x400, 0x530),
          (0x530, 0x600), (0x600, 0x700), (0x900, 0x980), (0xE00, 0xE80), (0x10A0, 0x1100),
          (0x1E00, 0x2000), (0x3040, 0x3100), (0x4E00, 0x5200), (0xAC00, 0xAD00),
          (0x1F300, 0x1F700), (0x10400, 0x10450), (0x1D400, 0x1D800), (0x660, 0x66A),
          (0x966, 0x970), (0x2150, 0x2190), (0x2460, 0x2500), (0x300, 0x370),
          (0x20A0, 0x20D0), (0x2000, 0x2070), (0xFE00, 0xFE10), (0x1C80, 0x1C90),
          (0xA7C0, 0xA7E0), (0x105C0, 0x105F4), (0x20000, 0x20100), (0xE000, 0xE010),
          (0xE0100, 0xE0110), (0x00, 0x80)]
GLUE = [" ", " ", " ", "  ", "\n", "\r\n", "\n\n", "\t", "\u00a0", "\u2009", "\u3000",
        "\u0085", "\u2028", " \n ", "   \n\n  ", "'s", "'S", "'\u017f", "'re", "'RE ",
        "'ll", "'Ll", "'t", "'D", "n't ", "...", " !!", "?\n", "!\r\n\r\n", "-", "12",
        "1234", "123 4567", "", " 7", "\u200d", "\ufe0f", "<|endoftext|>",
        "<|begin_of_text|>", " <mask> ", "<r>  ", "<r> <mask>", " token ", "tokens",
        " 1/2\u00bd ", " '", "''s", "\x00", "\x1f", "\x7f"]
WORDS = ["naïve", "Größe", "Привет", "мир", "こんにちは世界", "你好,世界", "안녕하세요",
         "مرحبا", "שלום", "नमस्ते", "สวัสดี", "👩‍👩‍👧‍👦", "🇩🇪", "e\u0301", "1٣٤٥٦",
         "x=1;\n\tif (a<b) {\r\n", "don't", "I'LL", "it's", "½", "²", "Ⅷ", "the", "training",
         "of", "a", "model", "and", "its", "weights", "for (int i = 0; i < n; i++)\n"]


def text_of(size):
    draw = random.Random(5)
    parts, n = [], 0
    while n < size:
        if draw.random() < 0.4:
            part = draw.choice(WORDS)
        else:
            block = draw.choice(BLOCKS)
            part = "".join(chr(draw.randrange(*block))
                           for _ in range(draw.choice((1, 1, 2, 3, 4, 6, 9, 15))))
        part += draw.choice(GLUE)
        parts.append(part)
        n += len(part.encode())
    return "".join(parts)


def tokenizer_of(kind, text, vocab):
    t = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    t.decoder = decoders.ByteLevel()
    if kind == "gpt2":
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        special = ["<|endoftext|>"]
    else:
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        special = []
    t.train_from_iterator(
        [text[i:i + 10000] for i in range(0, len(text), 10000)],
        trainers.BpeTrainer(vocab_size=vocab, special_tokens=special, show_progress=False,
                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if kind == "llama3":
        t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>",
                              AddedToken("<mask>", lstrip=True, special=True)])
        t.add_tokens([AddedToken("<r>", rstrip=True),
                      AddedToken("token", single_word=True)])
        t.post_processor = processors.TemplateProcessing(
            single="<|begin_of_text|> $A",
            special_tokens=[("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])
    return t


def write(path, text):
    with open(path, "w", encoding="utf-8", newline="") as f:
        f.write(text)


def golden(out):
    text = text_of(24000)
    write(f"{out}/mixed.txt", text)
    for kind in "gpt2", "llama3":
        t = tokenizer_of(kind, text, 700)
        as_json = json.loads(t.to_str())
        if kind == "gpt2":  # the form of files before 2024, and the two files
            as_json["model"]["merges"] = [" ".join(m) for m in as_json["model"]["merges"]]
            os.makedirs(f"{out}/gpt2", exist_ok=True)
            t.model.save(f"{out}/gpt2")
        write(f"{out}/{kind}.json", json.dumps(as_json, ensure_ascii=False, indent=0) + "\n")
        ids = Tokenizer.from_file(f"{out}/{kind}.json").encode(text).ids
        with open(f"{out}/{kind}.ids", "wb") as f:
            f.write(struct.pack(f"<{len(ids)}H", *ids))


def train(out, size, vocab):
    text = text_of(size)
    write(f"{out}/text", text)
    for kind in "gpt2", "llama3":
        tokenizer_of(kind, text, vocab).save(f"{out}/{kind}.json")


def compare(tokenizer, text, tokens):
    with open(text, encoding="utf-8", newline="") as f:
        want = Tokenizer.from_file(tokenizer).encode(f.read(), add_special_tokens=False).ids
    with open(tokens, "rb") as f:
        header, body = f.read(1024), f.read()
    magic, version, count = struct.unpack("<3i", header[:12])
    width = {(20240520, 1): "H", (20240801, 7): "I"}[magic, version]
    have = struct.unpack(f"<{count}{width}", body)
    for i, (a, b) in enumerate(zip(have, want)):
        if a != b:
            sys.exit(f"id {i} is {a}, the library's {b}")
    if len(have) != len(want):
        sys.exit(f"{len(have)} ids, the library's {len(want)}")
    print(f"{count} equal ids")


if sys.argv[1] == "golden":
    golden(sys.argv[2])
elif sys.argv[1] == "train":
    train(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    compare(*sys.argv[2:5])
