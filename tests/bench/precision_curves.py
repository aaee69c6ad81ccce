#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# Training to the same place in every precision: a GPT-2-shaped and a Llama-shaped model on real
# text (this project's own pages and sources, as bytes), 1000 steps each on the CPU, from the same
# values and with the same batches. None comes twice: what a model knows by heart says little
# about precision, and differs by more than 1 % from run to run. The final loss, the mean of the
# last 50 steps, is to be within 1 % of bf16's; the exit code says whether it is.
#     precision_curves.py TRAIN [--steps N] [--seeds N] [--levels WORDS,...] [--svg FILE]
#         [--doc FILE]
# Two runs of one level that differ by their seeds alone can end a percent apart: with --seeds each
# level runs so often, and curves and losses are means. --svg draws the curves; --doc replaces the
# table between the marks in a Markdown file. Both are only for a whole run.
import argparse
import concurrent.futures
import glob
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

# A level is its name and what ends its config.
LEVELS = [
    ("no", "mixed_precision: 'no'"),
    ("bf16", "mixed_precision: bf16"),
    ("fp16", "mixed_precision: fp16"),
    ("fp8", "mixed_precision: fp8"),
    ("fp8 current", "  precision: {fp8_recipe: current}\nmixed_precision: fp8"),
    ("fp8 block", "  precision: {fp8_recipe: block}\nmixed_precision: fp8"),
    ("mxfp8", "  precision: {fp8_recipe: mxfp8}\nmixed_precision: fp8"),
    ("bf16+8bit", "  precision: {moments: 8bit}\nmixed_precision: bf16"),
] + [(f"MSAMP {level}", f"mixed_precision: fp8\nfp8_config: {{backend: MSAMP, opt_level: {level}}}")
     for level in ("O1", "O2", "O3")]
REFERENCE, LAST, WITHIN, SMOOTH = "bf16", 50, 1.0, 25

CONFIG = """distributed_type: 'NO'
use_cpu: true
num_machines: 1
num_processes: 1
accel:
  checkpoint: {save: false}
"""
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 256,
         "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64,
         "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
         "hidden_act": "silu"}
TEXTS = ["doc/**/*.md", "runtime/**/*.[ch]", "checkpoint/**/*.[ch]"]
MARKS = "<!-- table of make bench-precision -->", "<!-- end of the table -->"


