"""What `transformers` itself does with the same shape on the same GPU: tokens a second of its `generate`.

Weights are random, BF16, made on the GPU; greedy; every new token is timed by itself. It stops in time:

    python -m benchmarks.transformers_beside --shape qwen3.5-35b-a3b --output-json beside.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.record import make_record

STANDARD_DEVIATION = 0.02


@dataclass(frozen=True)
class Times:
    """Times of one `generate`.

    Attributes:
        batch: sequences.
        prompt_tokens: of each sequence.
        first_s: to the first new token.
        next_s: of each further token.
    """

    batch: int
    prompt_tokens: int
    first_s: float
    next_s: tuple[float, ...]

    @property
    def tokens_per_second(self) -> float:
        """Of one sequence, from the median token."""
        return 1.0 / statistics.median(self.next_s)


@dataclass
class Clock:
    """A stopping criterion that notes when each token is there, and stops at a deadline.

    Attributes:
        deadline: on `time.perf_counter`.
        moments: of each new token.
    """

    deadline: float
    moments: list[float] = field(default_factory=list)

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        """Called after each token: whether to stop, by sequence."""
        if input_ids.is_cuda:
            torch.cuda.synchronize()
        self.moments.append(time.perf_counter())
        late = self.moments[-1] > self.deadline
        return torch.full((input_ids.shape[0],), late, dtype=torch.bool, device=input_ids.device)


def text_config(shape: str) -> dict[str, Any]:
    """The text model's config of a shape that the package ships."""
    path = files("draftproof").joinpath("data", "shapes", f"{shape}.json")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["text_config"]
    return content


def random_model(config: Mapping[str, Any], device: torch.device) -> Any:
    """The model of a text config with random BF16 weights, never outside the device."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    settings = {key: value for key, value in config.items() if key not in ("model_type", "dtype")}
    built = AutoConfig.for_model(config["model_type"], **settings)
    with device, no_init_weights():
        model = AutoModelForCausalLM.from_config(built, dtype=torch.bfloat16)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, STANDARD_DEVIATION)
    return model.eval()


def time_generate(model: Any, batch: int, prompt_tokens: int, new_tokens: int, seconds: float) -> Times:
    """One greedy `generate` of at most so many tokens and about so many seconds.

    Raises:
        RuntimeError: fewer than two tokens came in that time.
    """
    from transformers import StoppingCriteriaList

    device = model.device
    vocabulary = model.config.get_text_config().vocab_size
    prompt = torch.randint(vocabulary, (batch, prompt_tokens), device=device)
    clock = Clock(time.perf_counter() + seconds)
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=new_tokens,
        eos_token_id=None,
        pad_token_id=0,
        stopping_criteria=StoppingCriteriaList([clock]),
    )
    if len(clock.moments) < 2:
        raise RuntimeError(f"transformers made {len(clock.moments)} tokens in {seconds:.0f} s: allow it more")
    steps = zip(clock.moments, clock.moments[1:], strict=False)
    gaps = tuple(later - earlier for earlier, later in steps)
    return Times(batch, prompt_tokens, clock.moments[0] - begin, gaps)


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, warm up, time, write."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="qwen3.5-35b-a3b")
    parser.add_argument("--layers", type=int, help="first layers only")
    parser.add_argument("--batch", default="1", help="comma-separated")
    parser.add_argument("--context", type=int, default=1024, help="prompt tokens")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=50.0, help="of the whole run")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--output-json", type=Path)
    options = parser.parse_args(arguments)
    config = text_config(options.shape)
    if options.layers:
        config["num_hidden_layers"] = options.layers
        config["layer_types"] = config["layer_types"][: options.layers]
    model = random_model(config, torch.device(options.device))
    built_s = time.perf_counter() - started
    print(f"transformers {options.shape}: built in {built_s:.1f} s", flush=True)
    time_generate(model, 1, 64, 4, 10.0)
    batches = [int(batch) for batch in options.batch.split(",")]
    results = []
    for place, batch in enumerate(batches):
        left = options.seconds - (time.perf_counter() - started)
        share = max(left / (len(batches) - place), 5.0)
        times = time_generate(model, batch, options.context, options.new_tokens, share)
        results.append(times)
        print(
            f"transformers {options.shape} BF16 batch {batch} context {options.context}:"
            f" {times.tokens_per_second:.2f} tok/s a sequence (median of {len(times.next_s)} tokens),"
            f" first token {times.first_s:.2f} s",
            flush=True,
        )
    if options.output_json:
        figures = {
            f"batch_{times.batch}": {
                "tokens_per_second_per_sequence": times.tokens_per_second,
                "first_token_s": times.first_s,
            }
            for times in results
        }
        samples = {f"batch_{times.batch}_token_s": times.next_s for times in results}
        setting = {
            "shape": options.shape,
            "layers": len(config["layer_types"]),
            "precision": "bf16",
            "context": options.context,
            "experts_implementation": getattr(model.config, "_experts_implementation", None),
            "attention_implementation": getattr(model.config, "_attn_implementation", None),
            "built_s": built_s,
        }
        record = make_record({"setting": setting, **figures}, samples)
        options.output_json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
