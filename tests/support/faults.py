"""Ways in which real checkpoints are broken, each a small function over a folder. No torch.

    folder = copy_of(written.folder, tmp_path / "broken")
    strip_mtp(folder)

Faults change the folder they are given; every other tensor stays as it was. `protect` makes a folder that
many tests share refuse them.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.raw_safetensors import (
    BYTES_PER_ELEMENT,
    RawTensor,
    decode_element,
    encode_element,
    read_safetensors,
    replace_bytes,
    write_safetensors,
)

INDEX = "model.safetensors.index.json"


def copy_of(source: Path, target: Path) -> Path:
    """Copies a checkpoint, writable even where the source is protected; returns `target`."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    return target


def protect(folder: Path) -> Path:
    """Marks all files read-only, which every fault respects whoever runs the tests; returns `folder`."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o444)
    return folder


# Faults of files.


def delete_shard(folder: Path, file: str) -> None:
    """Interrupted download: a weight file is gone, the index still names it."""
    _writable(folder / file).unlink()


def truncate_file(folder: Path, file: str, missing_bytes: int = 1) -> None:
    """Interrupted download: the last bytes of a file are gone."""
    path = _writable(folder / file)
    replace_bytes(path, path.read_bytes()[:-missing_bytes])


def append_bytes(folder: Path, file: str, data: bytes = b"\0") -> None:
    """Bytes after the last tensor."""
    path = _writable(folder / file)
    replace_bytes(path, path.read_bytes() + data)


def add_stray_file(
    folder: Path, tensors: Mapping[str, RawTensor], file: str = "model-q4.safetensors"
) -> None:
    """A weight file that no index names."""
    write_safetensors(folder / file, tensors)


def move_mtp_to_side_file(folder: Path, file: str = "mtp.safetensors") -> None:
    """The head lies in a file of its own, and the index (if there is one) knows nothing of its tensors."""
    moved: dict[str, RawTensor] = {}
    for shard in weight_files(folder):
        tensors = read_safetensors(folder / shard)
        moved |= {name: tensor for name, tensor in tensors.items() if _is_mtp(name)}
        _replace(folder, shard, {name: tensor for name, tensor in tensors.items() if not _is_mtp(name)})
    write_safetensors(folder / file, moved)
    _edit_index(folder, lambda files: {name: shard for name, shard in files.items() if not _is_mtp(name)})


# Faults of presence.


def drop_tensors(folder: Path, *names: str) -> None:
    """Tensors are gone from file and index, as if an exporter had never written them."""
    drop_from_shard_only(folder, *names)
    _edit_index(folder, lambda files: {name: shard for name, shard in files.items() if name not in names})


def drop_from_shard_only(folder: Path, *names: str) -> None:
    """Tensors are gone from their files, the index still names them."""
    absent = set(names) - set(tensor_names(folder))
    if absent:
        raise KeyError(f"no such tensors: {sorted(absent)}")
    for file in weight_files(folder):
        tensors = read_safetensors(folder / file)
        kept = {name: tensor for name, tensor in tensors.items() if name not in names}
        if len(kept) < len(tensors):
            _replace(folder, file, kept)


def strip_mtp(folder: Path) -> None:
    """What save_pretrained does: no MTP tensor left, the config still declares the head."""
    drop_tensors(folder, *(name for name in tensor_names(folder) if _is_mtp(name)))


def remove_lm_head(folder: Path) -> None:
    """No lm_head (nor its scales), whatever the config says about tying."""
    drop_tensors(folder, *(name for name in tensor_names(folder) if name.startswith("lm_head.")))


def drop_scale(folder: Path, weight_name: str) -> None:
    """A quantized weight loses its main scale: `weight_scale_inv` or, without one, `weight_scale`."""
    stem, names = weight_name.removesuffix("weight"), tensor_names(folder)
    candidates = (f"{stem}weight_scale_inv", f"{stem}weight_scale")
    drop_tensors(folder, next(name for name in candidates if name in names))


def duplicate_tensor(folder: Path, name: str, file: str) -> None:
    """The same name in a second weight file; the index keeps pointing at the first."""
    tensor = read_tensor(folder, name)
    _replace(folder, file, {**read_safetensors(folder / file), name: tensor})


def rename_tensors(folder: Path, rename: Callable[[str], str]) -> None:
    """Every tensor gets the name that `rename` gives it (a wrong prefix, for instance)."""
    for file in weight_files(folder):
        tensors = read_safetensors(folder / file)
        _replace(folder, file, {rename(name): tensor for name, tensor in tensors.items()})
    _edit_index(folder, lambda files: {rename(name): shard for name, shard in files.items()})


# Faults of content.


def reshape_tensor(folder: Path, name: str, shape: Sequence[int]) -> None:
    """A wrong shape: the data is cut, or repeated, to fill it."""
    tensor = read_tensor(folder, name)
    size = math.prod(shape) * BYTES_PER_ELEMENT[tensor.dtype]
    data = (tensor.data * (size // len(tensor.data) + 1))[:size]
    put_tensors(folder, {name: RawTensor(tensor.dtype, tuple(shape), data)})


def fill_tensor(folder: Path, name: str, value: float) -> None:
    """Every element gets one value: 0 (never written), a constant, or a broken scale (0, NaN, negative)."""
    tensor = read_tensor(folder, name)
    element = encode_element(value, tensor.dtype)
    put_tensors(folder, {name: replace(tensor, data=element * (len(tensor.data) // len(element)))})


def set_element(folder: Path, name: str, value: float, position: int = 0) -> None:
    """One element, by its flat position, gets a value (NaN, infinity, ...)."""
    tensor = read_tensor(folder, name)
    element = encode_element(value, tensor.dtype)
    start = position * len(element)
    data = tensor.data[:start] + element + tensor.data[start + len(element) :]
    put_tensors(folder, {name: replace(tensor, data=data)})


def copy_trunk_layer_into_mtp(folder: Path, layer: int) -> None:
    """A made-up head: the layer of `mtp.layers.0` is a copy of one of the trunk's full-attention layers.

    Both must have the same layout on disk.
    """
    marker = f".layers.{layer}."
    trunk = [name for name in tensor_names(folder) if marker in name and not _is_mtp(name)]
    copies = {f"mtp.layers.0.{name.partition(marker)[2]}": read_tensor(folder, name) for name in trunk}
    put_tensors(folder, copies)


def invert_global_scales(folder: Path, names: Iterable[str] | None = None) -> None:
    """NVFP4 global scales in the other dialect's convention: each is replaced by its reciprocal.

    Args:
        folder: the checkpoint.
        names: the scales; None takes every `weight_scale_2` and `weight_global_scale`.
    """
    ends = (".weight_scale_2", ".weight_global_scale")
    chosen = set(names or (name for name in tensor_names(folder) if name.endswith(ends)))
    _map_elements(folder, chosen, lambda value: 1 / value)


def bake_one_into_mtp_layer_norms(folder: Path) -> None:
    """A converter added 1 to the head's layer norms, while every other norm is still an offset from 1."""
    norms = ("input_layernorm", "post_attention_layernorm")
    _map_elements(folder, {f"mtp.layers.0.{norm}.weight" for norm in norms}, lambda value: value + 1)


