//! Restarts, other connections, silence and clocks.

use super::*;
use crate::stream::RETRY_PAUSE_MIN;

#[test]
fn a_lower_number_with_a_newer_time_is_a_restart() {
    let lines: &[(In, &[Out])] = &[
        (LiveOf(1, 2), &[Clear, Ask(0), Status(Replaying)]),
        // Of the earlier life, late: neither fills a hole nor restarts anything.
        (LiveOf(0, 1), &[]),
        (LiveOf(0, 5), &[]),
        (ReplyOf(1, 0), &[Apply(0)]),
        (ReplyOf(1, 1), &[Apply(1), Apply(2)]),
        (End, &[Status(Complete)]),
        // Where it should come later, the clock may have been set: the publisher knows.
        (LiveOf(0, 3), &[Ask(2), Status(Replaying)]),
        (LiveOf(1, 3), &[]),
        (ReplyOf(1, 2), &[Apply(3)]),
        (End, &[Status(Complete)]),
    ];
    let script = check(5, lines);
    assert_eq!((script.report().epoch, script.report().stale_batches), (1, 3));
    check(5, &[(LiveOf(1, 0), &[Clear, Apply(0)])]);
    check(5, &[(LiveOf(1, 4), &[Clear, Ask(0), Status(Replaying)])]);
}

#[test]
fn without_times_any_regress_is_a_restart() {
    check_without_times(3, &[(Live(1), &[Clear, Ask(0)])]);
    check_without_times(3, &[(Live(2), &[]), (LiveOf(1, 2), &[Clear, Ask(0)])]);
    check_without_times(
        3,
        &[(LiveOf(1, 0), &[Clear, Apply(0), Ask(0)]), (LiveOf(1, 1), &[Apply(1)])],
    );
}

#[test]
fn a_restart_ends_a_running_replay() {
    let lines: &[(In, &[Out])] = &[
        (Live(8), &[Ask(4), Status(Replaying)]),
        (Reply(4), &[]),
        (LiveOf(1, 0), &[Clear, Apply(0), Status(Complete)]),
        // Late replies of the first life.
        (Reply(5), &[]),
        (End, &[]),
        (LiveOf(1, 1), &[Apply(1)]),
    ];
    check(5, lines);
}

/// Batches that a new process sent before it was recognized wait for the missing ones.
#[test]
fn what_waits_of_the_new_process_is_kept() {
    check(
        3,
        &[
            (Down, &[Status(StreamStatus::Down)]),
            (Up, &[Ask(2), Status(Replaying)]),
            (LiveOf(1, 6), &[]),
            (LiveOf(1, 4), &[]),
            (LiveOf(1, 1), &[Clear, Ask(0)]),
            (LiveOf(1, 0), &[Apply(0), Apply(1)]),
            (ReplyOf(1, 0), &[]),
            (ReplyOf(1, 1), &[]),
            (ReplyOf(1, 2), &[Apply(2)]),
            (ReplyOf(1, 5), &[Doubt(1), Apply(4), Apply(5), Apply(6)]),
        ],
    );
    // What waited of the one before is not kept.
    check(
        3,
        &[
            (Live(5), &[Ask(2), Status(Replaying)]),
            (LiveOf(1, 2), &[Clear, Ask(0)]),
            (ReplyOf(1, 1), &[Apply(1), Apply(2)]),
            (End, &[Status(Partial)]),
        ],
    );
}

/// A late unreadable batch of an earlier process makes numbers look lost that the next one still
/// has to give.
#[test]
fn a_number_below_an_unreadable_one_is_a_restart_if_nothing_is_newer() {
    for config in [REPLAYED, LIVE_ONLY] {
        let mut script = Script::new(config, 3);
        let unreadable = StreamBatch { ts: None, damage: Damage::Unreadable, ..script.batch(0, 9) };
        script.follower.on_live(unreadable, script.now, &mut vec![]);
        while script.report().next_seq < 10 {
            let due = script.follower.due().expect("what waits is waited for");
            script.play(Tick(due.since(script.now)));
        }
        let seen = script.play(LiveOf(1, 5));
        assert_eq!(seen.first(), Some(&Clear), "{seen:?}");
    }
    // Late, and no more than that: something later was read.
    let mut script = check_live_only(3, &[(Live(5), &[Status(Replaying)])]);
    script.play(Tick(REORDER_TIME_MAX));
    assert_eq!(script.play(Live(4)), []);
}

#[test]
fn resuming_knows_the_publisher_again_or_notices_another_one() {
    let same: &[(In, &[Out])] = &[
        (Down, &[Status(StreamStatus::Down)]),
        (Up, &[Ask(2), Status(Replaying)]),
        // May be of another process, until the replay speaks.
        (Live(3), &[]),
        (Reply(2), &[Apply(3)]),
        (End, &[Status(Complete)]),
    ];
    check(3, same);
    let shorter: &[(In, &[Out])] = &[
        (Tick(QUIET), &[Ask(2), Status(Replaying)]),
        (Reply(2), &[]),
        (End, &[Status(Complete)]),
        (Down, &[Status(StreamStatus::Down)]),
        (Up, &[Ask(2), Status(Replaying)]),
        (End, &[Clear]),
        (Tick(RETRY_PAUSE_MIN), &[Ask(0)]),
        (ReplyOf(1, 0), &[Apply(0)]),
        (End, &[]),
        (LiveOf(1, 1), &[Apply(1), Status(Complete)]),
    ];
    check(3, shorter);
    let longer: &[(In, &[Out])] = &[
        (Down, &[Status(StreamStatus::Down)]),
        (Up, &[Ask(2), Status(Replaying)]),
        (LiveOf(1, 3), &[]),
        (ReplyOf(1, 2), &[Clear, Ask(0)]),
        (ReplyOf(1, 3), &[]),
    ];
    let mut script = check(3, &longer[..4]);
    assert_eq!(script.play(ReplyOf(1, 0)), [Apply(0)]);
    let moved_on: &[(In, &[Out])] = &[
        (Down, &[Status(StreamStatus::Down)]),
        (Up, &[Ask(2), Status(Replaying)]),
        (Reply(9), &[Doubt(6), Apply(9)]),
    ];
    check(3, moved_on);
}

