"""A GGUF file with its weights as the bfloat16 numbers that they stand for.

    python tests/engines/bf16_gguf.py QUANTISED.gguf BF16.gguf

So llama.cpp computes with the very weights that other engines read from the converted model.
"""

import sys
from pathlib import Path
from typing import Any, cast

import gguf

_WRITTEN = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")


def convert(source: Path, target: Path) -> None:
    """Write `target`; vectors stay float32, as llama.cpp asks."""
    reader: Any = gguf.GGUFReader(source)
    writer: Any = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if not name.startswith(_WRITTEN):
            sub_type = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type)
    for tensor in reader.tensors:
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        kind = gguf.GGMLQuantizationType.BF16
        if len(tensor.shape) == 1:
            writer.add_tensor(tensor.name, numbers)
        else:
            packed = gguf.quants.quantize(numbers, kind)
            writer.add_tensor(tensor.name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    convert(*cast("tuple[Path, Path]", tuple(map(Path, sys.argv[1:]))))
