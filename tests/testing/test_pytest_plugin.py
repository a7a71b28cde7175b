"""The pytest fixtures: a fresh broker, and a clear word about whatever is left of it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from dmq_actors import CloseReport, Message
from dmq_actors.testing import ManualClock
from dmq_actors.testing.pytest_plugin import problems_of

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester):
    """Run the text of a test module; answers what pytest says."""

    def run_module(text):
        pytester.makepyfile(text)
        return pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:cacheprovider")

    return run_module


def test_the_fixture_is_a_fresh_broker_on_the_clock_of_the_system(message_queue):
    assert message_queue.list_topics() == []
    assert not isinstance(message_queue._broker.clock, ManualClock)


def test_the_fixture_runs_on_the_manual_clock_when_the_test_uses_it(manual_clock, message_queue):
    message_queue.create_topic("t")
    manual_clock.set_time(5.0)
    assert message_queue.publish("t", Message("m")).timestamp == 5.0


def test_a_factory_makes_brokers_with_options(message_queue_factory, manual_clock):
    first, second = message_queue_factory(), message_queue_factory(clock=manual_clock)
    assert first._broker.clock is not second._broker.clock


def test_a_test_that_leaves_nothing_passes_and_the_broker_is_closed(run):
    result = run(
        """
        import pytest

        kept = []

        def test_first(message_queue):
            message_queue.create_topic("t")
            kept.append(message_queue)

        def test_second(message_queue):
            assert message_queue.list_topics() == []
            with pytest.raises(Exception, match="closed"):
                kept[0].list_topics()
        """
    )
    result.assert_outcomes(passed=2)


def test_an_actor_that_failed_for_nobody_fails_the_test(run):
    result = run(
        """
        def test_it(message_queue):
            message_queue.create_topic("t")
            message_queue.coordinator.create_topic.defer("t")
            message_queue.list_topics()
        """
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "coordinator failed at *create_topic*: TopicExistsError*",
            "and no caller was told; *take_actor_failures()",
            "*Traceback*",
        ]
    )


def test_a_failure_that_was_asserted_is_none(run):
    result = run(
        """
        def test_it(message_queue):
            message_queue.create_topic("t")
            message_queue.coordinator.create_topic.defer("t")
            message_queue.list_topics()
            [failure] = message_queue.take_actor_failures()
            assert failure.actor == "coordinator"
        """
    )
    result.assert_outcomes(passed=1)


def test_a_broker_that_does_not_end_in_time_fails_the_test(run):
    result = run(
        """
        import threading

        import pytest

        import dmq_actors.testing.pytest_plugin as plugin

        release = threading.Event()

        @pytest.fixture
        def released():
            plugin.CLOSE_TIMEOUT = 0.05
            yield
            plugin.CLOSE_TIMEOUT = 5.0
            release.set()
            for thread in threading.enumerate():
                if thread.name.startswith("dmq-"):
                    thread.join(10)

        def test_it(released, message_queue):
            inside = threading.Event()

            def hold(_):
                inside.set()
                release.wait(10)

            message_queue.create_topic("t")
            message_queue.create_consumer_group("g", "t")
            message_queue.add_consumer("g", "c")
            waiting = message_queue.group_actor("g").poll("c", timeout=None)
            waiting.add_done_callback(hold)
            message_queue.remove_consumer("g", "c")
            assert inside.wait(10)
        """
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "the broker did not end within 0.05 s; still running: dmq-dispatcher-0",
            "threads are left: dmq-dispatcher-0; close every broker that the test makes",
        ]
    )


def test_a_broker_that_the_test_made_and_forgot_fails_the_test(run):
    result = run(
        """
        import pytest

        import dmq_actors
        import dmq_actors.testing.pytest_plugin as plugin

        kept = []

        @pytest.fixture
        def closed_later():
            plugin.CLOSE_TIMEOUT = 0.2
            yield
            plugin.CLOSE_TIMEOUT = 5.0
            kept[0].close()

        def test_it(closed_later, message_queue):
            kept.append(dmq_actors.MessageQueue())
        """
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["threads are left: dmq-dispatcher-0; close every broker*"])


def test_a_handler_error_that_was_not_asserted_is_a_problem():
    failure = SimpleNamespace(group_id="g", message="m", error=ValueError("bad"))
    with_pools = SimpleNamespace(take_handler_failures=lambda: [failure])
    [problem] = problems_of(with_pools, CloseReport())
    assert "a handler of group g failed at 'm': ValueError('bad')" in problem
    assert "take_handler_failures()" in problem


def test_a_broker_that_ended_well_has_no_problems(message_queue):
    assert problems_of(message_queue, message_queue.close()) == []


def test_the_plugin_does_not_import_the_broker():
    code = "import sys, _dmq_actors_pytest; print('dmq_actors' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=True)
    assert done.stdout.strip() == b"False"
