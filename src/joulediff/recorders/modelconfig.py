"""What a model is: its class, size and types, and the configuration it carries.

Known by its looks, so that no library is imported: `config.to_dict()` as in transformers, a mapping as in diffusers,
or a dataclass as in Megatron.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from joulediff.recorders.environment import MAX_CHARS
from joulediff.recorders.settings import UNREADABLE, put, to_setting
from joulediff.runs import Setting

# A table of a thousand labels is no setting: kept as the begin of its text.
MAX_ENTRIES = 64
MAX_DEPTH = 4
# At the begin of a text, or of one in a list.
_LOCAL_PATH = re.compile(r"""(?:^|")(?:[/~\\]|\.{1,2}[/\\]|[A-Za-z]:[/\\]|\w+://)""")
# `pad_token_id` and `num_key_value_heads` are none.
_SECRET = re.compile(r"(.*_)?(api_?key|auth|token|secret|password|credentials?)")
# Not in to_dict(): where the weights came from, and what chooses the kernels of attention and of experts.
_HIDDEN = ("_name_or_path", "_attn_implementation", "_experts_implementation")
_LABELS = ("id2label", "label2id")


def put_model(found: dict[str, Setting], name: str, model: Any) -> None:
    """Add the settings of one model, all under `model.<name>`."""
    at = f"model.{name}"
    put(found, f"{at}.class", lambda: f"{type(model).__module__}.{type(model).__qualname__}")
    put(found, f"{at}.parameters", lambda: sum(int(p.numel()) for p in model.parameters()))
    put(found, f"{at}.dtype", lambda: ",".join(sorted({str(to_setting(p.dtype)) for p in model.parameters()})) or None)
    put(found, f"{at}.training", lambda: bool(model.training))
    with contextlib.suppress(*UNREADABLE):
        _put_config(found, f"{at}.config", model.config)


def _put_config(found: dict[str, Setting], at: str, config: Any) -> None:
    more = {name: getattr(config, name, None) for name in _HIDDEN}
    for key, value in _flatten({**_fields(config), **{k: v for k, v in more.items() if v}}, MAX_DEPTH):
        put(found, f"{at}.{key}", to_setting, value)


def _fields(config: object) -> Mapping[Any, Any]:
    if isinstance(config, Mapping):
        return config
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {field.name: getattr(config, field.name, None) for field in dataclasses.fields(config)}
    with contextlib.suppress(*UNREADABLE):
        plain = config.to_dict()  # type: ignore[attr-defined]
        return plain if isinstance(plain, Mapping) else {}
    return {}


def _flatten(fields: Mapping[Any, Any], depth: int) -> Iterator[tuple[str, Setting]]:
    for key, value in fields.items():
        if key in _LABELS or (isinstance(value, str) and _SECRET.fullmatch(str(key).lower())):
            continue
        nested = isinstance(value, Mapping) and depth > 1 and len(value) <= MAX_ENTRIES
        if nested and all(isinstance(each, str) for each in value):
            yield from ((f"{key}.{inner}", each) for inner, each in _flatten(value, depth - 1))
            continue
        with contextlib.suppress(*UNREADABLE):
            setting = _as_text(value) if isinstance(value, Mapping | list | tuple) else to_setting(value)
            if not (isinstance(setting, str) and _LOCAL_PATH.search(setting)):
                yield str(key), setting


def _as_text(value: object) -> str:
    """Return a list or a table as JSON. Raises TypeError where something in it has no stable text."""
    return json.dumps(value, sort_keys=True)[:MAX_CHARS]
