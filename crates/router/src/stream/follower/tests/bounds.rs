//! Tests of the bounds of waiting batches, and of the largest numbers.

use super::*;

#[test]
fn what_waits_is_bounded_and_fetched_again() {
    let mut script = check(1, &[(Live(2), &[Ask(0), Status(Replaying)])]);
    let end = 20_000;
    (3..end).for_each(|seq| drop(script.play(Live(seq))));
    assert_eq!(script.report().held_batches, HELD_BATCHES_MAX);
    assert_eq!(script.report().overflown_batches, end - 2 - HELD_BATCHES_MAX as u64);
    script.play(Reply(0));
    assert_eq!(script.play(Reply(1)).len(), 1 + HELD_BATCHES_MAX);
    let next = script.report().next_seq;
    assert_eq!(script.play(End), [Ask(next - 1)]);
    (next - 1..end).for_each(|seq| drop(script.play(Reply(seq))));
    assert_eq!(script.play(End), [Status(Complete)]);
    assert_eq!((script.report().next_seq, script.report().lost_batches), (end, 0));
}

/// More is late than can wait: it is applied as it comes, and nothing of it is lost. What was known
/// before stays in doubt.
#[test]
fn a_late_backlog_that_does_not_fit_is_not_lost() {
    let mut script = check(
        3,
        &[
            (Down, &[Status(StreamStatus::Down)]),
            (Tick(LATE_TIME_MAX), &[Doubt(0)]),
            (Up, &[Ask(2), Status(Replaying)]),
        ],
    );
    let end = HELD_BATCHES_MAX as u64 + 2_000;
    assert_eq!(script.play(Live(end)), []);
    (2..end).for_each(|seq| drop(script.play(Reply(seq))));
    assert_eq!(script.play(Reply(end)), []);
    assert_eq!(script.play(End), [Status(Partial)]);
    assert_eq!((script.report().next_seq, script.report().lost_batches), (end + 1, 0));
}

#[test]
fn what_waits_is_bounded_in_bytes_too() {
    for (config, held, lost) in [(REPLAYED, 31, 0), (LIVE_ONLY, 9, 1)] {
        let mut script = Script::new(config, 1);
        for seq in 2..42 {
            let blocks = vec![BlockHash::from_u64(seq); (1 << 20) / size_of::<BlockHash>()];
            let event = CacheEvent::Removed { blocks, tier: Tier::Device, group: 0 };
            let batch = StreamBatch { events: vec![event], ..script.batch(0, seq) };
            script.follower.on_live(batch, script.now, &mut Vec::new());
            assert!(script.report().held_bytes <= HELD_BYTES_MAX);
            if config.can_replay || script.report().held_batches > 0 {
                script.follower.check();
            }
        }
        assert_eq!(script.report().lost_batches, lost, "{config:?}");
        let at_most = if config.can_replay { held } else { 0 };
        assert_eq!(script.report().held_batches, at_most, "{config:?}");
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let top = u64::MAX - 1;
    let mut script = check_live_only(1, &[]);
    let far = StreamBatch { seq: top, ts: Some(1e9), fingerprint: 7, ..StreamBatch::default() };
    script.follower.on_live(far, script.now, &mut Vec::new());
    let waited = script.play(Tick(REORDER_TIME_MAX));
    assert_eq!(waited, [Doubt(top - 1), Apply(top), Status(Partial)]);
    assert_eq!(script.report().next_seq, u64::MAX);
    // The publisher's next real batch is lower and newer than anything applied before the jump.
    assert_eq!(script.play(Live(1)), []);
}
