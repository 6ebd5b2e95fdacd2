"""The package's one logger, `logging.getLogger("hplacer")`.

Untouched, it prints `hplacer: message` to stderr from INFO upwards. As soon as the application
gives this logger or the root logger a handler of its own, before or after importing this package,
the default handler falls silent and every record takes the application's way, once. The handler
that absl's and Python's logging functions give the root logger when they find none is nobody's
choice: it does not count, and gets no record of this package. A level that the application set on
this logger stays; without one the root logger's level counts, if the application configured
logging first. `HPLACER_LOG=debug|info|warning|error|off` wins over both.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
LOGGER = logging.getLogger("hplacer")

_HANDLER_NAME = "hplacer-default"
_HANDLERS_BEFORE = list(logging.getLogger().handlers)
_said: dict[str, object] = {}


def _application_configured() -> bool:
    """Whether the application gave the package's logger or the root logger a handler."""
    ours_only = all(handler.name == _HANDLER_NAME for handler in LOGGER.handlers)
    return not ours_only or not all(map(_is_nobodys, logging.getLogger().handlers))


def _is_nobodys(handler: logging.Handler) -> bool:
    """Whether `logging.basicConfig()`, without arguments, made it after this module was loaded.

    `logging.info()` and absl's functions call that where the root logger has no handler.
    """
    return (
        handler not in _HANDLERS_BEFORE
        and type(handler) is logging.StreamHandler
        and handler.formatter is not None
        and handler.formatter._fmt == logging.BASIC_FORMAT
        and logging.getLogger().level == logging.WARNING
    )


def _is_not_printed(record: logging.LogRecord) -> bool:
    return record.name != LOGGER.name or _application_configured()


class _DefaultHandler(logging.Handler):
    """Prints to the `sys.stderr` of that moment, unless the application configured logging."""

    def emit(self, record: logging.LogRecord) -> None:
        if _application_configured():
            return
        for handler in logging.getLogger().handlers:
            handler.addFilter(_is_not_printed)  # the record goes there next
        try:
            if sys.stderr is not None:
                sys.stderr.write(f"{self.format(record)}\n")
                if hasattr(sys.stderr, "flush"):
                    sys.stderr.flush()
        except Exception:
            self.handleError(record)


def _handle(record: logging.LogRecord) -> None:
    """Logging must never raise into the program, whatever handlers and streams it has."""
    with contextlib.suppress(Exception):
        logging.Logger.handle(LOGGER, record)


def _configure() -> None:
    """Installs the default handler and the level; a second call changes nothing but the level."""
    wanted = os.environ.get("HPLACER_LOG", "").strip().lower()
    if wanted in LEVELS:
        LOGGER.setLevel(LEVELS[wanted])
    elif LOGGER.level == logging.NOTSET and not _application_configured():
        LOGGER.setLevel(logging.INFO)
    LOGGER.handle = _handle  # type: ignore[method-assign]
    if not any(handler.name == _HANDLER_NAME for handler in LOGGER.handlers):
        handler = _DefaultHandler()
        handler.name = _HANDLER_NAME
        handler.setFormatter(logging.Formatter("hplacer: %(message)s"))
        LOGGER.addHandler(handler)
    if wanted and wanted not in LEVELS:
        warn_once("HPLACER_LOG", f"HPLACER_LOG={wanted!r} is not one of {', '.join(LEVELS)}")


def warn_once(key: str, message: str) -> None:
    """Logs `message` as a warning the first time this process sees `key`; safe from any thread."""
    log_once(logging.WARNING, key, message)


def log_once(level: int, key: str, message: str) -> None:
    """The same at another level."""
    this_time = object()
    if _said.setdefault(key, this_time) is this_time:  # without a lock, which a fork could copy
        LOGGER.log(level, "%s", message)


_configure()
