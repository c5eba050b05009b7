from collections.abc import Sequence

import pytest

from retoma.define.items import FailedItem, ItemCounts, Items, all_finished
from retoma.errors import DefinitionError


def test_items_are_a_sequence_of_the_results() -> None:
    items = Items(["a", "b", "c"])
    assert isinstance(items, Sequence)
    assert list(items) == ["a", "b", "c"]
    assert (items[0], items[-1], items[1:]) == ("a", "c", ("b", "c"))
    assert len(items) == items.total == 3


def test_items_of_a_list_have_their_positions_as_keys() -> None:
    assert Items(["a", "b"]).keys == ("0", "1")


def test_items_can_be_built_by_key_with_failures() -> None:
    lost = FailedItem("c", "TIMEOUT", state="quarantined")
    items = Items.of({"a": 1, "b": 2}, failures=[lost])
    assert items.by_key == {"a": 1, "b": 2}
    assert items.keys == ("a", "b")
    assert items.failures == (lost,)
    assert items.total == 3


def test_items_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        Items([1])[0] = 2  # type: ignore[index]
    with pytest.raises(AttributeError):
        Items([1]).keys = ("k",)  # type: ignore[misc]


def test_items_are_equal_when_results_keys_and_failures_are() -> None:
    assert Items([1, 2]) == Items.of({"0": 1, "1": 2})
    assert Items([1]) != Items.of({"k": 1})
    assert Items([1]) != Items([1], failures=[FailedItem("1", "LOST")])
    assert Items([1]) != [1]
    assert hash(Items([1])) == hash(Items([1]))


def test_the_repr_of_items_can_be_pasted_into_a_test() -> None:
    items = Items.of({"a": 1}, failures=[FailedItem("b", "LOST")])
    assert eval(repr(items)) == items


def test_every_result_needs_a_key() -> None:
    with pytest.raises(ValueError, match="there are 2 results but 1 keys"):
        Items([1, 2], keys=["a"])


def test_a_join_proceeds_despite_failures_by_default() -> None:
    assert all_finished()(ItemCounts(total=10, failed=10))


def test_a_join_of_no_items_proceeds() -> None:
    assert all_finished(allow_failed=0.0)(ItemCounts(total=0))


def test_a_float_allows_a_fraction_of_the_items_to_fail() -> None:
    proceed_when = all_finished(allow_failed=0.02)
    assert proceed_when(ItemCounts(total=100, failed=2))
    assert not proceed_when(ItemCounts(total=100, failed=3))


def test_a_failure_fraction_is_exact() -> None:
    assert all(all_finished(allow_failed=n / 100)(ItemCounts(total=100, failed=n)) for n in range(101))


def test_an_int_allows_a_count_of_items_to_fail() -> None:
    proceed_when = all_finished(allow_failed=1)
    assert proceed_when(ItemCounts(total=100, failed=1))
    assert not proceed_when(ItemCounts(total=100, failed=2))


def test_unwanted_items_are_not_failures() -> None:
    counts = ItemCounts(total=10, failed=0, skipped=4)
    assert all_finished(allow_failed=0)(counts)
    assert counts.succeeded == 6


@pytest.mark.parametrize("allow_failed", [-1, -0.1, 1.5])
def test_an_impossible_failure_limit_is_rejected(allow_failed: float) -> None:
    with pytest.raises(DefinitionError, match=r"fraction from 0\.0 to 1\.0"):
        all_finished(allow_failed=allow_failed)
