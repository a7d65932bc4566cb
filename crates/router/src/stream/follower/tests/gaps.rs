//! Tests of missing, late, truncated and damaged batches.

use super::*;

#[test]
fn batches_in_order_are_applied_and_repeats_dropped() {
    let script = check(3, &[(Live(3), &[Apply(3)]), (Live(3), &[]), (Live(1), &[])]);
    assert_eq!(script.report().duplicate_batches, 2);
}

#[test]
fn first_contact_asks_for_everything_and_is_settled_by_a_second_replay() {
    let mut script = Script::new(REPLAYED, 0);
    script.follower = Follower::new(REPLAYED);
    script.check(&[
        (Up, &[Ask(0), Status(Replaying)]),
        (Reply(0), &[Apply(0)]),
        (Reply(1), &[Apply(1)]),
        (End, &[]),
        (Tick(SETTLE_TIME), &[Ask(1)]),
        (Reply(1), &[]),
        (Reply(2), &[Apply(2)]),
        (End, &[Status(Complete)]),
        (Live(3), &[Apply(3)]),
    ]);
}

#[test]
fn a_gap_is_filled_by_a_replay_that_knows_the_publisher_again() {
    let lines: &[(In, &[Out])] = &[
        (Live(4), &[Ask(1), Status(Replaying)]),
        (Live(6), &[]),
        (Reply(1), &[]),
        (Reply(2), &[Apply(2)]),
        (Reply(3), &[Apply(3), Apply(4)]),
        (Reply(4), &[]),
        // The answer was given before 5 was published: asked for again.
        (End, &[Ask(4)]),
        (Reply(4), &[]),
        (Reply(5), &[Apply(5), Apply(6)]),
        (End, &[Status(Complete)]),
    ];
    assert_eq!(check(2, lines).report().lost_batches, 0);
}

#[test]
fn a_late_batch_fills_its_hole() {
    let lines: &[(In, &[Out])] = &[
        (Live(3), &[Ask(1), Status(Replaying)]),
        (Live(2), &[Apply(2), Apply(3)]),
        (Reply(1), &[]),
        (End, &[Status(Complete)]),
    ];
    check(2, lines);
    check_live_only(
        2,
        &[(Live(3), &[Status(Replaying)]), (Live(2), &[Apply(2), Apply(3), Status(Complete)])],
    );
}

#[test]
fn a_truncated_replay_is_accepted_and_its_loss_doubted() {
    let lines: &[(In, &[Out])] = &[
        (Live(9), &[Ask(1), Status(Replaying)]),
        (Reply(6), &[Doubt(4), Apply(6)]),
        (Reply(7), &[Apply(7)]),
        // 8 is burnt: the replay reached beyond it.
        (Reply(9), &[Doubt(1), Apply(9)]),
        (End, &[Status(Partial)]),
    ];
    assert_eq!(check(2, lines).report().lost_batches, 5);
}

#[test]
fn a_truncated_first_contact_is_partial_but_not_in_doubt() {
    let lines: &[(In, &[Out])] = &[
        (Live(9), &[Ask(0), Status(Replaying)]),
        (Reply(8), &[Apply(8), Apply(9)]),
        (Reply(9), &[]),
        (End, &[Status(Partial)]),
    ];
    let mut script = Script::new(REPLAYED, 0);
    script.play(Live(9));
    script = Script::new(REPLAYED, 0);
    // The status is Replaying from the start: nothing has settled the connection yet.
    assert_eq!(script.play(Live(9)), [Ask(0)]);
    script.check(&lines[1..]);
    assert_eq!((script.report().lost_batches, script.report().next_seq), (8, 10));
}

/// A live batch that came before the publisher's reply and is not in it may be from another
/// publisher.
#[test]
fn what_waited_below_a_truncated_answer_is_in_doubt() {
    let mut script = Script::new(REPLAYED, 0);
    assert_eq!(script.play(Live(1)), [Ask(0)]);
    assert_eq!(script.play(Reply(4)), [Apply(1), Doubt(2), Apply(4)]);
    assert_eq!(script.play(End), [Status(Partial)]);
}

#[test]
fn a_clear_makes_a_partial_stream_complete() {
    let mut script = check_live_only(1, &[(Live(2), &[Status(Replaying)])]);
    let waited = script.play(Tick(REORDER_TIME_MAX));
    assert_eq!(waited, [Doubt(1), Apply(2), Status(Partial)]);
    let mut cleared = script.batch(0, 3);
    cleared.events.push(CacheEvent::Cleared);
    let mut effects = Vec::new();
    script.follower.on_live(cleared, script.now, &mut effects);
    assert_eq!(effects[1..], [StreamEffect::Update(StreamUpdate::Status(Complete))]);
}

#[test]
fn replays_that_fail_are_repeated_with_growing_pauses_and_then_given_up() {
    let mut script = check(1, &[(Live(3), &[Ask(0), Status(Replaying)])]);
    let mut pauses = Vec::new();
    let given_up = loop {
        let asked = script.now;
        let mut out = script.play(Fail);
        while out.is_empty() || out == [Doubt(0)] {
            let due = script.follower.due().expect("held batches wait for a time");
            out = script.play(Tick(due.since(script.now)));
        }
        pauses.push(script.now.since(asked));
        if out != [Ask(0)] {
            break out;
        }
    };
    assert_eq!(given_up, [Doubt(2), Apply(3), Status(Partial)]);
    assert_eq!(pauses.len(), REPLAY_TRIES_MAX as usize);
    let pauses = &pauses[..5];
    assert!(pauses.is_sorted() && pauses[4] >= Duration::from_secs(1), "{pauses:?}");
    // Once hopeless, the next hole gets one try.
    let lines: &[(In, &[Out])] = &[
        (Tick(Duration::from_secs(11)), &[]),
        (Live(5), &[Ask(3), Status(Replaying)]),
        (Fail, &[Doubt(1), Apply(5), Status(Partial)]),
    ];
    script.check(lines);
}

