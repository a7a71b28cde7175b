"""The fixtures of tests that run actors without a broker."""

from stage import four_threads, one_thread, stage

__all__ = ["four_threads", "one_thread", "stage"]