#[test]
fn without_a_replay_socket_another_connection_is_a_doubt() {
    check_live_only(
        3,
        &[
            (Down, &[Status(StreamStatus::Down)]),
            (Up, &[Doubt(0), Status(Partial)]),
            (LiveOf(1, 0), &[Clear, Apply(0), Status(Complete)]),
        ],
    );
}

/// A publisher that keeps nothing for replays looks like one that lives since a moment ago, as long
/// as it never brought anything again.
#[test]
fn a_publisher_that_keeps_nothing_is_no_restart() {
    let lines: &[(In, &[Out])] = &[
        (Tick(QUIET), &[Ask(2), Status(Replaying)]),
        (End, &[Status(Complete)]),
        (Down, &[Status(StreamStatus::Down)]),
        (Up, &[Ask(2), Status(Replaying)]),
        (Live(3), &[]),
        (End, &[Doubt(0), Apply(3), Status(Partial)]),
        (LiveOf(1, 0), &[Clear, Apply(0), Status(Complete)]),
    ];
    assert_eq!(check(3, lines).report().epoch, 1);
}

#[test]
fn what_was_known_before_is_forgotten_where_a_life_begins() {
    let before = Script::new(REPLAYED, 3).report();
    assert_eq!((before.last_seq, before.epoch), (Some(2), 0));
    let check = |lines: &[(In, &[Out])], epoch| {
        let mut script = Script::new(REPLAYED, 0);
        script.follower = Follower::resumed(REPLAYED, before);
        script.check(lines);
        let report = script.report();
        assert_eq!((report.epoch, report.applied_batches > 3), (epoch, true));
    };
    let up: (In, &[Out]) = (Up, &[Ask(0), Status(Replaying)]);
    // The same life, whole; another one, whole or shorter than what was seen; a truncated replay.
    check(&[up, (Reply(0), &[Clear, Apply(0)]), (Reply(1), &[Apply(1)])], 0);
    check(&[up, (ReplyOf(1, 0), &[Clear, Apply(0)]), (End, &[])], 1);
    check(&[up, (End, &[Clear]), (LiveOf(1, 0), &[Apply(0), Status(Complete)])], 1);
    check(&[up, (Reply(2), &[Apply(2)]), (ReplyOf(0, 3), &[Apply(3)])], 0);
    check(&[up, (ReplyOf(1, 9), &[Apply(9)])], 0);
}

#[test]
fn silence_is_asked_about_and_a_dead_socket_replaced() {
    let idle: &[(In, &[Out])] =
        &[(Tick(QUIET), &[Ask(2), Status(Replaying)]), (Reply(2), &[]), (End, &[Status(Complete)])];
    check(3, idle);
    let dead: &[(In, &[Out])] = &[
        (Tick(QUIET), &[Ask(2), Status(Replaying)]),
        (Reply(2), &[]),
        (Reply(3), &[Apply(3), Reconnect]),
        (Reply(4), &[Apply(4)]),
        (Down, &[Status(StreamStatus::Down)]),
        (Up, &[Ask(4), Status(Replaying)]),
    ];
    check(3, dead);
}

/// The clock is set back by an hour: a few batches are taken for old ones, then the clock is not
/// believed any more, and the publisher is asked.
#[test]
fn a_clock_that_was_set_back_is_seen_through() {
    for can_replay in [true, false] {
        let mut script = Script::new(FollowerConfig { can_replay, rank: None }, 0);
        (0..3).for_each(|seq| drop(script.play(LiveOf(9, seq))));
        script.now = script.now + Duration::from_secs(20);
        let stale = u64::from(STALE_BATCHES_MAX);
        let mut seen = Vec::new();
        (3..3 + stale).for_each(|seq| seen.extend(script.play(LiveOf(0, seq))));
        if can_replay {
            assert_eq!(seen, [Ask(2), Status(Replaying)]);
            assert_eq!(script.play(ReplyOf(9, 2)), []);
            assert_eq!(script.play(ReplyOf(0, 3)), [Apply(3)]);
        } else {
            assert_eq!(seen, [Doubt(0), Status(Partial)]);
            assert_eq!(script.play(LiveOf(0, 3 + stale)), [Status(Replaying)]);
            let waited = script.play(Tick(REORDER_TIME_MAX));
            assert_eq!(waited, [Doubt(stale), Apply(3 + stale), Status(Partial)]);
        }
        assert_eq!(script.report().stale_batches, stale);
    }
}
