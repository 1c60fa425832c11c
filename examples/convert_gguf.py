"""Write a GGUF file as a folder of safetensors, which vLLM can load: python examples/convert_gguf.py GGUF OUT

Quantised weights are unpacked, so that OUT is several times as large. Needs transformers, gguf and accelerate.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path


def convert(gguf: Path, out: Path, dtype: str = "float32") -> None:
    """Write the model, its tokenizer and its chat template to `out`, whole or not at all."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # transformers reads the file while it believes it reads a folder.
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    config = getattr(transformers, "GgufConfig", None)
    # transformers 4 unpacks without being told.
    unpacked = {"quantization_config": config(dequantize=True)} if config else {}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=getattr(torch, dtype), **unpacked)
    aside = out.with_name(f"{out.name}.{os.getpid()}")
    try:
        model.save_pretrained(aside)
        tokenizer = AutoTokenizer.from_pretrained(**source)
        if config is None:  # transformers 4 takes the token that begins a turn for the one that ends it
            tokenizer.eos_token_id = model.config.eos_token_id
        tokenizer.save_pretrained(aside)
        aside.rename(out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    arguments = parser.parse_args()
    if not arguments.gguf.is_file():
        sys.exit(f"{arguments.gguf}: no such file")
    if arguments.out.exists():
        sys.exit(f"{arguments.out}: is there already")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    convert(arguments.gguf, arguments.out, arguments.dtype)


if __name__ == "__main__":
    main()