#[test]
fn a_silent_replay_has_failed() {
    let lines: &[(In, &[Out])] = &[
        (Live(3), &[Ask(0), Status(Replaying)]),
        (Tick(REPLY_TIME_MAX / 2), &[Doubt(0)]),
        (Reply(0), &[]),
        (Tick(REPLY_TIME_MAX / 2), &[]),
        (Tick(REPLY_TIME_MAX / 2), &[Ask(0)]),
    ];
    assert_eq!(check(1, lines).report().replays_failed, 1);
}

#[test]
fn damage_is_doubted_where_it_may_hide_a_removal() {
    let rows: [(Damage, &[Out]); 4] = [
        (Damage::None, &[Apply(3)]),
        (
            Damage::Skipped { reasons: vec![("tier", 2)], may_have_removed: false },
            &[Apply(3), Skipped(2), Status(Partial)],
        ),
        (
            Damage::Skipped { reasons: vec![("tag", 1)], may_have_removed: true },
            &[Apply(3), Skipped(1), Doubt(0), Status(Partial)],
        ),
        (Damage::Unreadable, &[Doubt(1), Status(Partial)]),
    ];
    for (damage, expected) in rows {
        let mut script = Script::new(REPLAYED, 3);
        let batch = StreamBatch { damage, ..script.batch(0, 3) };
        let mut effects = Vec::new();
        script.follower.on_live(batch, script.now, &mut effects);
        assert_eq!(effects.iter().map(in_short).collect::<Vec<_>>(), expected);
        script.check(&[(Live(4), &[Apply(4)])]);
    }
}

#[test]
fn other_ranks_and_bad_messages_are_counted() {
    let mut script = Script::new(FollowerConfig { can_replay: true, rank: Some(1) }, 1);
    for rank in [None, Some(1), Some(2)] {
        let seq = script.report().next_seq;
        let batch = StreamBatch { rank, ..script.batch(0, seq) };
        script.follower.on_live(batch, script.now, &mut Vec::new());
    }
    assert_eq!((script.report().applied_batches, script.report().rank_mismatches), (4, 1));
    script.check(&[(Bad, &[Skipped(1)]), (Live(u64::MAX), &[Skipped(1)])]);
    assert_eq!(script.report().bad_messages, 2);
}

/// Beyond [`REPLIES_SAFE`] replies the publisher's socket may have dropped some: the hole is asked
/// for once more, and only then final.
#[test]
fn a_hole_in_a_long_replay_is_asked_for_again() {
    let mut script = Script::new(REPLAYED, 0);
    let safe = REPLIES_SAFE;
    assert_eq!(script.play(Live(safe + 5)), [Ask(0)]);
    (0..safe).for_each(|seq| assert_eq!(script.play(Reply(seq)), [Apply(seq)]));
    let hole = safe + 1;
    script.check(&[
        (Reply(safe), &[Apply(safe)]),
        (Reply(hole + 1), &[]),
        (Reply(hole + 3), &[]),
        (End, &[Ask(safe)]),
        (Reply(safe), &[]),
        (Reply(hole), &[Apply(hole), Apply(hole + 1)]),
        (Reply(hole + 3), &[Doubt(1), Apply(hole + 3), Apply(hole + 4)]),
        (End, &[Status(Partial)]),
    ]);
}

#[test]
fn behind_a_clear_nothing_is_missing() {
    let mut script =
        check(2, &[(Live(3), &[Ask(1), Status(Replaying)]), (Tick(LATE_TIME_MAX), &[Doubt(0)])]);
    let cleared = |script: &Script, seq| StreamBatch {
        events: vec![CacheEvent::Cleared],
        ..script.batch(0, seq)
    };
    let mut live = |batch: StreamBatch| {
        let mut effects = Vec::new();
        script.follower.on_live(batch, script.now, &mut effects);
        script.follower.check();
        effects.iter().map(in_short).collect::<Vec<_>>()
    };
    let batch = cleared(&Script::new(REPLAYED, 0), 5);
    let seen = live(batch);
    assert_eq!(seen, [Doubt(1), Apply(3), Doubt(1), Apply(5), Status(Complete)]);
    // Replies about the old gap no longer count; the next gap gets a question of its own.
    script.check(&[
        (Reply(4), &[]),
        (Live(6), &[Apply(6)]),
        (Live(8), &[Ask(6), Status(Replaying)]),
        (Reply(6), &[]),
        (Reply(7), &[Apply(7), Apply(8)]),
        (End, &[Status(Complete)]),
    ]);
    // Without a timestamp it may itself be late.
    let mut script = Script::new(REPLAYED, 0);
    script.has_times = false;
    (0..2).for_each(|seq| drop(script.play(Live(seq))));
    let batch = cleared(&script, 3);
    let mut effects = Vec::new();
    script.follower.on_live(batch, script.now, &mut effects);
    let asks = effects.iter().map(in_short).any(|out| out == Ask(1));
    assert!(asks && script.report().held_batches == 1, "{effects:?}");
}
