"""Link 1: the config declares an MTP head, and no two config files contradict each other."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from draftproof.architecture.families import FAMILIES, Family, HeadKind
from draftproof.architecture.qwen3_5 import spec_from_config
from draftproof.architecture.registry import MtpDeclaration, detect_family, mtp_declaration
from draftproof.architecture.spec import ModelSpec
from draftproof.checkpoint.checkpoint import Checkpoint
from draftproof.checkpoint.config import ConfigFile, ConfigReader, read_config_file
from draftproof.checkpoint.selection import looks_like_mtp
from draftproof.errors import ConfigError, DraftproofError, UnknownArchitecture
from draftproof.evidence import EvidenceItem, Link, LinkReport, Location, Note, Verdict, information, warning
from draftproof.evidence.quantities import count_text, listing
from draftproof.links.config_agreement import agreement_items
from draftproof.links.examined import refuse_absurd
from draftproof.links.shell_commands import ShellCommands
from draftproof.links.subject import commands_for

CONFIG = "config.json"
_HEAD_FIELD = re.compile(r"mtp|nextn|speculat|eagle|medusa|draft", re.IGNORECASE)
_SEARCH_DEPTH = 4


def check_config(checkpoint: Checkpoint) -> LinkReport:
    """Runs link 1 on an opened checkpoint. Broken config files are evidence, not errors."""
    start = time.perf_counter()
    items = tuple(_items(checkpoint, commands_for(checkpoint)))
    return LinkReport(Link.CONFIG, items, time.perf_counter() - start)


def _items(checkpoint: Checkpoint, commands: ShellCommands) -> Iterator[EvidenceItem]:
    readable = _readable(checkpoint, commands)
    yield readable
    if checkpoint.config.config.content is None:
        return
    config = checkpoint.config.config.require()
    try:
        family = detect_family(config)
    except UnknownArchitecture as error:
        yield _unknown_family(checkpoint, config, commands, error)
        return
    except ConfigError as error:
        yield _senseless("family-known", "The config names its architecture.", commands, error)
        return
    try:
        declaration = mtp_declaration(config, family)
    except ConfigError as error:
        yield _senseless("head-declared", "The config declares an MTP head.", commands, error)
        return
    yield _head_declared(checkpoint, declaration, commands)
    if len(declaration.fields) > 1:
        yield _declaration_agrees(declaration, commands)
    yield from _sizes(checkpoint, config, commands)
    if readable.verdict is Verdict.PROVEN:
        yield from agreement_items(checkpoint.config, commands)


def _readable(checkpoint: Checkpoint, commands: ShellCommands) -> EvidenceItem:
    files = (
        checkpoint.config.config,
        checkpoint.config.hf_quant_config,
        checkpoint.config.generation_config,
    )
    broken = [file for file in files if file.problem is not None]
    missing = not checkpoint.config.config.present
    present = [file.name for file in files if file.present]
    problems = [str(file.problem) for file in broken] + ([f"there is no {CONFIG}"] if missing else [])
    return EvidenceItem(
        check="config-readable",
        claim="The config files are there and are JSON objects.",
        verdict=Verdict.DISPROVED if problems else Verdict.PROVEN,
        expected=f"{CONFIG}, and every other config file that is there, can be read",
        observed="; ".join(problems) or f"read {', '.join(present)}",
        where=tuple(Location(file.name) for file in broken) or _whole_or_missing(present, missing),
        command=commands.json(broken[0].name) if broken else commands.files(*([] if missing else present)),
        notes=tuple(_tokenizer_notes(checkpoint)),
    )


def _whole_or_missing(present: list[str], missing: bool) -> tuple[Location, ...]:
    return (Location(CONFIG),) if missing else tuple(Location(name) for name in present)


def _tokenizer_notes(checkpoint: Checkpoint) -> Iterator[Note]:
    file: ConfigFile = read_config_file(checkpoint.source, "tokenizer_config.json")
    if (file.content or {}).get("tokenizer_class") == "TokenizersBackend":
        yield information(
            "tokenizer_class is TokenizersBackend, which transformers 4 does not know: a stack with an older "
            "transformers than 5 refuses this checkpoint",
            Location(file.name, field="tokenizer_class"),
        )


def _head_declared(
    checkpoint: Checkpoint, declaration: MtpDeclaration, commands: ShellCommands
) -> EvidenceItem:
    family = declaration.family
    fields = " or ".join(family.count_fields) or "no field"
    verdict, observed, notes = _declared_verdict(checkpoint, declaration)
    path = declaration.json_path
    if family.notes and (verdict is not Verdict.PROVEN or declaration.count is None):
        notes = (*notes, information(f"{family.title}: {family.notes}"))
    return EvidenceItem(
        check="head-declared",
        claim="The config declares an MTP head.",
        verdict=verdict,
        expected=f"{family.title}: {fields} of at least 1",
        observed=observed,
        where=(Location(CONFIG, field=path or (family.count_fields or ("model_type",))[0]),),
        command=commands.field(CONFIG, path or (family.count_fields or ("model_type",))[0]),
        notes=notes,
    )


def _declared_verdict(
    checkpoint: Checkpoint, declaration: MtpDeclaration
) -> tuple[Verdict, str, tuple[Note, ...]]:
    family, count = declaration.family, declaration.count
    if family.head is not HeadKind.MTP:
        return Verdict.DISPROVED, f"{family.title} has {family.head.value}, which is no MTP head", ()
    if count is None:
        return _silent_verdict(checkpoint, family)
    found = f"{declaration.json_path} = {_shown(checkpoint, declaration.json_path, count)}"
    if count > 0:
        return Verdict.PROVEN, f"{found} ({family.title})", ()
    tensors = head_like_tensors(checkpoint)
    notes: tuple[Note, ...] = ()
    if tensors:
        text = f"the weights carry {count_text(len(tensors), 'tensor')} of a head: {listing(tensors, 3)}"
        notes = (warning(text, Location(tensor=tensors[0])),)
    return Verdict.DISPROVED, f"{found}: this checkpoint says that it has no head", notes


def _silent_verdict(checkpoint: Checkpoint, family: Family) -> tuple[Verdict, str, tuple[Note, ...]]:
    tensors = head_like_tensors(checkpoint)
    if family.count_when_silent:
        observed = f"silent, as every release of {family.title}: the weights decide (link 2)"
        return Verdict.PROVEN, observed, ()
    if tensors:
        observed = f"silent, but the weights carry {count_text(len(tensors), 'tensor')} of a head"
        note = warning(
            "the weights carry an MTP head and the config does not declare it: engines that look for the "
            f"field run without it, or refuse to. Set {family.count_fields[0]} to the number of its layers",
            Location(tensor=tensors[0]),
        )
        return Verdict.PROVEN, observed, (note,)
    return Verdict.DISPROVED, "silent, and no tensor looks like one of a head", ()


def head_like_tensors(checkpoint: Checkpoint) -> list[str]:
    """Names, in any weight file, that say by themselves that they belong to an MTP head."""
    inventory = checkpoint.inventory
    unindexed = (entry.name for entry in inventory.unindexed)
    return sorted({name for name in (*inventory.tensors, *unindexed) if looks_like_mtp(name)})


def _shown(checkpoint: Checkpoint, path: str | None, count: int) -> str:
    """The value as it stands in the file: a switch that is false declares a count of 0."""
    value: Any = checkpoint.config.config.content
    for key in (path or "").split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return str(value).lower() if isinstance(value, bool) else str(count)


def _declaration_agrees(declaration: MtpDeclaration, commands: ShellCommands) -> EvidenceItem:
    paths = [field.json_path for field in declaration.fields]
    values = ", ".join(f"{field.json_path} = {field.value}" for field in declaration.fields)
    return EvidenceItem(
        check="declaration-agrees",
        claim="All fields about the head say the same.",
        verdict=Verdict.DISPROVED if declaration.conflicts else Verdict.PROVEN,
        expected="no two of them contradict each other",
        observed="; ".join(declaration.conflicts) or values,
        where=tuple(Location(CONFIG, field=path) for path in paths),
        command=commands.field(CONFIG, paths[0]),
    )


def _sizes(checkpoint: Checkpoint, config: ConfigReader, commands: ShellCommands) -> Iterator[EvidenceItem]:
    claim = "The sizes in the config make sense together."
    try:
        spec = spec_from_config(checkpoint.config)
        refuse_absurd(spec)
    except UnknownArchitecture:
        # Known well enough to look for a head, not to plan every tensor: link 2 says so.
        return
    except ConfigError as error:
        yield _senseless("sizes-sensible", claim, commands, error)
        return
    yield EvidenceItem(
        check="sizes-sensible",
        claim=claim,
        verdict=Verdict.PROVEN,
        expected="every field that shapes the model is there, in range, and fits the others",
        observed=f"{spec.architecture}: {len(spec.layers)} layers of width {spec.hidden_size}",
        where=(Location(CONFIG),),
        command=commands.field(CONFIG, "hidden_size"),
        notes=tuple(_end_token_notes(checkpoint, spec)) + tuple(_rotary_notes(spec)),
    )


def _end_token_notes(checkpoint: Checkpoint, spec: ModelSpec) -> Iterator[Note]:
    generation = checkpoint.config.generation_config
    where = Location(generation.name if generation.present else CONFIG, field="eos_token_id")
    outside = [token for token in spec.end_token_ids if token >= spec.vocab_size]
    if outside:
        yield warning(f"end token {outside[0]} is outside the vocabulary of {spec.vocab_size}", where)
    if not spec.end_token_ids:
        yield warning("no config file names an end token: generation stops only at the length limit", where)
    elif not generation.present:
        tokens = ", ".join(str(token) for token in spec.end_token_ids)
        yield information(
            f"there is no generation_config.json: generation stops at {tokens} alone, and a chat turn that "
            "ends in another token runs on",
            where,
        )


def _rotary_notes(spec: ModelSpec) -> Iterator[Note]:
    rotary = spec.rotary
    if rotary.scaling != "default":
        yield warning(
            f"rope scaling {rotary.scaling} (factor {rotary.factor:g}) applies to the head as to the target: "
            "a stack that scales only the target accepts no draft beyond the native context",
            Location(CONFIG, field="rope_parameters"),
        )


def _unknown_family(
    checkpoint: Checkpoint, config: ConfigReader, commands: ShellCommands, error: UnknownArchitecture
) -> EvidenceItem:
    fields = list(_fields_about_a_head(config.content))
    tensors = head_like_tensors(checkpoint)
    seen = [f"fields {listing(fields)}" if fields else "no field named like an MTP head"]
    seen.append(f"tensors {listing(tensors, 3)}" if tensors else "no tensor named like one")
    return EvidenceItem(
        check="family-known",
        claim="The config is of a family whose MTP head is known.",
        verdict=Verdict.UNKNOWN,
        expected=f"model_type of one of {len([f for f in FAMILIES if f.model_types])} families",
        observed=f"{error.message}; {', '.join(seen)}",
        where=(Location(CONFIG, field="model_type"), *(Location(CONFIG, field=path) for path in fields)),
        command=commands.field(CONFIG, "model_type"),
        reason=f"{error.message}, so nothing can be said about its head",
    )


def _fields_about_a_head(content: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[str]:
    """JSON paths of fields whose name hints at a draft head."""
    for key, value in content.items():
        here = f"{path}.{key}" if path else key
        if _HEAD_FIELD.search(key):
            yield here
        if isinstance(value, Mapping) and depth < _SEARCH_DEPTH:
            yield from _fields_about_a_head(value, here, depth + 1)


def _senseless(check: str, claim: str, commands: ShellCommands, error: DraftproofError) -> EvidenceItem:
    """A field that is missing, of the wrong type, or absurd; the error names it."""
    _, _, rest = error.message.partition(": ")
    path = rest.partition(":")[0]
    return EvidenceItem(
        check=check,
        claim=claim,
        verdict=Verdict.DISPROVED,
        expected="fields that are there, of the right type, and in range",
        observed=error.message,
        where=(Location(CONFIG, field=path),),
        command=commands.field(CONFIG, path or "model_type"),
    )
