"""Puts the shipped folder together: weights and configs, tokenizer, template, prompts, provenance.

python -m tools.tiny.assemble --export EXPORT --tokenizer FOLDER --corpus CORPUS --out FOLDER
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from tools.tiny import prompts

HERE = Path(__file__).parent
EXPORTED = ("config.json", "hf_quant_config.json", "model.safetensors.index.json")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def assemble(export: Path, tokenizer: Path, corpus: Path, out: Path) -> None:
    """Copies and writes every file of the checkpoint but its README.md, which people write."""
    out.mkdir(parents=True, exist_ok=True)
    files = [export / name for name in EXPORTED] + sorted(export.glob("model-*.safetensors"))
    for file in [*files, *(tokenizer / name for name in TOKENIZER), HERE / "chat_template.jinja"]:
        # copyfile leaves the mode alone: safetensors writes files that only their owner may read.
        shutil.copyfile(file, out / file.name)
    end_of_text = json.loads((export / "config.json").read_text())["text_config"]["eos_token_id"]
    generation = {
        "bos_token_id": end_of_text,
        "do_sample": True,
        "eos_token_id": [end_of_text + 2, end_of_text],
        "pad_token_id": end_of_text,
        "temperature": 0.8,
        "top_p": 0.95,
    }
    (out / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n")
    prompts.write(corpus / "heldout.jsonl", out / "prompts.json")
    (out / "provenance.json").write_text(_provenance(corpus / "provenance.json"))


def _provenance(path: Path) -> str:
    """One line a source: name, version, licence, files, bytes of code, prose and chat."""
    lines = []
    for row in json.loads(path.read_text()):
        counts = {
            "files": row["files"],
            **{kind: row["bytes"].get(kind, 0) for kind in ("code", "prose", "chat")},
        }
        lines.append(json.dumps({key: row[key] for key in ("name", "version", "licence")} | counts))
    return '{"trained_on": [\n' + ",\n".join(lines) + "\n]}\n"


def main() -> None:
    """Command line: see the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("export", "tokenizer", "corpus", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    assemble(options.export, options.tokenizer, options.corpus, options.out)


if __name__ == "__main__":
    main()
