"""The spellings of layers and heads that help lists are the ones that functions take."""

from __future__ import annotations

import inspect
import pydoc
import re

import pytest

import attncli
from attncli.errors import AttnError
from attncli.mechanism.head_choice import choose_heads_of, pairs_of
from attncli.mechanism.spec import Attention, Block, HeadSelection, Spec

SPEC = Spec(
    d_model=48,
    vocabulary=9,
    blocks=(Block(Attention(heads=12, kv_heads=12, head_dim=4, v_dim=4, scale=0.5)),) * 6,
)
CHOOSING = [
    name
    for name in attncli.__all__
    if inspect.isfunction(function := getattr(attncli, name))
    and re.search("Selection|Which", str(inspect.signature(function).parameters.get("heads")))
]


def examples() -> list[tuple[str, str]]:
    """Each spelling that the help of HeadSelection lists, with what it says of it."""
    page = pydoc.plain(pydoc.render_doc(attncli.HeadSelection))
    return re.findall(r"^ \|      (\S.*?)\s{8,}(\S.*)$", page, re.M)


def test_help_lists_spellings_that_are_taken() -> None:
    listed = examples()
    assert len(listed) >= 6
    chosen = {
        said: choose_heads_of(SPEC, *of) for spelling, said in listed for of in calls(spelling)
    }
    one = HeadSelection(pairs=((5, 11),))
    assert chosen["head 11 of layer 5, where no layers are named beside it"] == one
    assert chosen["two heads of every layer"] == HeadSelection(heads=[5, 11])


def calls(spelling: str) -> list[tuple[object, object]]:
    """The arguments, layers and heads, of each value in a line such as `"L5H11", (5, 11)`."""
    values = eval(f"[{spelling}]", {"range": range})
    return [(attncli.arrays.backend.EVERY, value) for value in values]


@pytest.mark.parametrize("name", CHOOSING)
def test_functions_list_them_and_point_to_the_help(name: str) -> None:
    said = " ".join((inspect.getdoc(getattr(attncli, name)) or "").split())
    assert "`HeadSelection`" in said
    assert '"L5H11"' in said
    assert "(5, 11)" in said


def test_heads_with_their_layers() -> None:
    both = ((5, 11), (3, 1))
    for spelling in ("L5H11,L3H1", ["L5H11", (3, 1)], [(5, 11), (3, 1)]):
        assert pairs_of(SPEC, spelling) == both
    assert pairs_of(SPEC, (5, 11)) == pairs_of(SPEC, "L5H11") == both[:1]
    assert pairs_of(SPEC, ()) == ()
    with pytest.raises(AttnError, match="names heads without their layer"):
        pairs_of(SPEC, [5, 11])
    with pytest.raises(AttnError, match="no head 12"):
        pairs_of(SPEC, "L5H12")


def test_functions_that_take_them_one_by_one() -> None:
    model = attncli.load(seed=0, heads=2)
    found = [
        attncli.run(model, "a b c", weigh="a=×2", weigh_in=heads).rows()
        for heads in ("L0H1", (0, 1), [(0, 1)])
    ]
    assert found[0] == found[1] == found[2]
    with pytest.raises(AttnError, match="no head 7"):
        attncli.heads(model, "a b", directions="L0H7")
