"""What holds of energy for any signal, window and jitter."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metered import Square, recorded

from entrypoints.metering.energy import window_energy

WATTS = st.floats(1.0, 2000.0)
SWINGS = st.floats(1 / 1.5, 1.5)  # of a square wave: its higher power over its lower, either first
PHASES = st.floats(0.0, 10.0)
PERIODS = st.floats(2.0, 10.0)
STARTS = st.floats(0.0, 5.0)
LENGTHS = st.floats(30.0, 40.0)
SEEDS = st.integers(0, 2**32 - 1)
TOLERANCE = 0.005


def jitter(seed, most=0.02):
    """Wake-ups that are up to `most` seconds late."""
    generator = random.Random(seed)
    return lambda: generator.uniform(0.0, most)


@given(WATTS, WATTS, STARTS, LENGTHS, SEEDS)
def test_lines_are_integrated_exactly_whatever_the_jitter(first, slope, start, length, seed):
    window = (start, start + length)
    recording = recorded(50, watts=lambda at: first + slope * at, late=jitter(seed))
    exact = first * length + slope * (window[1] ** 2 - window[0] ** 2) / 2
    assert window_energy(recording, window).joules[0] == pytest.approx(exact, rel=1e-9)


@given(PERIODS, WATTS, WATTS, PHASES, STARTS, LENGTHS, st.floats(100.0, 1e5), SEEDS)
def test_a_wrapping_counter_is_within_the_tolerance_for_any_square_wave(p, low, high, phase, start, length, top, seed):
    wave, window = Square(p, low, high, phase), (start, start + length)
    top = max(top, 0.2 * max(low, high))  # at most one wrap between two readings: more cannot be seen
    recording = recorded(50, joules=wave.joules, top=top, late=jitter(seed))
    assert window_energy(recording, window).joules[0] == pytest.approx(wave.between(window), rel=TOLERANCE)


@given(st.integers(10, 50), WATTS, SWINGS, st.integers(0, 99), st.floats(0.001, 0.099), STARTS, LENGTHS)
def test_a_square_wave_of_whole_sampling_periods_is_within_the_tolerance(half, low, swing, tenths, rest, start, length):
    """Its jumps up and down fall on the same place between two samples (`rest`), so that their errors cancel out."""
    wave, window = Square(2 * half / 10, low, low * swing, tenths / 10 + rest), (start, start + length)
    recording = recorded(50, watts=wave.watts)
    assert window_energy(recording, window).joules[0] == pytest.approx(wave.between(window), rel=TOLERANCE)


@given(PERIODS, WATTS, SWINGS, PHASES, STARTS, LENGTHS)
def test_hardware_that_averages_over_the_sampling_period_is_within_it_for_any(p, low, swing, phase, start, length):
    wave, window = Square(p, low, low * swing, phase), (start, start + length)
    recording = recorded(50, watts=lambda at: (wave.joules(at) - wave.joules(at - 0.1)) / 0.1)
    assert window_energy(recording, window).joules[0] == pytest.approx(wave.between(window), rel=TOLERANCE)


@given(PERIODS, WATTS, WATTS, PHASES, STARTS, LENGTHS, SEEDS)
def test_instantaneous_power_is_wrong_by_half_a_sampling_period_for_each_jump_at_most(
    p, low, high, phase, start, length, seed
):
    """No more can be said: between two samples nobody knows when the power jumped."""
    wave, window = Square(p, low, high, phase), (start, start + length)
    recording = recorded(50, watts=wave.watts, late=jitter(seed))
    jumps = 2 * (length / p + 1)
    longest = max(after - before for before, after in zip(recording.times, recording.times[1:]))
    exact = wave.between(window)
    most = jumps * abs(high - low) * longest / 2 + 1e-9 * exact
    assert window_energy(recording, window).joules[0] == pytest.approx(exact, abs=most)


@given(WATTS, STARTS, LENGTHS, st.floats(0.1, 0.9))
def test_adjacent_windows_add_up(base, start, length, share):
    middle, end = start + 4 + share * (length - 8), start + length
    recording = recorded(50, watts=lambda at: base * (1 + at % 3), joules=lambda at: base * at)
    first, second, whole = (window_energy(recording, w) for w in ((start, middle), (middle, end), (start, end)))
    assert first.joules[0] + second.joules[0] == pytest.approx(whole.joules[0], rel=1e-9)
    assert first.integral and second.integral and whole.integral
    assert first.integral[0] + second.integral[0] == pytest.approx(whole.integral[0], rel=1e-9)


@given(st.floats(0.02, 1.0), SEEDS)
def test_readings_keep_their_deadlines_however_late_each_one_is(period, seed):
    recording = recorded(1000 * period, period=period, watts=lambda at: 1.0, late=jitter(seed, 0.9 * period))
    late = [at - number * period for number, at in enumerate(recording.times[:-1])]  # the last one is at the stop
    assert min(late) >= -1e-6 and max(late) <= 0.9 * period + 1e-6
