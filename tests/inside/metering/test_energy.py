"""Energy of traces whose integral is known on paper, and the windows of which there is none."""

from __future__ import annotations

import pytest
from metered import Square, recorded

from entrypoints.metering.energy import EnergyError, total_energy, window_energy
from entrypoints.metering.meter import Absence

WINDOW = (3.037, 33.59)  # 30.553 s whose edges lie between samples
SECONDS = WINDOW[1] - WINDOW[0]


def test_a_constant():
    used = window_energy(recorded(40, watts=lambda at: 123.0), WINDOW)
    assert used.joules == [pytest.approx(123.0 * SECONDS, rel=1e-12)]
    assert (used.method, used.integral, used.counter_integral_difference) == ("integral", None, None)


def test_a_ramp():
    used = window_energy(recorded(40, watts=lambda at: 50 + 7 * at), WINDOW)
    assert used.joules == [pytest.approx(50 * SECONDS + 3.5 * (WINDOW[1] ** 2 - WINDOW[0] ** 2), rel=1e-12)]


@pytest.mark.parametrize("phase", [0.0, 0.013, 0.05, 0.71])
@pytest.mark.parametrize("period", [2.0, 2.2, 3.0, 10.0])
def test_a_square_wave_in_step_with_the_samples(period, phase):
    wave = Square(period, 80.0, 400.0, phase)
    used = window_energy(recorded(40, watts=wave.watts), WINDOW)
    assert used.joules == [pytest.approx(wave.between(WINDOW), rel=0.005)]


@pytest.mark.parametrize("top", [None, 3000.0, 900.0, 262.143])
@pytest.mark.parametrize("period", [2.0, 2.1, 3.33])
def test_a_counter_that_wraps(period, top):
    wave = Square(period, 80.0, 400.0)
    used = window_energy(recorded(40, joules=lambda at: 1e3 + wave.joules(at), top=top), WINDOW)
    assert used.joules == [pytest.approx(wave.between(WINDOW), rel=0.005)]
    assert (used.method, used.integral) == ("counter", None)


def test_a_counter_counts_before_an_integral_and_their_difference_is_told():
    used = window_energy(recorded(40, watts=lambda at: 103.0, joules=lambda at: 100.0 * at), WINDOW)
    assert used.method == "counter"
    assert used.joules == [pytest.approx(100.0 * SECONDS)] and used.integral == [pytest.approx(103.0 * SECONDS)]
    assert used.counter_integral_difference == pytest.approx(0.03)


def test_devices_are_told_apart_and_added():
    recording = recorded(40, watts=lambda at: 100.0)
    both = recording._replace(watts=[recording.watts[0], [25.0] * len(recording.times)])
    assert window_energy(both, WINDOW).joules == [pytest.approx(100.0 * SECONDS), pytest.approx(25.0 * SECONDS)]
    assert total_energy(both, WINDOW).joules == pytest.approx(125.0 * SECONDS)


def refused(recording, window=WINDOW):
    """The reason; `total` must give the same one."""
    with pytest.raises(EnergyError) as raised:
        window_energy(recording, window)
    assert total_energy(recording, window) == (None, str(raised.value))
    return str(raised.value)


def without(recording, start, end):
    """The recording with a hole in it."""
    kept = [index for index, at in enumerate(recording.times) if not start < at < end]
    return recording._replace(
        times=[recording.times[index] for index in kept],
        watts=[[watts[index] for index in kept] for watts in recording.watts],
        joules=[[joules[index] for index in kept] for joules in recording.joules],
    )


@pytest.mark.parametrize("signals", [{"watts": lambda at: 100.0}, {"joules": lambda at: 100.0 * at}])
def test_a_gap_of_more_than_five_periods(signals):
    recording = recorded(40, **signals)
    assert window_energy(without(recording, 20.05, 20.35), WINDOW).joules == [pytest.approx(100.0 * SECONDS)]
    assert "a gap of 0.6 s, over 5 periods of 0.1 s" in refused(without(recording, 20.05, 20.55))
    assert "gap" in refused(without(recording, 2.95, 3.45))  # one that the window's edge lies in
    assert total_energy(without(recording, 1.0, 2.0), WINDOW).joules  # one before the window


def test_a_gap_names_the_readings_that_failed():
    recording = without(recorded(40, watts=lambda at: 1.0), 20.0, 21.0)._replace(failures=9, last_failure="no such bus")
    assert refused(recording).endswith("9 readings failed, the last: no such bus")


def test_a_window_of_less_than_twenty_periods():
    recording = recorded(40, watts=lambda at: 100.0)
    assert total_energy(recording, (3.0, 5.05)).joules == pytest.approx(205.0)
    assert "the window of 1.95 s is shorter than 20 periods of 0.1 s" in refused(recording, (3.0, 4.95))
    slow = recorded(40, watts=lambda at: 100.0, update_period=1.0)
    assert "20 periods of 1 s" in refused(slow, (3.0, 22.9))


def test_samples_that_begin_late_or_end_early():
    recording = recorded(40, watts=lambda at: 100.0, began=5.0)
    assert "from edge to edge" in refused(recording, (4.9, 36.0))
    assert "from edge to edge" in refused(recording, (6.0, 45.1))
    assert total_energy(recording, (5.0, 45.0)).joules == pytest.approx(4000.0)
    assert "from edge to edge" in refused(recording._replace(times=[], watts=[[]]))


def test_a_counter_that_was_reset():
    recording = recorded(40, joules=lambda at: 100.0 * (at if at < 20 else at - 20))
    assert "went backwards" in refused(recording)


@pytest.mark.parametrize("signals", [{"watts": lambda at: 0.0}, {"joules": lambda at: 7.0}])
def test_no_energy_at_all_is_no_measurement(signals):
    assert "does not measure" in refused(recorded(40, **signals))


def test_an_absent_meter():
    assert refused(Absence("no meter here")) == "nothing was metered: power says why"
