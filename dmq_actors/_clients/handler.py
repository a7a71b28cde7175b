"""`Handler`: the user's function, however it wants to be called."""

from __future__ import annotations

import inspect
import pickle
from concurrent.futures import BrokenExecutor, CancelledError, Executor, ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

from dmq_actors._core.arguments import check_int
from dmq_actors.errors import InvalidArgumentError, InvalidTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dmq_actors._clients.steps import Steps


class PoolStopped(BaseException):
    """The handler cannot be called any more: the pool ends, and nobody's message has failed."""


class Handler:
    """A checked handler.

    Args:
        function: takes a message, or a list of them with `batch_size`; may be a coroutine function.
        batch_size: how many messages it takes at most; None for one by one.
        executor: where it runs; None for the worker's own thread or loop.
    """

    def __init__(
        self, function: Callable[[Any], Any], batch_size: int | None, executor: Executor | None
    ) -> None:
        if not callable(function):
            raise InvalidTypeError(
                f"a handler is a function of a message, found {type(function).__name__}"
            )
        self.batch_size = (
            None if batch_size is None else check_int("batch_size", batch_size, minimum=1)
        )
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # an object whose call is async
        )
        self._function = function
        self._executor = executor
        if executor is not None:
            self._check_executor(executor)

    def _check_executor(self, executor: Executor) -> None:
        if not isinstance(executor, Executor):
            raise InvalidTypeError(
                "executor is an Executor of concurrent.futures, or None, "
                f"found {type(executor).__name__}"
            )
        if self.is_async:
            raise InvalidArgumentError(
                "a coroutine function runs in an event loop, not in an executor; "
                "give a plain function, or no executor"
            )
        if isinstance(executor, ProcessPoolExecutor):
            try:
                pickle.dumps(self._function)
            except Exception as error:
                raise InvalidArgumentError(
                    f"a handler that runs in other processes must be importable there ({error}); "
                    "define it at the top level of a module"
                ) from error

    def call(self, argument: Any) -> Steps[None]:
        """Let it work; raises what it raises.

        Raises:
            PoolStopped: its executor is broken or shut down.
        """
        if self._executor is not None:
            self._call_elsewhere(self._executor, argument)
            return
        result = self._function(argument)
        if self.is_async:
            yield result, None
        elif inspect.isawaitable(result):
            getattr(result, "close", int)()
            raise InvalidTypeError(
                "the handler returned something to await, and nobody awaits it; "
                "make it a coroutine function (async def)"
            )

    def _call_elsewhere(self, executor: Executor, argument: Any) -> None:
        try:
            future = executor.submit(self._function, argument)
        except RuntimeError as error:  # broken, or shut down
            raise PoolStopped(f"the executor takes no more work: {error}") from error
        try:
            future.result()
        except (BrokenExecutor, CancelledError) as error:
            raise PoolStopped(f"the executor gave up: {error!r}") from error
