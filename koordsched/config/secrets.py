"""Hides the secrets of a configuration: keys, and passwords in URLs."""

from urllib.parse import urlsplit, urlunsplit

CLASSIFIED = "CLASSIFIED"
"""Shown instead of a secret."""


def without_password(url: str) -> str:
    """The URL with its password, if it has one, made unreadable; a text without one as it is."""
    try:
        parts = urlsplit(url)
    except ValueError:
        # In any case, what comes before the last @ may be a password.
        _, at, rest = url.rpartition("@")
        return f"{CLASSIFIED}{at}{rest}" if at else url
    user, _, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    return urlunsplit(parts._replace(netloc=f"{name}:{CLASSIFIED}@{host}")) if colon else url
