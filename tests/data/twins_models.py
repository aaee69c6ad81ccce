# SPDX-License-Identifier: Apache-2.0
"""examples/train (GPT-2) and examples/finetune_bert in PyTorch alone.

Usage: twins_models.py gpt2|bert DIR DATA STEPS

Writes random weights with their config.json into DIR, for --model, trains from them with
the batches of 1 and of 2 ranks, and writes DIR/1.jsonl and DIR/2.jsonl. DATA is a text or
the pairs of the test, whose words are all in DIR/vocab.txt.
"""
import json
import os
import struct
import sys

import torch
from torch.nn import functional as F

from twins import order, rate

BATCH, SEQ = 8, 32
GPT2 = dict(model_type="gpt2", n_layer=2, n_head=4, n_embd=32, n_positions=SEQ, vocab_size=256,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
BERT = dict(model_type="bert", num_hidden_layers=2, num_attention_heads=4, hidden_size=32,
            intermediate_size=64, max_position_embeddings=16, type_vocab_size=2,
            hidden_act="gelu", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            id2label={"0": "a", "1": "b", "2": "c"})


def write_model(folder, config, weights):
    with open(f"{folder}/config.json", "w") as f:
        json.dump(config, f)
    header, body = {}, b""
    for name, value in weights.items():
        raw = value.detach().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape),
                        "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    with open(f"{folder}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def layer_weights(p, prefix, shapes):
    for name, shape in shapes.items():
        norm = len(shape) == 1 and name.endswith("weight")
        p[prefix + name] = torch.randn(shape) * 0.05 + (1 if norm else 0)


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


# ---- GPT-2 ------------------------------------------------------------------------

def gpt2_weights():
    w, p = GPT2["n_embd"], {}
    layer_weights(p, "", {"wte.weight": (256, w), "wpe.weight": (SEQ, w), "ln_f.weight": (w,),
                          "ln_f.bias": (w,)})
    for i in range(GPT2["n_layer"]):
        layer_weights(p, f"h.{i}.", {
            "ln_1.weight": (w,), "ln_1.bias": (w,), "ln_2.weight": (w,), "ln_2.bias": (w,),
            "attn.c_attn.weight": (w, 3 * w), "attn.c_attn.bias": (3 * w,),
            "attn.c_proj.weight": (w, w), "attn.c_proj.bias": (w,),
            "mlp.c_fc.weight": (w, 4 * w), "mlp.c_fc.bias": (4 * w,),
            "mlp.c_proj.weight": (4 * w, w), "mlp.c_proj.bias": (w,)})
    return p