# Faults of configs.


def set_config(folder: Path, path: str, value: object, file: str = "config.json") -> None:
    """Sets a field by its dotted path ("text_config.mtp_num_hidden_layers"), creating objects on the way."""

    def change(parent: dict[str, Any], key: str) -> None:
        parent[key] = value

    _edit_config(folder, path, file, change)


def remove_config(folder: Path, path: str, file: str = "config.json") -> None:
    """Removes the field at a dotted path."""

    def change(parent: dict[str, Any], key: str) -> None:
        del parent[key]

    _edit_config(folder, path, file, change)


def set_exclude_list(folder: Path, patterns: Sequence[str]) -> None:
    """Replaces the list of unquantized modules in every config file that has one."""
    spots = (
        ("config.json", "quantization_config", "ignore"),
        ("config.json", "quantization_config", "modules_to_not_convert"),
        ("hf_quant_config.json", "quantization", "exclude_modules"),
    )
    for file, section, key in spots:
        if (folder / file).exists() and key in _read_json(folder / file).get(section, {}):
            set_config(folder, f"{section}.{key}", list(patterns), file)


def flip_tied_flag(folder: Path) -> None:
    """Inverts tie_word_embeddings wherever the config has it; the weights stay as they are."""
    config = _read_json(folder / "config.json")
    for section in (config, config.get("text_config", {})):
        if "tie_word_embeddings" in section:
            section["tie_word_embeddings"] = not section["tie_word_embeddings"]
    _write_json(folder / "config.json", config)


