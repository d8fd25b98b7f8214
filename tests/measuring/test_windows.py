"""Windows of a measurement: their edges."""

from joulediff.measuring.windows import joined_edges


def test_windows_at_the_power_limit_are_joined_to_half_a_second() -> None:
    assert joined_edges([0.0, 0.25, 0.5, 0.75, 1.0, 1.2]) == [0.0, 0.5, 1.2]
    assert joined_edges([0.0, 0.3]) == [0.0, 0.3]
    assert joined_edges([0.0, 0.6, 1.2]) == [0.0, 0.6, 1.2]
