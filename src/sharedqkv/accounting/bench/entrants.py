"""Who takes part: our variants on some backend, and models of Transformers as peers."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM, ModernBertConfig, ModernBertForMaskedLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from sharedqkv.accounting.bench.settings import PEERS, Settings
from sharedqkv.accounting.parameters import count_parameters
from sharedqkv.kernels import FUSED
from sharedqkv.kernels.backend import why_not_fused
from sharedqkv.models import SharedQKVConfig, SharedQKVForMaskedLM
from sharedqkv.models.specs import config_from_spec


@dataclass(frozen=True)
class Entrant:
    name: str
    backend: str
    config: Any
    model_class: type[Any]
    is_peer: bool = False
    """A peer's MLM head runs on all tokens, as Transformers does it; ours on the masked ones."""
    same_as: str | None = None
    """The entrant before it that computes the same function: it gets its weights and must give its results."""
    remark: str | None = None

    def build(self, backend: str | None = None) -> Any:
        config = copy.deepcopy(self.config)  # the model writes its backend into it
        return self.model_class._from_config(config, attn_implementation=backend or self.backend, dtype=torch.float32)

    def build_on_meta(self, backend: str | None = None) -> Any:
        with torch.device("meta"):
            return self.build(backend)

    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.build_on_meta().parameters())


def choose_entrants(
    variants: Sequence[str], backends: Sequence[str], peers: Sequence[str], settings: Settings
) -> list[Entrant]:
    """All that take part, each built once without memory, so that nothing wrong is left to find later."""
    entrants: list[Entrant] = []
    first_of: dict[str, str] = {}
    for text in variants:
        parts = split_entrant(text)
        for backend in [parts.backend] if parts.backend else backends:
            name = parts.named(backend)
            first = first_of.setdefault(parts.spec, name)
            config = _config(parts.spec, settings)
            entrants.append(
                Entrant(
                    name,
                    backend,
                    config,
                    SharedQKVForMaskedLM,
                    same_as=None if first == name else first,
                    remark=_remark(config, backend, settings),
                )
            )
    for index, entrant in enumerate(entrants):
        if entrant.backend == FUSED and entrant.same_as is None and entrant.remark is None:
            plain = entrant.name.replace(f":{FUSED}", "")
            entrants[index] = replace(entrant, remark=f"its results are not checked: name {plain} before it")
    bert = first_of.get("standard") if settings.positions == "absolute" else None
    for peer in peers:
        if peer not in PEERS:
            raise ValueError(f"unknown peer {peer!r}; known: {', '.join(PEERS)}")
        entrants.append(_MAKE_PEER[peer](settings, bert))
    names = [entrant.name for entrant in entrants]
    if not names:
        raise ValueError("nobody takes part: name at least one variant or peer")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} takes part twice: name it once")
    for entrant in entrants:
        _check_backend(entrant)
    return entrants


@dataclass(frozen=True)
class EntrantParts:
    variant: str
    backend: str | None
    assignments: tuple[str, ...]
    layers: str

    @property
    def spec(self) -> str:
        """As `sharedqkv params` takes it."""
        layers = (f"num_hidden_layers={self.layers}",) if self.layers else ()
        return f"{self.variant}:{','.join((*self.assignments, *layers))}".rstrip(":")

    def named(self, backend: str) -> str:
        layers = f"@{self.layers}" if self.layers else ""
        return f"{self.variant}:{','.join((backend, *self.assignments))}{layers}"


def split_entrant(text: str) -> EntrantParts:
    """`variant[:backend,key=value,…][@layers]`, after the colon either or both."""
    body, at, layers = text.partition("@")
    if at and not (layers.isdecimal() and int(layers)):
        raise ValueError(f"{text!r}: expected a number of layers after @, not {layers!r}")
    variant, _, rest = body.partition(":")
    parts = [part for part in rest.split(",") if part]
    backends = [part for part in parts if "=" not in part]
    if len(backends) > 1:
        raise ValueError(f"{text!r} names several backends ({', '.join(backends)}): name one an entrant")
    assignments = tuple(part for part in parts if "=" in part)
    return EntrantParts(variant, backends[0] if backends else None, assignments, layers)


