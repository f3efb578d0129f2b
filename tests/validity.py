"""Whether a document is what its schema says; that schemas are schemas is tested once, in
draw/test_schema.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema

from attncli.documents import SCHEMAS


@cache
def checker(name: str) -> jsonschema.Draft202012Validator:
    """What tells a document of this name from others, such as `attn.run/1`."""
    return jsonschema.Draft202012Validator(SCHEMAS[name])


def validate(document: Any, name: str) -> None:
    """Raises jsonschema.ValidationError where a document is not valid."""
    checker(name).validate(document)
