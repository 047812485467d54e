"""Small trials of dtypes and attention backends, each in a child process: some fail by killing the process."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

BACKENDS = ("eager", "sdpa", "flex_attention", "fused", "flash_attention_2", "flash_attention_3")
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Probe:
    device: str
    backend: str
    dtype: str


@dataclass(frozen=True)
class Finding:
    probe: Probe
    works: bool
    detail: str


def probes_for(devices: list[str]) -> list[Probe]:
    """Every backend in each device's usual dtype, and every dtype with the default backend."""
    found = []
    for device in devices:
        usual = "float32" if device == "cpu" else "bfloat16"
        found += [Probe(device, backend, usual) for backend in BACKENDS]
        found += [Probe(device, "sdpa", dtype) for dtype in DTYPES if dtype != usual]
    return found


def run_probes(probes: list[Probe], timeout_s: float = 300) -> Iterator[Finding]:
    """Try all in one child; where it dies, say so and go on with the rest in another."""
    remaining = list(probes)
    while remaining:
        child = subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps([vars(probe) for probe in remaining])],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            output, errors = child.communicate(timeout=timeout_s)
            death = f"the process died with exit code {child.returncode}: {errors.strip()[-300:]}"
        except subprocess.TimeoutExpired:
            child.kill()
            output, _ = child.communicate()
            death = f"no answer within {timeout_s:.0f} s"
        for line in output.splitlines():
            answer = json.loads(line)
            yield Finding(remaining.pop(0), answer["works"], answer["detail"])
        if remaining:
            yield Finding(remaining.pop(0), False, death)


def try_out(probe: Probe) -> tuple[bool, str]:
    """A tiny model forward and backward."""
    import torch

    from sharedqkv.models import SharedQKVConfig, SharedQKVModel

    try:
        config = SharedQKVConfig.from_size(
            "tiny", vocab_size=32, attention_variant="shared", attention_probs_dropout_prob=0.0
        )
        model = SharedQKVModel._from_config(
            config, attn_implementation=probe.backend, dtype=getattr(torch, probe.dtype)
        ).to(probe.device)
        token_ids = torch.arange(24, device=probe.device).view(2, 12)
        mask = torch.ones_like(token_ids)
        mask[1, 8:] = 0
        with torch.no_grad():
            model(token_ids, attention_mask=mask)
        by_sdpa = _by_sdpa(model, mask)
    except Exception as error:
        return False, _first_sentence(error)
    try:
        model(token_ids, attention_mask=mask).last_hidden_state.float().sum().backward()
    except Exception as error:
        return True, f"forward only{by_sdpa}: {_first_sentence(error)}"
    return True, f"forward and backward{by_sdpa}"


def _by_sdpa(model: Any, mask_BL: Any) -> str:
    """`fused` works everywhere, as it leaves to SDPA what its kernels cannot do: where that is so, the reason."""
    import torch

    from sharedqkv.kernels import FUSED, segments_of
    from sharedqkv.kernels.backend import why_not_fused

    if model.config._attn_implementation != FUSED:
        return ""
    hidden_BLD = torch.zeros(*mask_BL.shape, model.config.hidden_size, dtype=model.dtype, device=model.device)
    projected = model.config.build_attention_variant().to(hidden_BLD)(hidden_BLD)
    reason = why_not_fused(projected, segments_of(mask_BL, None))
    return "" if reason is None else f", but by SDPA: {reason}"


def _first_sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def main() -> None:
    import os

    # Libraries may print; findings are to be all that comes out.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for arguments in json.loads(sys.argv[1]):
        works, detail = try_out(Probe(**arguments))
        print(json.dumps({"works": works, "detail": detail}), file=answers)


if __name__ == "__main__":
    main()