def write_inputs(folder):
    """The text, and the shapes of both models as options of TRAIN."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    texts = [p for t in TEXTS for p in sorted(glob.glob(os.path.join(root, t), recursive=True))]
    with open(os.path.join(folder, "text"), "wb") as f:
        for path in texts:
            with open(path, "rb") as text:
                f.write(text.read())
    shape = os.path.join(folder, "config.json")
    with open(shape, "w", encoding="ascii") as f:
        json.dump(LLAMA, f)
    return {"GPT-2": ["--layers", "4", "--heads", "4", "--width", "128"],
            "Llama": ["--model", shape]}


def train(args, folder, shape, words, seed):
    """Losses of all steps and the seconds they took."""
    out = tempfile.mkdtemp(dir=folder)
    config = os.path.join(out, "run.yaml")
    with open(config, "w", encoding="ascii") as f:
        f.write(CONFIG + words + "\n")
    start = time.monotonic()
    run = subprocess.run(
        [args.train, "--data", os.path.join(folder, "text"), *shape, "--seq", "64", "--batch",
         "8", "--steps", str(args.steps), "--sample", "0", "--seed", str(seed),
         "--out", out],
        env={**os.environ, "ACCEL_CONFIG": config, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{words}: {run.stderr.strip()[-500:]}")
    with open(os.path.join(out, "log.jsonl"), encoding="ascii") as f:
        losses = [json.loads(line)["loss"] for line in f]
    return losses, time.monotonic() - start


def table(names, runs):
    """Markdown, and whether every level ended near enough."""
    lines = ["| level | " + " | ".join(f"{n}-shaped, final loss" for n in names) + " |",
             "| --- |" + " --- |" * len(names)]
    near = True
    for level in runs[names[0]]:
        cells = []
        for name in names:
            final, wanted = (statistics.fmean(runs[name][x][-LAST:]) for x in (level, REFERENCE))
            off = 100 * (final / wanted - 1)
            near = near and abs(off) <= WITHIN
            cells.append(f"{final:.4f}" + (f" ({off:+.2f} %)" if level != REFERENCE else ""))
        lines.append(f"| `{level}` | " + " | ".join(cells) + " |")
    return "\n".join(lines), near


STYLE = """<style>
text { font: 12px sans-serif; fill: #24292f } .grid { stroke: #d0d7de } polyline { fill: none;
stroke-width: 1.6 } .back { fill: #ffffff }
.c0 { stroke: #0969da } .c1 { stroke: #bc4c00 } .c2 { stroke: #1a7f37 } .c3 { stroke: #8250df }
.c4 { stroke: #bf3989 } .c5 { stroke: #9a6700 } .c6 { stroke: #57606a } .c7 { stroke: #1b7c83 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .grid { stroke: #30363d }
.back { fill: #0d1117 } .c0 { stroke: #58a6ff } .c1 { stroke: #ffa657 } .c2 { stroke: #56d364 }
.c3 { stroke: #d2a8ff } .c4 { stroke: #ff9bce } .c5 { stroke: #e3b341 } .c6 { stroke: #8b949e }
.c7 { stroke: #56d4dd } }
</style>"""
COLORS, DASHES = 8, ["", "6 3", "2 3", "8 3 2 3"]


def smooth(values):
    """Means of SMOOTH steps."""
    return [statistics.fmean(values[i:i + SMOOTH]) for i in range(0, len(values), SMOOTH)]


class Plot:
    """One diagram: a title, ticks on both axes, and a curve per level."""

    def __init__(self, left, top, title, steps, low, high, ticks):
        self.left, self.top, self.steps, self.low, self.high = left, top, steps, low, high
        self.wide, self.tall = 350, 170
        self.parts = [f'<text x="{left}" y="{top - 10}">{title}</text>']
        for tick in ticks:
            y = self.y(tick)
            self.parts.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" '
                              f'x2="{left + self.wide}" y2="{y:.1f}"/><text x="{left - 6}" '
                              f'y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
        for i in range(0, 5):
            step = steps * i // 4
            self.parts.append(f'<text x="{self.x(step):.1f}" y="{top + self.tall + 16}" '
                              f'text-anchor="middle">{step}</text>')

    def x(self, step):
        return self.left + self.wide * step / self.steps

    def y(self, value):
        value = min(max(value, self.low), self.high)
        return self.top + self.tall * (self.high - value) / (self.high - self.low)

    def curve(self, number, values):
        points = " ".join(f"{self.x((i + 0.5) * SMOOTH):.1f},{self.y(v):.1f}"
                          for i, v in enumerate(values))
        dash = DASHES[number % len(DASHES)]
        self.parts.append(f'<polyline class="c{number % COLORS}" stroke-dasharray="{dash}" '
                          f'points="{points}"/>')


def draw(path, names, runs, steps):
    """Per model the losses, and below how far they are from bf16's."""
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 850 520" role="img">', STYLE,
             "<title>Loss of every precision</title>", '<rect class="back" width="850" '
             'height="520"/>']
    for i, name in enumerate(names):
        curves = {level: smooth(losses) for level, losses in runs[name].items()}
        wanted, left = curves[REFERENCE], 50 + 420 * i
        top = Plot(left, 60, f"{name}-shaped: loss by step", steps, 1, 5, range(1, 6))
        below = Plot(left, 290, f"relative to {REFERENCE}, %", steps, -2, 2, range(-2, 3))
        for number, values in enumerate(curves.values()):
            top.curve(number, values)
            below.curve(number, [100 * (v / w - 1) for v, w in zip(values, wanted)])
        parts += top.parts + below.parts
    for number, level in enumerate(runs[names[0]]):
        x, y = 50 + 130 * (number % 6), 14 + 16 * (number // 6)
        dash = DASHES[number % len(DASHES)]
        parts.append(f'<polyline class="c{number % COLORS}" stroke-dasharray="{dash}" '
                     f'points="{x},{y} {x + 28},{y}"/><text x="{x + 34}" y="{y + 4}">{level}'
                     '</text>')
    with open(path, "w", encoding="ascii") as f:
        f.write("\n".join(parts + [f'<text x="50" y="505">means of {SMOOTH} steps</text>',
                                   "</svg>"]) + "\n")


def replace_table(path, text):
    with open(path, encoding="utf-8") as f:
        old = f.read()
    new, count = re.subn("(?s)" + re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1]),
                         lambda _: f"{MARKS[0]}\n{text}\n{MARKS[1]}", old)
    if count != 1:
        sys.exit(f"{path}: the marks of the table are there {count} times")
    with open(path, "w", encoding="utf-8") as f:
        f.write(new)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("train")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--levels", help="names of levels beside bf16 (all)")
    parser.add_argument("--svg")
    parser.add_argument("--doc")
    args = parser.parse_args()
    chosen = [level for level in LEVELS if not args.levels or level[0] == REFERENCE
              or level[0] in args.levels.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        shapes = write_inputs(folder)
        runs = {name: {} for name in shapes}
        # a run per core: the number of threads changes no bits
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            started = [(name, level, [pool.submit(train, args, folder, shape, words, seed + 1)
                                      for seed in range(args.seeds)])
                       for name, shape in shapes.items() for level, words in chosen]
            for name, level, seeds in started:
                losses, seconds = zip(*(run.result() for run in seeds))
                runs[name][level] = [statistics.fmean(step) for step in zip(*losses)]
                ends = " ".join(f"{statistics.fmean(one[-LAST:]):.4f}" for one in losses)
                print(f"{name}-shaped, {level}: {args.steps} steps in {sum(seconds):.0f} s: {ends}",
                      flush=True)
    text, near = table(list(shapes), runs)
    print(text)
    if args.svg:
        draw(args.svg, list(shapes), runs, args.steps)
    if args.doc:
        replace_table(args.doc, text)
    if not near:
        sys.exit(f"not within {WITHIN:g} % of {REFERENCE}")


main()
