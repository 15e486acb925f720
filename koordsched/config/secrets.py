"""Hides the secrets of a configuration: keys, passwords and queries in URLs."""

from urllib.parse import urlsplit, urlunsplit

CLASSIFIED = "CLASSIFIED"
"""Shown instead of a secret."""


def without_secrets(url: str) -> str:
    """The URL with its password and its query, which may be a token, made unreadable; without these as it is."""
    try:
        parts = urlsplit(url)
    except ValueError:
        # In any case, what comes before the last @ may be a password.
        _, at, rest = url.rpartition("@")
        return f"{CLASSIFIED}{at}{rest}" if at else url
    user, _, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    if not (colon or parts.query):
        return url
    netloc = f"{name}:{CLASSIFIED}@{host}" if colon else parts.netloc
    return urlunsplit(parts._replace(netloc=netloc, query=parts.query and CLASSIFIED))
