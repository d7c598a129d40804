"""A model from a GGUF file, as a folder of safetensors: python -m ... MODEL.gguf FOLDER.

Quantised weights become the bfloat16 numbers that they stand for; those are the model from then on.
Needs transformers with the packages gguf and accelerate.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as hf_logging


def convert(gguf: Path, folder: Path) -> None:
    """Write config, weights and tokenizer of `gguf` to `folder`, whole or not at all."""
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    read_model, read_tokenizer = cast("tuple[Any, Any]", (AutoModelForCausalLM, AutoTokenizer))
    source = {"gguf_file": gguf.name, "local_files_only": True}
    model = read_model.from_pretrained(gguf.parent, dtype=torch.bfloat16, **source)
    tokenizer = read_tokenizer.from_pretrained(gguf.parent, **source)
    # Its weights are plain numbers now, and may be saved as such.
    model.hf_quantizer = None
    del model.config.quantization_config
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        made = Path(work) / "model"
        model.save_pretrained(made)
        tokenizer.save_pretrained(made)
        for file in made.iterdir():
            file.chmod(0o644)
        shutil.move(made, folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
