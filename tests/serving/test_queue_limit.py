"""How many may wait, and when to come again."""

from draftproof.serving.queue_limit import LONGEST_RETRY_SECONDS, QueueLimit


def test_there_is_room_for_those_that_run_and_those_that_may_wait() -> None:
    limit = QueueLimit(running=2, waiting=3)
    assert [limit.has_room(count) for count in range(4, 7)] == [True, False, False]


def test_without_a_queue_only_those_that_run_are_taken() -> None:
    assert QueueLimit(running=1, waiting=0).has_room(0)
    assert not QueueLimit(running=1, waiting=0).has_room(1)


def test_retry_after_is_the_time_in_which_half_of_the_queue_is_served() -> None:
    limit = QueueLimit(running=4, waiting=36)
    for _ in range(100):
        limit.note_finished(20.0)
    # 40 requests stay 20 s each: two leave a second, so 18 take 9 s.
    assert limit.retry_after() == 9


def test_retry_after_is_a_whole_number_of_seconds_within_bounds() -> None:
    short, long = QueueLimit(8, 0), QueueLimit(1, 1000)
    for _ in range(100):
        short.note_finished(0.01)
        long.note_finished(500.0)
    assert (short.retry_after(), long.retry_after()) == (1, LONGEST_RETRY_SECONDS)