def _config(spec: str, settings: Settings) -> SharedQKVConfig:
    config = config_from_spec(
        spec,
        settings.size,
        position_embedding_type=settings.positions,
        norm_placement=settings.norm_placement,
        hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
        max_position_embeddings=max(512, settings.length),
        **({} if settings.layers is None else {"num_hidden_layers": settings.layers}),
    )
    if settings.length > config.max_position_embeddings:
        raise ValueError(
            f"--length {settings.length} is over the {config.max_position_embeddings} positions of {spec!r}"
        )
    return config


def _check_backend(entrant: Entrant) -> None:
    known = ["eager", *(name for name in ALL_ATTENTION_FUNCTIONS.valid_keys() if "|" not in name)]
    if entrant.backend not in known:
        raise ValueError(f"{entrant.name}: unknown backend {entrant.backend!r}; known: {', '.join(sorted(known))}")
    try:
        entrant.build_on_meta()
    except ImportError as error:
        raise ValueError(f"{entrant.name}: backend {entrant.backend!r} cannot be used here: {error}") from error


def _remark(config: SharedQKVConfig, backend: str, settings: Settings) -> str | None:
    """Whether `fused` will leave the work to SDPA."""
    if backend != FUSED:
        return None
    device = "cuda" if torch.cuda.is_available() else "cpu"
    variant = config.build_attention_variant().to(device)
    hidden_BLD = torch.zeros(1, settings.length, config.hidden_size, device=device)
    with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=settings.bf16):
        reason = why_not_fused(variant(hidden_BLD), None, config.position_embedding_type == "rotary")
    return None if reason is None else f"uses SDPA: {reason}"


def _hf_bert(settings: Settings, same_as: str | None) -> Entrant:
    ours = _config("standard", settings)
    config = BertConfig(
        vocab_size=ours.vocab_size,
        hidden_size=ours.hidden_size,
        num_hidden_layers=ours.num_hidden_layers,
        num_attention_heads=ours.num_attention_heads,
        intermediate_size=ours.intermediate_size,
        max_position_embeddings=ours.max_position_embeddings,
        hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
    )
    remark = "Transformers' BertForMaskedLM on SDPA; in training its MLM head runs on all tokens"
    return Entrant("hf_bert", "sdpa", config, BertForMaskedLM, is_peer=True, same_as=same_as, remark=remark)


def _modernbert(settings: Settings, same_as: str | None) -> Entrant:
    """As wide and deep as BERT, its feed-forward width such that it has as many parameters.

    The width is a multiple of 64, since GPUs are slow with others.
    """
    ours = _config("standard", settings)

    def entrant(intermediate_size: int) -> Entrant:
        config = ModernBertConfig(
            vocab_size=ours.vocab_size,
            hidden_size=ours.hidden_size,
            num_hidden_layers=ours.num_hidden_layers,
            num_attention_heads=ours.num_attention_heads,
            intermediate_size=intermediate_size,
            max_position_embeddings=ours.max_position_embeddings,
            attention_dropout=settings.dropout,
            embedding_dropout=settings.dropout,
            mlp_dropout=settings.dropout,
            **{f"{token}_token_id": 0 for token in ("pad", "bos", "eos", "cls", "sep")},
        )
        remark = (
            f"Transformers' ModernBertForMaskedLM on SDPA, feed-forward width {intermediate_size} for as many "
            "parameters as BERT; in training its MLM head runs on all tokens"
        )
        return Entrant("modernbert", "sdpa", config, ModernBertForMaskedLM, is_peer=True, remark=remark)

    one, two = (entrant(width).num_parameters() for width in (64, 128))
    target = count_parameters(ours).model
    return entrant(64 * max(1, 1 + round((target - one) / (two - one))))


_MAKE_PEER: dict[str, Callable[[Settings, str | None], Entrant]] = {"hf_bert": _hf_bert, "modernbert": _modernbert}
assert tuple(_MAKE_PEER) == PEERS
