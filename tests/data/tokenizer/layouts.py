#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Directories of saved tokenizers, and the ids that AutoTokenizer of transformers 5 gives
# texts from them, for accel to be compared with.
#     layouts.py >layouts.json         (in this directory)
import json
import os
import shutil
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
from transformers import AutoTokenizer  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS = ["Hello world", " it's a  model", "a <mask> b<mask>", "<s>the</s> of<pad>",
         "token<user> tokens <tool>x\n", "naïve<lead>  and\t <lead> a", "<unk>< s>",
         "<|endoftext|>I'LL<|endoftext|> <|endoftext|>\n\n", "", " ", "anwordb word",
         "<image>12 345"]
GPT2 = {"tokenizer_class": "GPT2Tokenizer"}


def token(text, **flags):
    return {"content": text, "lstrip": False, "normalized": False, "rstrip": False,
            "single_word": False, **flags}


def vocab_of(base):
    with open(f"{HERE}/gpt2/vocab.json", encoding="utf-8") as f:
        vocab = json.load(f)
    if base == "roberta":  # its own tokens first, its mask last
        del vocab["<|endoftext|>"]
        names = ["<s>", "<pad>", "</s>", "<unk>", *sorted(vocab, key=vocab.get), "<mask>"]
        vocab = {name: i for i, name in enumerate(names)}
    return vocab


def layout(name, base="gpt2", **files):
    return {"name": name, "base": base, "files": {k + ".json": v for k, v in files.items()}}


LAYOUTS = [
    layout("the model alone", config={"model_type": "gpt2"}),
    layout("added_tokens.json", tokenizer_config=GPT2,
           added_tokens={"<user>": 701, "<tool>": 700},
           special_tokens_map={"additional_special_tokens": ["<user>"],
                               "bos_token": "<|endoftext|>", "pad_token": "<pad>"}),
    layout("added_tokens_decoder", tokenizer_config={
        "tokenizer_class": "GPT2TokenizerFast", "eos_token": "<|endoftext|>",
        "pad_token": "<pad>", "image_token": "<image>", "added_tokens_decoder": {
            "0": token("<|endoftext|>", special=True),
            "701": token("<lead>", lstrip=True, rstrip=True, special=True),
            "700": token("word", single_word=True, normalized=True, special=False)}},
        special_tokens_map={"mask_token": "<mask>"}),
    layout("a space first, a token first", tokenizer_config={
        **GPT2, "add_prefix_space": True, "add_bos_token": True}),
    layout("tokens of one's own", tokenizer_config={
        **GPT2, "bos_token": {"__type": "AddedToken", **token("</s>", normalized=True)},
        "eos_token": "</s>", "unk_token": None, "pad_token": "<pad>",
        "add_bos_token": True, "add_eos_token": True}),
    layout("opt", config={"model_type": "opt"}, special_tokens_map={
        "bos_token": token("</s>", normalized=True),
        "eos_token": token("</s>", normalized=True), "pad_token": "<pad>",
        "unk_token": token("</s>", normalized=True)}),
    layout("roberta", "roberta", config={"model_type": "roberta"}),
    layout("roberta with its map", "roberta", config={"model_type": "roberta"},
           special_tokens_map={"mask_token": token("<mask>", lstrip=True),
                               "cls_token": "</s>"}),
    layout("bart", "roberta", tokenizer_config={
        "tokenizer_class": "BartTokenizer", "add_prefix_space": True,
        "additional_special_tokens": [
            {"__type": "AddedToken", **token("<tool>", lstrip=True)}]}),
    layout("longformer beside a model", "roberta", config={"model_type": "longformer"},
           tokenizer_config={"tokenizer_class": "LongformerTokenizerFast",
                             "extra_special_tokens": ["<user>", "<tool>"]}),
    layout("roberta without its tokens", tokenizer_config={
        "tokenizer_class": "RobertaTokenizer"}),
    layout("tokenizer.json with more tokens", "json", tokenizer_config={
        "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>",
        "added_tokens_decoder": {"0": token("<|endoftext|>", special=True),
                                 "700": token("<tool>", rstrip=True, special=True)},
        "extra_special_tokens": {"image_token": "<image>"}}),
    layout("tokenizer.json with a space first", "json", tokenizer_config={
        **GPT2, "add_prefix_space": True}),
    layout("tokenizer.json alone", "json", config={"model_type": "gpt2"}),
    *[{**layout(f"tokenizer.json with {kind}", "json",
                tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"}),
       "patch": {"post_processor": {"type": kind, "cls": ["A", 33],
                                    "sep": ["<|endoftext|>", 0], **more}}}
      for kind, more in (("RobertaProcessing", {"trim_offsets": True,
                                                "add_prefix_space": False}),
                         ("BertProcessing", {}))],
]
# What AutoTokenizer cuts in another way, or cannot open: the words of the refusal.
REFUSED = [
    {**layout("qwen2", tokenizer_config={"tokenizer_class": "Qwen2Tokenizer"}),
     "refused": "tokenizer_config.json: tokenizer_class 'Qwen2Tokenizer'"},
    {**layout("clip", tokenizer_config={"tokenizer_class": "CLIPTokenizerFast"},
              config={"model_type": "gpt2"}),
     "refused": "tokenizer_config.json: tokenizer_class 'CLIPTokenizerFast'"},
    {**layout("a model's class", config={"model_type": "gpt2",
                                         "tokenizer_class": "BlenderbotTokenizer"}),
     "refused": "config.json: tokenizer_class 'BlenderbotTokenizer'"},
    {**layout("qwen2 as a model", config={"model_type": "qwen2"}),
     "refused": "config.json: model_type 'qwen2'"},
    {**layout("nothing but two files", "roberta"), "refused": "vocab.json: not GPT-2's"},
    {**layout("ends of words", "clip"), "refused": "vocab.json: not GPT-2's"},
    {**layout("tokens in pieces", tokenizer_config={**GPT2, "split_special_tokens": True}),
     "refused": "split_special_tokens is true"},
    {**layout("a wrong id", tokenizer_config=GPT2, added_tokens={"<tool>": 720}),
     "refused": "added_tokens[0] ('<tool>') has id 720, where 700"},
]


def fill(path, lay):
    if lay["base"] == "json":
        with open(f"{HERE}/gpt2.json", encoding="utf-8") as f:
            whole = {**json.load(f), **lay.get("patch", {})}
        with open(f"{path}/tokenizer.json", "w", encoding="utf-8") as f:
            json.dump(whole, f)
    else:
        shutil.copy(f"{HERE}/gpt2/merges.txt", path)
        with open(f"{path}/vocab.json", "w", encoding="utf-8") as f:
            json.dump(vocab_of(lay["base"]), f)
    for name, what in lay["files"].items():
        with open(f"{path}/{name}", "w", encoding="utf-8") as f:
            json.dump(what, f)


for lay in LAYOUTS:
    with tempfile.TemporaryDirectory() as path:
        fill(path, lay)
        t = AutoTokenizer.from_pretrained(path)
        lay["ids"] = [t(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
        lay["framed"] = [t(text)["input_ids"] for text in TEXTS]
json.dump({"texts": TEXTS, "layouts": LAYOUTS + REFUSED}, sys.stdout, ensure_ascii=False,
          indent=None, separators=(",", ":"))
print()
