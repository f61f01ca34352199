"""The specification of link 2: sound checkpoints by kind, and what happens to them in the world.

Every row of FAULTS names the fault, the check that must find it, the verdict, and what the evidence must say.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from draftproof.evidence import Verdict
from tests.support.checkpoints import (
    FP8_BLOCK,
    FP8_BLOCK_EXPERTS,
    FP8_CHANNEL,
    FP8_TENSOR,
    MTP_NVFP4,
    MTP_NVFP4_COMPRESSED,
    NVFP4_COMPRESSED,
    NVFP4_MIXED,
    NVFP4_ROUTED,
    NVFP4_ROUTED_SHARED,
    CheckpointOptions,
    ExpertLayout,
    Family,
)
from tests.support.faults import (
    INDEX,
    add_stray_file,
    append_bytes,
    bake_one_into_mtp_layer_norms,
    copy_trunk_layer_into_mtp,
    delete_shard,
    drop_from_shard_only,
    drop_scale,
    drop_tensors,
    duplicate_tensor,
    fill_tensor,
    flip_tied_flag,
    invert_global_scales,
    move_mtp_to_side_file,
    read_tensor,
    remove_lm_head,
    rename_tensors,
    reshape_tensor,
    set_element,
    set_exclude_list,
    strip_mtp,
    tensor_names,
    truncate_file,
)

PROVEN, DISPROVED, UNKNOWN = Verdict.PROVEN, Verdict.DISPROVED, Verdict.UNKNOWN
NAN, INFINITY = float("nan"), float("inf")
TRUNK = "model.language_model."
EXPERT = f"{TRUNK}layers.0.mlp.experts.0."
FIRST, SECOND, LAST = (f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3))

KINDS = {
    "dense": CheckpointOptions(shards=3),
    "single": CheckpointOptions(vision=False),
    "tied": CheckpointOptions(vision=False, tied=True),
    "moe": CheckpointOptions(moe=True, vision=False, shards=3),
    "fused head": CheckpointOptions(moe=True, vision=False, mtp_experts=ExpertLayout.FUSED),
    "flat": CheckpointOptions(family=Family.QWEN3_5_TEXT),
    "next": CheckpointOptions(family=Family.QWEN3_NEXT, moe=True),
    "nvfp4": CheckpointOptions(moe=True, vision=False, precision=NVFP4_ROUTED, shards=3),
    "nvfp4 shared": CheckpointOptions(moe=True, vision=False, precision=NVFP4_ROUTED_SHARED),
    "nvfp4 mixed": CheckpointOptions(moe=True, vision=False, precision=NVFP4_MIXED),
    "nvfp4 dialect": CheckpointOptions(moe=True, vision=False, precision=NVFP4_COMPRESSED),
    "nvfp4 head": CheckpointOptions(moe=True, vision=False, precision=NVFP4_ROUTED, mtp_precision=MTP_NVFP4),
    "nvfp4 head dialect": CheckpointOptions(moe=True, vision=False, precision=MTP_NVFP4_COMPRESSED),
    "fp8": CheckpointOptions(vision=False, precision=FP8_BLOCK),
    "fp8 experts": CheckpointOptions(moe=True, vision=False, precision=FP8_BLOCK_EXPERTS),
    "fp8 tensor": CheckpointOptions(vision=False, precision=FP8_TENSOR),
    "fp8 channel": CheckpointOptions(vision=False, precision=FP8_CHANNEL),
    "kv scales": CheckpointOptions(moe=True, vision=False, precision=NVFP4_ROUTED, kv_scales=True),
}


@dataclass(frozen=True)
class Fault:
    """One row: what is done, and what must be found.

    Attributes:
        name: for the test's id.
        kind: of KINDS.
        damage: functions over the folder.
        check: the claim that must change.
        verdict: its verdict.
        names: what it must say, each of them.
        also: claims that fall with it.
        warns: the claim warns.
    """

    name: str
    kind: str
    damage: tuple[Callable[[Path], None], ...]
    check: str
    verdict: Verdict
    names: tuple[str, ...]
    also: frozenset[str] = field(default=frozenset())
    warns: bool = False


def fault(name, kind, damage, check, verdict, *names, also=(), warns=False):
    steps = damage if isinstance(damage, tuple) else (damage,)
    return Fault(name, kind, steps, check, verdict, names, frozenset(also), warns)


def write_text(file, text):
    return lambda folder: (folder / file).write_text(text)


def rename_file(old, new):
    return lambda folder: (folder / old).rename(folder / new)


def stray_copy(folder):
    add_stray_file(folder, {"lm_head.weight": read_tensor(folder, "lm_head.weight")})


def second_head(folder):
    head = {name: read_tensor(folder, name) for name in tensor_names(folder) if name.startswith("mtp.")}
    add_stray_file(folder, head, "model_extra_tensors.safetensors")


def stale_index(folder):
    """The index of an earlier export, with other file names."""
    text = (folder / INDEX).read_text()
    (folder / INDEX).write_text(text.replace("-of-00003", "-of-00030"))


def link_out(folder):
    outside = folder.parent / "outside.safetensors"
    (folder / SECOND).rename(outside)
    (folder / SECOND).symlink_to(outside)


def forget_in_index(part):
    """The index loses names, the files keep the tensors."""

    def change(folder):
        index = json.loads((folder / INDEX).read_text())
        index["weight_map"] = {n: s for n, s in index["weight_map"].items() if part not in n}
        (folder / INDEX).write_text(json.dumps(index))

    return change


FC = "mtp.fc.weight"
PLAIN_TRUNK = ["lm_head", "*self_attn*", "*linear_attn*", "*shared*", "*mlp.gate"]
HIDDEN_NORM = "mtp.pre_fc_norm_hidden.weight"
COMPLETE = ("head-complete", "target-complete", "output-head")
FAULTS = [
    # The files.
    fault("shard missing", "dense", lambda f: delete_shard(f, SECOND), "files-there", DISPROVED, SECOND,
          "is not there", also=COMPLETE),
    fault("numbered file missing, no index", "dense",
          (lambda f: delete_shard(f, SECOND), lambda f: (f / INDEX).unlink()), "files-there", DISPROVED,
          SECOND, also=COMPLETE),
    fault("truncated by one byte", "dense", lambda f: truncate_file(f, LAST), "files-whole", DISPROVED, LAST,
          "1 bytes short"),
    fault("trailing bytes", "dense", lambda f: append_bytes(f, FIRST, b"12345"), "files-whole", DISPROVED,
          FIRST, "5 bytes after"),
    fault("empty file", "dense", write_text(LAST, ""), "files-there", DISPROVED, LAST, "is empty",
          also=COMPLETE),
    fault("no safetensors", "dense", write_text(LAST, "<!DOCTYPE html>" * 9), "files-there", DISPROVED, LAST,
          also=COMPLETE),
    fault("broken index", "dense", write_text(INDEX, "{"), "files-there", DISPROVED, INDEX),
    fault("renamed shard", "dense", rename_file(SECOND, "part.safetensors"), "files-there", DISPROVED,
          "part.safetensors", "was renamed", also=COMPLETE),
    fault("stale index", "dense", stale_index, "files-there", DISPROVED, INDEX, "names none of the 3",
          also=COMPLETE),
    fault("link out of the folder", "dense", link_out, "files-there", UNKNOWN, SECOND, "leaves the folder",
          also=COMPLETE),
    fault("stray file", "dense", stray_copy, "files-there", PROVEN, "model-q4.safetensors", warns=True),
    fault("older copy of the head in an extras file", "dense", second_head, "files-there", PROVEN,
          "model_extra_tensors.safetensors", "15 of them are also in files that are read", warns=True),
    fault("index names a tensor that its shard lacks", "dense",
          lambda f: drop_from_shard_only(f, HIDDEN_NORM), "index-agrees", DISPROVED, HIDDEN_NORM,
          also=("head-complete",)),
    fault("tensor in two shards", "dense", lambda f: duplicate_tensor(f, FC, FIRST), "index-agrees",
          DISPROVED, FC, FIRST),
    fault("index forgets the head", "dense", forget_in_index("mtp."), "head-complete", DISPROVED, "0 of 15",
          LAST, "which no load reads"),
    fault("index forgets one tensor of the target", "dense",
          forget_in_index(f"{TRUNK}layers.0.input_layernorm"), "target-complete", DISPROVED,
          f"{TRUNK}layers.0.input_layernorm.weight"),
    # The head.
    fault("head stripped", "dense", strip_mtp, "head-complete", DISPROVED, "0 of 15",
          "the config promises a head and the weights have none"),
    fault("head stripped, Qwen3-Next", "next", strip_mtp, "head-complete", DISPROVED, "0 of 41"),
    fault("one tensor missing", "dense", lambda f: drop_tensors(f, HIDDEN_NORM), "head-complete", DISPROVED,
          "14 of 15", HIDDEN_NORM),
    fault("one expert missing", "moe", lambda f: drop_tensors(f, "mtp.layers.0.mlp.experts.7.up_proj.weight"),
          "head-complete", DISPROVED, "40 of 41", "mtp.layers.0.mlp.experts.7.up_proj.weight"),
    fault("head in a side file, indexed shards", "moe", move_mtp_to_side_file, "head-complete", DISPROVED,
          "0 of 41", "mtp.safetensors", INDEX),
    fault("head in a side file, no index", "single", move_mtp_to_side_file, "head-complete", DISPROVED,
          "0 of 15", "mtp.safetensors"),
    fault("head under the trunk's prefix", "dense",
          lambda f: rename_tensors(f, lambda n: f"{TRUNK}{n}" if n.startswith("mtp.") else n),
          "head-complete", DISPROVED, "0 of 15", f"{TRUNK}mtp."),
    fault("wrong shape", "dense", lambda f: reshape_tensor(f, FC, (64, 64)), "shapes-right", DISPROVED, FC,
          "[64, 64]", "[64, 128]"),
    fault("wrong shape of a packed weight", "nvfp4",
          lambda f: reshape_tensor(f, f"{EXPERT}up_proj.weight", (48, 16)), "shapes-right", DISPROVED,
          f"{EXPERT}up_proj.weight", also=("scales-there",)),
    fault("tensor without a place", "dense",
          lambda f: rename_tensors(f, lambda n: n.replace("mtp.norm.", "mtp.final_norm.")), "head-complete",
          DISPROVED, "mtp.norm.weight", "mtp.final_norm.weight", warns=True),
    # The output head.
    fault("untied without lm_head", "dense", remove_lm_head, "output-head", DISPROVED, "there is no lm_head",
          "not tied"),
    fault("tied with an lm_head of its own", "dense", flip_tied_flag, "output-head", PROVEN, "lm_head.weight",
          "differs", warns=True),
    fault("untied by the config alone", "tied", flip_tied_flag, "output-head", DISPROVED,
          "there is no lm_head"),
    # Precision, and what the configs say about it.
    fault("FP8 without its scale", "fp8", lambda f: drop_scale(f, "mtp.layers.0.mlp.up_proj.weight"),
          "scales-there", DISPROVED, "mtp.layers.0.mlp.up_proj.weight"),
    fault("NVFP4 without its global scale", "nvfp4",
          lambda f: drop_tensors(f, f"{EXPERT}up_proj.weight_scale_2"), "scales-there", DISPROVED,
          f"{EXPERT}up_proj.weight", "weight_scale_2"),
    fault("exclude list covers the layer, not mtp.fc", "nvfp4",
          lambda f: set_exclude_list(f, [*PLAIN_TRUNK, "mtp.layers.0*"]),
          "precision-known", PROVEN, "mtp.fc is BF16 on disk", "vllm#38832", warns=True),
    fault("exclude list without the head", "nvfp4",
          lambda f: set_exclude_list(f, PLAIN_TRUNK),
          "precision-known", PROVEN, "mtp.", "sglang#36158", warns=True),
    fault("compressed-tensors ignores only mtp.fc", "nvfp4 dialect",
          lambda f: set_exclude_list(f, ["mtp.fc", "model.fc"]), "precision-known", PROVEN,
          "config.json disagrees", "sglang#35797", warns=True),
    fault("list leaves out a head that is quantised", "nvfp4 head",
          lambda f: set_exclude_list(f, ["lm_head", "mtp*"]), "precision-known", PROVEN,
          "NVFP4 (ModelOpt) on disk", "leaves it unquantised", warns=True),
    fault("cache scales declared and absent", "nvfp4", (), "scales-there", PROVEN, "k_scale or v_scale",
          "kv_cache_scheme", warns=True),
    # Values.
    fault("projection never written", "dense", lambda f: fill_tensor(f, FC, 0.0), "values-alive", DISPROVED,
          "all zero", FC),
    fault("constant matrix", "dense", lambda f: fill_tensor(f, "mtp.layers.0.self_attn.o_proj.weight", 0.5),
          "values-alive", DISPROVED, "0.5 everywhere", "mtp.layers.0.self_attn.o_proj.weight"),
    fault("one NaN", "dense", lambda f: set_element(f, FC, NAN, 77), "values-finite", DISPROVED,
          "1 value not finite", FC),
    fault("one infinity in a norm", "dense", lambda f: set_element(f, "mtp.norm.weight", INFINITY),
          "values-finite", DISPROVED, "mtp.norm.weight"),
    fault("zero global scale", "nvfp4", lambda f: fill_tensor(f, f"{EXPERT}up_proj.weight_scale_2", 0.0),
          "scales-sane", DISPROVED, "scale of 0", f"{EXPERT}up_proj.weight_scale_2"),
    fault("negative global scale", "nvfp4",
          lambda f: fill_tensor(f, f"{EXPERT}down_proj.weight_scale_2", -1.0), "scales-sane", DISPROVED,
          f"{EXPERT}down_proj.weight_scale_2"),
    fault("NaN in a block scale", "nvfp4", lambda f: set_element(f, f"{EXPERT}up_proj.weight_scale", NAN),
          "scales-sane", DISPROVED, f"{EXPERT}up_proj.weight_scale", "not finite"),
    fault("zero block scale", "nvfp4", lambda f: set_element(f, f"{EXPERT}up_proj.weight_scale", 0.0),
          "scales-sane", PROVEN, "1 block scale", f"{EXPERT}up_proj.weight_scale", warns=True),
    fault("infinite activation scale", "nvfp4",
          lambda f: fill_tensor(f, f"{EXPERT}up_proj.input_scale", INFINITY), "scales-sane", DISPROVED,
          f"{EXPERT}up_proj.input_scale"),
    fault("zero divisor", "nvfp4 dialect",
          lambda f: fill_tensor(f, f"{EXPERT}up_proj.weight_global_scale", 0.0), "scales-sane", DISPROVED,
          f"{EXPERT}up_proj.weight_global_scale"),
    fault("zero scale of an FP8 head", "fp8",
          lambda f: fill_tensor(f, "mtp.layers.0.mlp.up_proj.weight_scale_inv", 0.0), "scales-sane",
          DISPROVED, "mtp.layers.0.mlp.up_proj.weight_scale_inv"),
    fault("reciprocal global scales", "nvfp4", invert_global_scales, "magnitudes-plausible", DISPROVED,
          "reciprocal", f"{EXPERT}gate_proj.weight"),
    fault("reciprocal global scales, other dialect", "nvfp4 dialect", invert_global_scales,
          "magnitudes-plausible", DISPROVED, "reciprocal"),
    fault("head copied from the trunk", "fused head",
          lambda f: copy_trunk_layer_into_mtp(f, 3), "head-own", DISPROVED, "layer 3", "self_attn.q_proj"),
    fault("one added to the head's layer norms", "dense", bake_one_into_mtp_layer_norms,
          "magnitudes-plausible", PROVEN, "mixed norm convention", warns=True),
]  # fmt: skip
