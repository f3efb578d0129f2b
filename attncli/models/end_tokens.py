"""The tokens at which a checkpoint's own texts end."""

from __future__ import annotations

from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.file_opening import is_there
from attncli.inputs.hub_cache import GENERATION
from attncli.inputs.shards import guarded_path
from attncli.inputs.strict_json import read_object


def ends(checkpoint: Checkpoint) -> frozenset[int]:
    """The `eos_token_id` of generation_config.json, or of config.json where that says nothing: one id, several or none.

    What is no token id is passed over. Raises InputError for a generation_config.json that is no JSON object.
    """
    path = guarded_path(checkpoint.folder, GENERATION)
    generation = read_object(path, what="how a model continues texts", with_tags=True) if is_there(path) else {}
    for values in (generation, checkpoint.config):
        value = values.get("eos_token_id")
        ids = value if isinstance(value, list) else [value]
        end_ids = frozenset(
            token_id for token_id in ids if isinstance(token_id, int) and not isinstance(token_id, bool)
        )
        if end_ids:
            return end_ids
    return frozenset()
