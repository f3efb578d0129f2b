"""Errors and notes in Chinese, by their English."""

ERRORS: dict[str, str] = {}
