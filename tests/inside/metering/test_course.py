"""The course of power: as few means as a result may have, whose sum is the energy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metered import Square, recorded

from entrypoints.metering.course import MOST_POINTS, course
from entrypoints.metering.energy import EnergyError, total_energy

WINDOW = (13.037, 33.59)


def energy_in_window(thin, window):
    first = round(-thin.begin / thin.interval)
    count = (window[1] - window[0]) / thin.interval
    assert count == pytest.approx(round(count)) and -thin.begin / thin.interval == pytest.approx(first)
    return math.fsum(thin.watts[first : first + round(count)]) * thin.interval


@pytest.mark.parametrize("kind", ["watts", "joules"])
def test_its_window_has_the_energy_and_what_lies_around_it_another_level(kind):
    wave = Square(1000.0, 400.0, 80.0)  # 80 W for 500 s
    signal = {"watts": lambda at: 80.0 if at < 13 else 300.0, "joules": lambda at: wave.joules(at)}[kind]
    recording = recorded(50, **{kind: signal})
    thin = course(recording, WINDOW)
    assert energy_in_window(thin, WINDOW) == pytest.approx(total_energy(recording, WINDOW).joules, rel=1e-9)
    assert thin.watts[0] == pytest.approx(80.0)
    assert len(thin.watts) <= MOST_POINTS and thin.interval >= 0.1
    assert thin.begin == pytest.approx(-WINDOW[0], abs=thin.interval)
    assert thin.begin + len(thin.watts) * thin.interval == pytest.approx(50 - WINDOW[0], abs=thin.interval)


@given(
    begin=st.floats(0, 60),
    length=st.floats(2.0, 100),
    after=st.floats(0.1, 50),
    phase=st.floats(0, 3),
    late=st.floats(0, 0.1),
)
def test_it_is_thin_and_adds_up_whatever_the_window(begin, length, after, phase, late):
    wave, window = Square(3.3, 80.0, 400.0, phase), (begin, begin + length)
    recording = recorded(window[1] + after, watts=wave.watts, late=lambda: late)
    used, thin = total_energy(recording, window), course(recording, window)
    if used.joules is not None:
        assert energy_in_window(thin, window) == pytest.approx(used.joules, rel=1e-9)
    assert 1 <= len(thin.watts) <= MOST_POINTS and thin.begin <= 0
    assert all(79.9 <= watts <= 400.1 for watts in thin.watts if watts is not None)


def test_of_a_run_that_is_much_longer_than_its_window_the_part_around_it_stays():
    thin = course(recorded(20_000, watts=lambda at: 50.0), (15_000.0, 15_002.0))
    assert len(thin.watts) == MOST_POINTS and thin.interval == 2.0 and thin.begin == -998.0


def test_devices_are_added():
    recording = recorded(40, watts=lambda at: 100.0)
    both = recording._replace(watts=[recording.watts[0], [25.0] * len(recording.times)])
    assert course(both, WINDOW).watts == pytest.approx([125.0] * len(course(both, WINDOW).watts))


def test_an_interval_without_readings_has_no_power():
    recording = recorded(40, watts=lambda at: 100.0)
    kept = [number for number, at in enumerate(recording.times) if not 5.0 < at < 7.0]
    holed = recording._replace(
        times=[recording.times[at] for at in kept], watts=[[recording.watts[0][at] for at in kept]]
    )
    thin = course(holed, WINDOW)
    missing = [
        thin.begin + WINDOW[0] + number * thin.interval for number, each in enumerate(thin.watts) if each is None
    ]
    assert missing and all(4.8 < at < 7.1 for at in missing)


def test_the_rest_ends_before_the_window():
    recording = recorded(40, watts=lambda at: 100.0)
    assert course(recording, WINDOW).rest_until is None
    assert course(recording._replace(idle_until=5.0), WINDOW).rest_until == pytest.approx(5.0 - WINDOW[0])


def test_a_counter_that_was_reset_before_the_window_has_no_course():
    recording = recorded(40, joules=lambda at: 100.0 * (at if at < 5 else at - 5))
    assert total_energy(recording, WINDOW).joules
    with pytest.raises(EnergyError):
        course(recording, WINDOW)
