"""Processes tell each other what they have: what differs is named, and between whom; a refusal reaches who waits."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace

import jax
from jax._src import distributed

from jhgnn.runtime import agreement
from jhgnn.runtime.agreement import DATA, STARTED, DisagreementError, agree, refuse


class Store:
    """A key-value store as the coordination service has it."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.told = threading.Condition()

    def key_value_set(self, key: str, value: str) -> None:
        with self.told:
            if key in self.values:
                raise jax.errors.JaxRuntimeError(f"ALREADY_EXISTS: {key}")
            self.values[key] = value
            self.told.notify_all()

    def blocking_key_value_get(self, key: str, timeout_ms: int) -> str:
        with self.told:
            if not self.told.wait_for(lambda: key in self.values, timeout_ms / 1000):
                raise jax.errors.JaxRuntimeError(f"DEADLINE_EXCEEDED: GetKeyValue() timed out with key: {key}")
            return self.values[key]


def each(count: int, monkeypatch, act, believed: Sequence[int] = ()) -> list[str]:
    """What `act(number)` raises in each of some processes, which are threads here; empty where it returns.

    `believed` is how many processes each believes that there are.
    """
    store, here = Store(), threading.local()

    class State:
        client = store

        @property
        def process_id(self) -> int:
            return here.number

        @property
        def num_processes(self) -> int:
            return believed[here.number] if believed else count

    monkeypatch.setattr(distributed, "global_state", State())
    messages = [""] * count

    def process(number: int) -> None:
        here.number = number
        try:
            act(number)
        except DisagreementError as error:
            messages[number] = str(error)

    threads = [threading.Thread(target=process, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return messages


def test_processes_that_have_the_same_go_on(monkeypatch):
    assert each(3, monkeypatch, lambda _: agree(STARTED, {"a": "1", "b": "2"})) == ["", "", ""]


def test_what_differs_is_named_in_each_process_with_both_values(monkeypatch):
    own = [{"jax": "1", "model.hidden": "16"}, {"jax": "1", "model.hidden": "32"}]
    line = "the processes differ: model.hidden is 16 in process 0, but 32 in process 1; start all of them again"
    assert each(2, monkeypatch, lambda number: agree(STARTED, own[number])) == [f"{line} with the same"] * 2


def test_one_of_three_that_differs_ends_all(monkeypatch):
    messages = each(3, monkeypatch, lambda number: agree(STARTED, {"x": "yes" if number == 1 else "no"}))
    assert all("x is no in process 0, but yes in process 1" in text for text in messages[:2])
    assert "x is yes in process 1, but no in process 2" in messages[2]


def test_further_differences_are_named_and_what_is_absent(monkeypatch):
    own = [{"a": "1", "b": "1", "c": "1"}, {"b": "2", "c": "2", "d": "2", "e": "2"}]
    first, second = each(2, monkeypatch, lambda number: agree(STARTED, own[number]))
    assert "a is 1 in process 0, but absent in process 1 (and so do b, c, d and others)" in first
    assert "in process 0, but" in second


def test_a_refusal_reaches_who_waits_at_a_later_stage(monkeypatch):
    def act(number: int) -> None:
        agree(STARTED, {})
        if number == 1:
            refuse("data.path /nowhere: there is no such folder")
        else:
            agree(DATA, {})

    assert each(2, monkeypatch, act) == ["process 1 cannot begin: data.path /nowhere: there is no such folder", ""]


def test_a_process_that_says_nothing_is_of_another_version(monkeypatch):
    def act(number: int) -> None:
        if number == 0:
            agree(STARTED, {}, limit_s=0.05)

    expected = "process 1 has joined, but did not say within 0 s what it was started with"
    assert each(2, monkeypatch, act)[0].startswith(expected)


def test_another_number_of_processes_is_told_before_one_is_waited_for_that_nobody_started(monkeypatch):
    def act(number: int) -> None:
        agree(STARTED, {"distributed.num_processes": str(believed[number])})

    believed = (2, 3)
    for text in each(2, monkeypatch, act, believed):
        assert "num_processes is 2 in process 0, but 3 in process 1" in text


def test_alone_nothing_is_compared(monkeypatch):
    monkeypatch.setattr(distributed, "global_state", SimpleNamespace(client=None, num_processes=1, process_id=0))
    agree(STARTED, {"a": "1"})
    assert not agreement.are_joined()
