"""What a mistake in a place is told to write instead: nothing that is refused there."""

from __future__ import annotations

import re

import pytest

from foldlog.client.places import parse_place, parse_point, parse_points
from foldlog.errors import InvalidArgument

MISTAKES = ["0:1", "1:2", "soon", "", "@yesterday", "@", ":", "1::2", "@-6h:-1h", "0=1", "x=1"]


@pytest.mark.parametrize("parse", [parse_place, parse_point, parse_points])
@pytest.mark.parametrize("text", MISTAKES)
def test_every_place_that_is_offered_is_taken(parse: object, text: str) -> None:
    assert callable(parse)
    try:
        parse(text)
    except InvalidArgument as error:
        _, _, advice = str(error).partition("; ")
        advice = re.sub(r"\((?!one for each).*?\)", "", advice)
        for offered in re.findall(r"(?<![\w=,:@+-])(@\S+|[+-]?\d[\d:=,]*|start|end)(?=[ ,)]|$)", advice):
            parse(offered.rstrip(","))


@pytest.mark.parametrize("text", ["0:1", "1:2"])
def test_one_for_each_partition_is_offered_where_it_is_taken(text: str) -> None:
    with pytest.raises(InvalidArgument, match="one for each partition is 0=1200,1=900"):
        parse_points(text)
    with pytest.raises(InvalidArgument) as refused:
        parse_point(text)
    assert "partition" not in str(refused.value)


@pytest.mark.parametrize("text", ["bogus", "", ":"])
def test_who_gives_something_else_altogether_is_told_of_it_too(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"or one for each partition: 0=1200,1=900$"):
        parse_points(text)
    for parse in (parse_point, parse_place):
        with pytest.raises(InvalidArgument) as refused:
            parse(text)
        assert "partition" not in str(refused.value)
