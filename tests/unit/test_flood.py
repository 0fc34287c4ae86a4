"""The brake on log lines, by a clock of its own."""

from hub.service.flood import LINES_A_WINDOW, WINDOW_SECS, FloodBrake


def test_a_flood_is_held_back_and_told_by_its_number_in_the_next_window() -> None:
    now = 0.0
    brake = FloodBrake(lambda: now)

    let = [brake.lets_through() for _ in range(LINES_A_WINDOW + 50)]
    assert let == [True] * LINES_A_WINDOW + [False] * 50
    now = WINDOW_SECS
    assert brake.lets_through()
    assert brake.take_held_back() == 50
    assert brake.take_held_back() == 0
