"""The table of inbox modes, cell by cell."""

import pytest

from hub.delivery.errors import BadSettings
from hub.delivery.inbox_mode import Answer, Way, Wish, decide, read_wish

TABLE = {
    (Wish.AUTO, Answer.OK): Way.DURABLE,
    (Wish.AUTO, Answer.NOT_OK): Way.RETRY,
    (Wish.AUTO, Answer.NO_HUB_PULL_TAKEN): Way.BOUND,
    (Wish.AUTO, Answer.NO_HUB_PULL_REFUSED): Way.CORE,
    (Wish.ON, Answer.OK): Way.DURABLE,
    (Wish.ON, Answer.NOT_OK): Way.RETRY,
    (Wish.ON, Answer.NO_HUB_PULL_TAKEN): Way.BOUND,
    (Wish.ON, Answer.NO_HUB_PULL_REFUSED): Way.RETRY,
    (Wish.OFF, Answer.OK): Way.CORE,
    (Wish.OFF, Answer.NOT_OK): Way.CORE,
    (Wish.OFF, Answer.NO_HUB_PULL_TAKEN): Way.CORE,
    (Wish.OFF, Answer.NO_HUB_PULL_REFUSED): Way.CORE,
}


@pytest.mark.parametrize("wish", list(Wish))
@pytest.mark.parametrize("answer", list(Answer))
def test_each_wish_and_answer_has_its_way(wish: Wish, answer: Answer) -> None:
    assert decide(wish, answer) is TABLE[wish, answer]


@pytest.mark.parametrize("text", ["", "AUTO", "yes", "true"])
def test_a_wish_that_is_none_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(BadSettings, match="expected auto, on or off"):
        read_wish(text)