def gpt2_loss(p, rows):
    w, count = GPT2["n_embd"], GPT2["n_head"]
    x = F.embedding(rows[:, :-1], p["wte.weight"]) + p["wpe.weight"]
    for i in range(GPT2["n_layer"]):
        def of(name):
            return p[f"h.{i}.{name}"]

        def dense(y, name):
            return y @ of(name + ".weight") + of(name + ".bias")
        y = F.layer_norm(x, (w,), of("ln_1.weight"), of("ln_1.bias"))
        q, k, v = (heads(z, count) for z in dense(y, "attn.c_attn").split(w, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + dense(y.transpose(1, 2).flatten(2), "attn.c_proj")
        y = F.layer_norm(x, (w,), of("ln_2.weight"), of("ln_2.bias"))
        x = x + dense(F.gelu(dense(y, "mlp.c_fc"), approximate="tanh"), "mlp.c_proj")
    x = F.layer_norm(x, (w,), p["ln_f.weight"], p["ln_f.bias"])
    return F.cross_entropy((x @ p["wte.weight"].T).flatten(0, 1), rows[:, 1:].flatten())


def gpt2_samples(folder, path):
    text = torch.tensor(list(open(path, "rb").read()))
    return [text[i:i + SEQ + 1] for i in range(0, len(text) - SEQ, SEQ)]


# ---- BERT -------------------------------------------------------------------------

def bert_weights(vocab):
    w, p = BERT["hidden_size"], {}
    norm = {"LayerNorm.weight": (w,), "LayerNorm.bias": (w,)}

    def dense(name, out, into):
        return {name + ".weight": (out, into), name + ".bias": (out,)}
    layer_weights(p, "bert.embeddings.", {
        "word_embeddings.weight": (vocab, w), "position_embeddings.weight": (16, w),
        "token_type_embeddings.weight": (2, w), **norm})
    for i in range(BERT["num_hidden_layers"]):
        prefix = f"bert.encoder.layer.{i}."
        for name in ("query", "key", "value"):
            layer_weights(p, prefix + "attention.self.", dense(name, w, w))
        layer_weights(p, prefix + "attention.output.", {**dense("dense", w, w), **norm})
        layer_weights(p, prefix, dense("intermediate.dense", 64, w))
        layer_weights(p, prefix + "output.", {**dense("dense", w, 64), **norm})
    layer_weights(p, "", {**dense("bert.pooler.dense", w, w), **dense("classifier", 3, w)})
    return p


def bert_loss(p, rows):
    w, count = BERT["hidden_size"], BERT["num_attention_heads"]
    ids, segments, mask, labels = (torch.stack(part) for part in zip(*rows))

    def dense(y, name):
        return F.linear(y, p[name + ".weight"], p[name + ".bias"])

    def norm(y, name):
        return F.layer_norm(y, (w,), p[name + ".weight"], p[name + ".bias"], 1e-12)
    at = "bert.embeddings."
    x = (F.embedding(ids, p[at + "word_embeddings.weight"]) +
         F.embedding(segments, p[at + "token_type_embeddings.weight"]) +
         p[at + "position_embeddings.weight"][:ids.shape[1]])
    x = norm(x, at + "LayerNorm")
    for i in range(BERT["num_hidden_layers"]):
        at = f"bert.encoder.layer.{i}."
        q, k, v = (heads(dense(x, f"{at}attention.self.{n}"), count)
                   for n in ("query", "key", "value"))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :] > 0)
        y = dense(y.transpose(1, 2).flatten(2), at + "attention.output.dense")
        x = norm(x + y, at + "attention.output.LayerNorm")
        y = dense(F.gelu(dense(x, at + "intermediate.dense")), at + "output.dense")
        x = norm(x + y, at + "output.LayerNorm")
    x = torch.tanh(dense(x[:, 0], "bert.pooler.dense"))
    return F.cross_entropy(dense(x, "classifier"), labels)


def bert_samples(folder, path):
    number = {word: i for i, word in enumerate(open(f"{folder}/vocab.txt").read().split())}
    rows, lines = [], open(path).read().splitlines()
    for line in lines[:len(lines) - len(lines) // 10]:  # the rest is held out
        label, one, two = line.split("\t")
        parts = [["[CLS]", *one.split(), "[SEP]"], [*two.split(), "[SEP]"]]
        pad = 12 - len(parts[0]) - len(parts[1])
        ids = [number[word] for part in parts for word in part]
        segments = [0] * len(parts[0]) + [1] * len(parts[1])
        rows.append([torch.tensor(ids + [number["[PAD]"]] * pad),
                     torch.tensor(segments + [0] * pad),
                     torch.tensor([1] * len(ids) + [0] * pad), torch.tensor(int(label))])
    return rows


# ---- training ---------------------------------------------------------------------

def train(out, start, loss_of, rows, ranks, steps, decay):
    p = {name: value.clone().requires_grad_() for name, value in start.items()}
    groups = [dict(params=[v for v in p.values() if v.ndim > 1], weight_decay=decay),
              dict(params=[v for v in p.values() if v.ndim < 2], weight_decay=0)]
    adamw = torch.optim.AdamW(groups, 1e-3, (0.9, 0.95), 1e-8)
    batch = BATCH * ranks
    for step in range(steps):
        some = [rows[order(1, len(rows), step * batch + i)] for i in range(batch)]
        for group in adamw.param_groups:
            group["lr"] = rate(step + 1, steps, steps // 10, 1e-3)
        loss = loss_of(p, some)
        adamw.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        adamw.step()
        out.write('{"step":%d,"loss":%.9g,}\n' % (step + 1, loss.item()))


def main():
    kind, folder, data, steps = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    torch.manual_seed(7)
    os.makedirs(folder, exist_ok=True)
    if kind == "gpt2":
        config, start, decay = GPT2, gpt2_weights(), 0.1
        rows = gpt2_samples(folder, data)
    else:
        vocab = len(open(f"{folder}/vocab.txt").read().split())
        config, start, decay = dict(BERT, vocab_size=vocab), bert_weights(vocab), 0
        rows = bert_samples(folder, data)
    write_model(folder, config, start)
    for ranks in (1, 2):
        with open(f"{folder}/{ranks}.jsonl", "w") as out:
            train(out, start, lambda p, some: gpt2_loss(p, torch.stack(some))
                  if kind == "gpt2" else bert_loss(p, some), rows, ranks, steps, decay)


main()
