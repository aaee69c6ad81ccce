# SPDX-License-Identifier: Apache-2.0
"""Executes the cells of a file, which "# ---" separates, in a kernel, whatever they raise.

    notebook.py FILE

Prints what each cell has printed or raised, then "ended CODE", that of the kernel. Ends with
1 where a cell has raised something, as `jupyter execute`.
"""

import re
import sys

import nbformat
from nbclient import NotebookClient

with open(sys.argv[1], encoding="utf-8") as file:
    sources = file.read().split("# ---\n")
notebook = nbformat.v4.new_notebook()
notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
client = NotebookClient(notebook, kernel_name="python3", allow_errors=True)
with client.setup_kernel():
    for number, cell in enumerate(notebook.cells):
        client.execute_cell(cell, number)
        for output in cell.outputs:
            text = output.get("text") or "\n".join(output.get("traceback", []))
            for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
                print(f"{number}: {line}")
    kernel = client.km.provisioner.process
print("ended", kernel.wait())
sys.exit(any(o.output_type == "error" for cell in notebook.cells for o in cell.outputs))
