"""The logger of the broker: structlog around the standard logger ``dmq_actors``.

The processors are given here and not taken from ``structlog.configure()``, which belongs to the
host. Each event arrives in the standard library as the text ``event key=value …``, with the same
data in ``record.dmq`` for handlers that want it structured.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

import structlog

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_stdlib_logger = logging.getLogger("dmq_actors")
_stdlib_logger.addHandler(logging.NullHandler())


def _render(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> tuple[tuple[str], dict[str, Any]]:
    data = {key: value for key, value in event.items() if key not in {"event", "exc_info"}}
    pairs = [f"{key}={value!r}" for key, value in data.items()]
    text = " ".join([str(event["event"]), *pairs])
    return (text,), {
        "extra": {"dmq": {"event": event["event"], **data}},
        "exc_info": event.get("exc_info"),
    }


log = cast(
    "structlog.stdlib.BoundLogger",
    structlog.wrap_logger(
        _stdlib_logger,
        processors=[structlog.stdlib.filter_by_level, _render],
        wrapper_class=structlog.stdlib.BoundLogger,
    ),
)
"""Log with it: ``log.warning(events.OFFSET_OUT_OF_RANGE, group="g", …)``."""
