#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# What transformers 5 makes of config.json files in which two keys say the same thing, or
# keys are absent, for accel to be compared with.
#     rules.py >rules.json             (in this directory)
import json
import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
from transformers import AutoConfig  # noqa: E402

PLAIN = {"rope_type": "default", "rope_theta": 20000.0}
LINEAR = {"type": "linear", "factor": 2.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0}
CLASSIFY = {"architectures": ["BertForSequenceClassification"]}
THREE = {"0": "a", "1": "b", "2": "c"}
NAMES = {
    "gpt2": {"layers": "n_layer", "heads": "n_head", "width": "n_embd",
             "context": "n_positions", "vocab": "vocab_size"},
    "llama": {"layers": "num_hidden_layers", "heads": "num_attention_heads",
              "kv_heads": "num_key_value_heads", "width": "hidden_size",
              "head_width": "head_dim", "hidden": "intermediate_size",
              "vocab": "vocab_size", "context": "max_position_embeddings"},
    "bert": {"layers": "num_hidden_layers", "heads": "num_attention_heads",
             "width": "hidden_size", "hidden": "intermediate_size",
             "vocab": "vocab_size", "context": "max_position_embeddings",
             "types": "type_vocab_size"},
}
CONFIGS = [("llama", c) for c in (
    {}, {"rope_theta": 500000.0}, {"rope_parameters": PLAIN},
    {"rope_theta": 500000.0, "rope_parameters": PLAIN},
    {"rope_theta": 500000.0, "rope_parameters": {"rope_type": "default"}},
    {"rope_theta": 500000.0, "rope_parameters": {}},
    {"rope_parameters": PLAIN, "rope_scaling": LINEAR},
    {"rope_parameters": {**LLAMA3, "rope_theta": 20000.0}, "rope_scaling": LINEAR},
    {"rope_parameters": LINEAR, "rope_scaling": {**LLAMA3, "rope_theta": 70.0}},
    {"rope_theta": 300.0, "rope_parameters": PLAIN, "rope_scaling": LINEAR},
    {"rope_theta": 300.0, "rope_parameters": PLAIN,
     "rope_scaling": {**LINEAR, "rope_theta": 70.0}},
    {"rope_parameters": PLAIN, "rope_scaling": {}},
    {"rope_parameters": PLAIN, "rope_scaling": None},
    {"rope_parameters": None, "rope_scaling": LINEAR},
    {"rope_parameters": PLAIN, "rope_scaling": {"type": "default"}},
    {"rope_scaling": {"factor": 4.0}}, {"rope_scaling": {**LINEAR, "factor": 0.5}},
    {"rope_scaling": {**LLAMA3, "type": "linear"}},
    {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 64}},
    {"rope_scaling": LLAMA3}, {"rope_parameters": LLAMA3, "max_position_embeddings": 512},
    {"rope_scaling": LLAMA3, "max_position_embeddings": 512,
     "original_max_position_embeddings": 128},
    {"partial_rotary_factor": 0.5,
     "rope_parameters": {**PLAIN, "partial_rotary_factor": 1.0}},
    {"num_key_value_heads": None, "head_dim": None},
    {"num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 256},
    {"num_hidden_layers": 2, "n_layer": 3, "n_embd": 64})]
CONFIGS += [("gpt2", c) for c in (
    {}, {"n_layer": 2, "num_hidden_layers": 3}, {"num_hidden_layers": 3, "n_layer": 2},
    {"n_layer": 2, "num_hidden_layers": 3, "n_embd": 64, "hidden_size": 128, "n_head": 2,
     "num_attention_heads": 4, "n_positions": 100, "max_position_embeddings": 200},
    {"hidden_size": 128, "num_attention_heads": 4, "max_position_embeddings": 200},
    {"n_ctx": 77, "n_positions": 88})]
CONFIGS += [("bert", c) for c in (
    {}, {**CLASSIFY}, {**CLASSIFY, "num_labels": 5}, {**CLASSIFY, "id2label": THREE},
    {**CLASSIFY, "id2label": THREE, "num_labels": 3},
    {**CLASSIFY, "id2label": THREE, "num_labels": 5},
    {**CLASSIFY, "id2label": None, "num_labels": 4},
    {**CLASSIFY, "label2id": {"a": 0, "b": 1, "c": 2}})]


def want_of(kind, path):
    c = AutoConfig.from_pretrained(path)
    want = {ours: getattr(c, theirs) for ours, theirs in NAMES[kind].items()}
    if kind == "llama":
        rope = c.rope_parameters
        want["kind"] = rope["rope_type"]
        want["theta"] = rope["rope_theta"]
        if rope["rope_type"] != "default":
            want["factor"] = rope["factor"]
        if rope["rope_type"] == "llama3":
            want["original"] = rope["original_max_position_embeddings"]
    if kind == "bert" and c.architectures:
        want["labels"] = c.num_labels
    return want


rules = []
for kind, keys in CONFIGS:
    with tempfile.TemporaryDirectory() as path:
        config = {"model_type": kind, **keys}
        with open(f"{path}/config.json", "w", encoding="utf-8") as f:
            json.dump(config, f)
        rules.append({"config": config, "want": want_of(kind, path)})
sys.stdout.write("[\n" + ",\n".join(json.dumps(r) for r in rules) + "\n]\n")
