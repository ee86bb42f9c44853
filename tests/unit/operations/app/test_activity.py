"""The activity of an app, as a line for people."""

from __future__ import annotations

from tailrace.operations.app.activity import SubscriptionActivity, activity_text, total_of


def test_the_activities_of_processes_are_added_up_by_subscription() -> None:
    one = {"mailer": SubscriptionActivity(2, 3, 100, 1, 0), "crm": SubscriptionActivity(1)}
    other = {"mailer": SubscriptionActivity(2, 9, 1104, 2, 0)}
    assert total_of([one, {}, other]) == {
        "mailer": SubscriptionActivity(4, 12, 1204, 3, 0),
        "crm": SubscriptionActivity(1),
    }


def test_failures_are_shown_only_if_there_are_some() -> None:
    activity = {
        "mailer": SubscriptionActivity(4, 12, 1204, 3, 1),
        "crm": SubscriptionActivity(1),
    }
    assert activity_text(activity) == (
        "mailer: 4 shards, 12 in flight, 1,204 succeeded, 3 failed, 1 rejected"
        " · crm: 1 shard, 0 in flight, 0 succeeded"
    )