# Reading and replacing tensors.


def weight_files(folder: Path) -> list[str]:
    """Names of the safetensors files, in order."""
    return sorted(path.name for path in folder.glob("*.safetensors"))


def tensor_names(folder: Path) -> list[str]:
    """Names of all tensors in all weight files."""
    return [name for file in weight_files(folder) for name in read_safetensors(folder / file)]


def read_tensor(folder: Path, name: str) -> RawTensor:
    """The tensor of that name, from the first file that holds it."""
    for file in weight_files(folder):
        tensors = read_safetensors(folder / file)
        if name in tensors:
            return tensors[name]
    raise KeyError(name)


def put_tensors(folder: Path, changed: Mapping[str, RawTensor]) -> None:
    """Replaces existing tensors, each in its file."""
    left = set(changed)
    for file in weight_files(folder):
        tensors = read_safetensors(folder / file)
        if left & set(tensors):
            _replace(folder, file, {name: changed.get(name, tensor) for name, tensor in tensors.items()})
            left -= set(tensors)
    if left:
        raise KeyError(f"no such tensors: {sorted(left)}")


def _map_elements(folder: Path, names: set[str], change: Callable[[float], float]) -> None:
    """Applies a function to every element of BF16 or F32 tensors."""
    changed = {}
    for file in weight_files(folder):
        for name, tensor in read_safetensors(folder / file).items():
            if name in names:
                width = BYTES_PER_ELEMENT[tensor.dtype]
                elements = (tensor.data[at : at + width] for at in range(0, len(tensor.data), width))
                values = (change(decode_element(element, tensor.dtype)) for element in elements)
                data = b"".join(encode_element(value, tensor.dtype) for value in values)
                changed[name] = replace(tensor, data=data)
    put_tensors(folder, changed)


def _replace(folder: Path, file: str, tensors: dict[str, RawTensor]) -> None:
    write_safetensors(_writable(folder / file), tensors)


def _writable(path: Path) -> Path:
    """The path, unless `protect` marked it; the mode is read because root may write anything."""
    if not path.stat().st_mode & 0o200:
        raise PermissionError(f"{path} is shared between tests: damage a copy_of() it")
    return path


def _is_mtp(name: str) -> bool:
    return name.startswith("mtp.")


def _edit_index(folder: Path, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    path = folder / INDEX
    if path.exists():
        index = _read_json(path)
        index["weight_map"] = change(index["weight_map"])
        _write_json(path, index)


def _edit_config(folder: Path, path: str, file: str, change: Callable[[dict[str, Any], str], None]) -> None:
    config = _read_json(folder / file)
    *parents, key = path.split(".")
    section = config
    for parent in parents:
        section = section.setdefault(parent, {})
    change(section, key)
    _write_json(folder / file, config)


def _read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _write_json(path: Path, content: object) -> None:
    _writable(path).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
