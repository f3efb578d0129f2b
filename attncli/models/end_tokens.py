"""The tokens at which a checkpoint's own texts end."""

from __future__ import annotations

from attncli.inputs.checkpoint import Checkpoint
from attncli.inputs.file_opening import is_there
from attncli.inputs.hub_cache import GENERATION
from attncli.inputs.shards import guarded
from attncli.inputs.strict_json import read_object


def ends(checkpoint: Checkpoint) -> frozenset[int]:
    """The `eos_token_id` of generation_config.json, or of config.json where that says nothing: one id, several or none.

    What is no token id is passed over. Raises InputError for a generation_config.json that is no JSON object.
    """
    path = guarded(checkpoint.folder, GENERATION)
    told = read_object(path, what="how a model continues texts", tagged=True) if is_there(path) else {}
    for values in (told, checkpoint.config):
        found = values.get("eos_token_id")
        ids = found if isinstance(found, list) else [found]
        known = frozenset(one for one in ids if isinstance(one, int) and not isinstance(one, bool))
        if known:
            return known
    return frozenset()
