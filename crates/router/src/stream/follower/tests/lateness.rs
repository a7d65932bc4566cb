//! Tests of lateness, of the doubt that it causes and of the return to trust.

use super::*;
use crate::stream::{HELD_TIME_MAX, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN, TRUST_TIME_MAX};

#[test]
fn a_long_absence_is_a_doubt_once() {
    let lines: &[(In, &[Out])] = &[
        (Down, &[Status(StreamStatus::Down)]),
        (Tick(LATE_TIME_MAX), &[Doubt(0)]),
        (Tick(LATE_TIME_MAX), &[]),
    ];
    check(3, lines);
    // What waits is not applied behind the doubt, as if it had been heard since: it is asked for.
    let lines: &[(In, &[Out])] = &[
        (Live(5), &[Ask(2), Status(Replaying)]),
        (Down, &[Status(StreamStatus::Down)]),
        (Tick(LATE_TIME_MAX), &[Doubt(0)]),
        (Tick(HELD_TIME_MAX), &[]),
        (Up, &[Ask(2), Status(Replaying)]),
        (Reply(2), &[]),
        (Reply(3), &[Trust, Apply(3)]),
    ];
    assert_eq!(check(3, lines).report().lost_batches, 0);
    check(0, &[(Down, &[Status(StreamStatus::Down)]), (Tick(LATE_TIME_MAX), &[])]);
}

/// Gone for long enough to be doubted, and there again.
const AWAY: [(In, &[Out]); 3] = [
    (Down, &[Status(StreamStatus::Down)]),
    (Tick(LATE_TIME_MAX), &[Doubt(0)]),
    (Up, &[Ask(2), Status(Replaying)]),
];

/// Plays an absence and then `lines`, on a stream that has applied `0..3`.
fn check_away(lines: &[(In, &[Out])]) -> Script {
    check(3, &[&AWAY, lines].concat())
}

#[test]
fn a_publisher_that_has_everything_still_takes_the_doubt_of_an_absence_back() {
    check_away(&[
        // Nothing live is believed before the publisher is known again.
        (Live(5), &[]),
        (Reply(2), &[]),
        (Reply(3), &[]),
        (Reply(4), &[Trust, Apply(3), Apply(4), Apply(5)]),
        (End, &[Status(Complete)]),
    ]);
    // The next one is here already.
    check_away(&[
        (Live(3), &[]),
        (Reply(2), &[Trust, Apply(3)]),
        (Reply(3), &[]),
        (End, &[Status(Complete)]),
    ]);
    // Nothing happened meanwhile. Taken back once: the next doubt is another one.
    let mut lines: Vec<(In, &[Out])> = vec![
        (Reply(2), &[]),
        (End, &[Trust]),
        (Tick(SETTLE_TIME), &[Ask(2)]),
        (Reply(2), &[]),
        (End, &[Status(Complete)]),
    ];
    lines.extend(AWAY);
    lines.extend([(Reply(2), &[][..]), (End, &[Trust])]);
    check_away(&lines);
}

#[test]
fn what_waited_when_the_connection_went_comes_again_behind_the_trust() {
    check(
        3,
        &[
            (Live(4), &[Ask(2), Status(Replaying)]),
            (Reply(2), &[]),
            (Down, &[Status(StreamStatus::Down)]),
            (Tick(LATE_TIME_MAX), &[Doubt(0)]),
            (Up, &[Ask(2), Status(Replaying)]),
            (Reply(2), &[]),
            (Reply(3), &[Trust, Apply(3)]),
            (Reply(4), &[Apply(4)]),
            (End, &[]),
            (Live(5), &[Apply(5), Status(Complete)]),
        ],
    );
}

#[test]
fn a_replay_that_fails_at_first_takes_the_doubt_back_when_it_comes() {
    check_away(&[
        (Fail, &[Ask(2)]),
        (Fail, &[]),
        (Tick(RETRY_PAUSE_MIN), &[Ask(2)]),
        // It may have done more than it has told.
        (Reply(2), &[]),
        (Fail, &[]),
        (Tick(2 * RETRY_PAUSE_MIN), &[Ask(2)]),
        (Reply(2), &[]),
        (Reply(3), &[Trust, Apply(3)]),
    ]);
    // Never answered: it is given up, and that is another doubt.
    let mut script = check_away(&[]);
    let mut seen = Vec::new();
    for _ in 0..REPLAY_TRIES_MAX {
        seen.extend(script.play(Fail));
        seen.extend(script.play(Tick(RETRY_PAUSE_MIN * 16)));
    }
    assert!(seen.contains(&Doubt(0)), "{seen:?}");
    seen = script.play(Tick(SILENCE_TIME_MAX));
    seen.extend(script.play(Reply(2)));
    assert!(seen.contains(&Ask(2)) && !seen.contains(&Trust), "{seen:?}");
}

#[test]
fn another_absence_before_the_reply_is_part_of_the_same() {
    // All is in doubt already, and for as long as since the first one.
    for (away, end) in
        [(LATE_TIME_MAX / 2, &[Trust][..]), (LATE_TIME_MAX, &[Trust]), (TRUST_TIME_MAX, &[])]
    {
        check_away(&[
            (Down, &[Status(StreamStatus::Down)]),
            (Tick(away), &[]),
            (Up, &[Ask(2), Status(Replaying)]),
            (Reply(2), &[]),
            (End, end),
        ]);
    }
}

#[test]
fn a_doubt_is_not_taken_back_when_some_of_it_may_be_forgotten() {
    let almost = TRUST_TIME_MAX - Duration::from_nanos(1);
    for (away, end) in [(almost, &[Trust][..]), (TRUST_TIME_MAX, &[])] {
        let lines: &[(In, &[Out])] = &[
            (Down, &[Status(StreamStatus::Down)]),
            (Tick(LATE_TIME_MAX), &[Doubt(0)]),
            (Tick(away), &[]),
            (Up, &[Ask(2), Status(Replaying)]),
            (Reply(2), &[]),
            (End, end),
        ];
        check(3, lines);
    }
}

#[test]
fn without_the_last_batch_an_absence_stays_a_doubt() {
    // A truncated buffer; one that keeps nothing any more.
    check_away(&[
        (Reply(4), &[Doubt(1), Apply(4)]),
        (Reply(5), &[Apply(5)]),
        (End, &[]),
        (Live(6), &[Apply(6), Status(Partial)]),
    ]);
    check_away(&[(Live(3), &[]), (End, &[Doubt(0), Apply(3), Status(Partial)])]);
    // The batch that waited is the next one, but whose?
    check_away(&[(Live(3), &[]), (Reply(4), &[Apply(3), Doubt(0), Apply(4)])]);
    // Another process, as the replay or a live batch tells.
    check_away(&[(ReplyOf(1, 2), &[Clear, Ask(0)]), (ReplyOf(1, 0), &[Apply(0)])]);
    check_away(&[(LiveOf(1, 0), &[Clear, Apply(0), Status(Complete)]), (Reply(2), &[])]);
}

#[test]
fn who_cannot_be_known_again_is_not_trusted() {
    // Without replays.
    check_live_only(
        3,
        &[
            (Down, &[Status(StreamStatus::Down)]),
            (Tick(LATE_TIME_MAX), &[Doubt(0)]),
            (Up, &[Doubt(0), Status(Partial)]),
            (Live(3), &[Apply(3)]),
        ],
    );
    // No clock tells the process from another one that did the same.
    let mut script = Script::new(REPLAYED, 0);
    script.has_times = false;
    (0..3).for_each(|seq| drop(script.play(Live(seq))));
    let seen = [Down, Tick(LATE_TIME_MAX), Up, Reply(2), End].map(|input| script.play(input));
    assert!(!seen.concat().contains(&Trust), "{seen:?}");
}

/// Trust takes back only the doubt of the absence: other doubts stay, and an inexact stream stays
/// inexact.
#[test]
fn only_the_doubt_of_the_absence_is_taken_back() {
    check(
        3,
        &[
            (Live(4), &[Ask(2), Status(Replaying)]),
            (Reply(2), &[]),
            (Reply(4), &[Doubt(1), Apply(4)]),
            (End, &[Status(Partial)]),
            (Down, &[Status(StreamStatus::Down)]),
            // A doubt of its own, about 4.
            (Tick(LATE_TIME_MAX), &[Doubt(0)]),
            (Up, &[Ask(4), Status(Replaying)]),
            (Reply(4), &[]),
            (End, &[Trust]),
            (Live(5), &[Apply(5), Status(Partial)]),
        ],
    );
    // Not all was known from the start, which is no doubt.
    let mut script = Script::new(REPLAYED, 0);
    script.check(&[
        (Live(7), &[Ask(0)]),
        (Reply(7), &[Apply(7)]),
        (End, &[Status(Partial)]),
        (Down, &[Status(StreamStatus::Down)]),
        (Tick(LATE_TIME_MAX), &[Doubt(0)]),
        (Up, &[Ask(7), Status(Replaying)]),
        (Reply(7), &[]),
        (Reply(8), &[Trust, Apply(8)]),
        (End, &[]),
        (Live(9), &[Apply(9), Status(Partial)]),
    ]);
}

#[test]
fn a_gap_is_a_doubt_after_a_second_and_none_any_more_once_it_is_filled() {
    let waits: &[(In, &[Out])] = &[
        (Live(4), &[Ask(1), Status(Replaying)]),
        (Tick(LATE_TIME_MAX / 2), &[]),
        (Live(5), &[]),
        (Tick(LATE_TIME_MAX / 2), &[Doubt(0)]),
    ];
    // By the replay; by a second one; by the missing batch, which comes late; by nothing.
    let ends: [&[(In, &[Out])]; 4] = [
        &[
            (Reply(1), &[]),
            (Reply(2), &[]),
            (Reply(3), &[Trust, Apply(2), Apply(3), Apply(4), Apply(5)]),
        ],
        &[
            (Reply(1), &[]),
            // The answer was given before 2 was published.
            (End, &[Ask(1)]),
            (Reply(1), &[]),
            (Reply(2), &[]),
            (Reply(3), &[Trust, Apply(2), Apply(3), Apply(4), Apply(5)]),
        ],
        &[(Live(3), &[]), (Live(2), &[Trust, Apply(2), Apply(3), Apply(4), Apply(5)])],
        &[(Reply(3), &[Doubt(1), Apply(3), Apply(4), Apply(5)])],
    ];
    for (end, lost) in ends.into_iter().zip([0, 0, 0, 1]) {
        let script = check(2, &[waits, end].concat());
        assert_eq!(script.report().lost_batches, lost);
    }
}

/// A replay that drips: its beginning says nothing of what its end removes, so that waits for it.
#[test]
fn what_is_late_is_applied_as_a_whole() {
    let half = Tick(LATE_TIME_MAX / 2);
    let lines: &[(In, &[Out])] = &[
        (Live(6), &[Ask(1), Status(Replaying)]),
        (half, &[]),
        (Reply(1), &[]),
        (Reply(2), &[Apply(2)]),
        (half, &[Doubt(0)]),
        (Reply(3), &[]),
        (half, &[]),
        (Reply(4), &[]),
        (Fail, &[Ask(4)]),
        (Reply(4), &[]),
        (Reply(5), &[Trust, Apply(3), Apply(4), Apply(5), Apply(6)]),
        (End, &[Status(Complete)]),
    ];
    check(2, lines);
    // The wait has a limit, behind which the missing batches count as lost.
    let lines: &[(In, &[Out])] = &[
        (Live(6), &[Ask(1), Status(Replaying)]),
        (Tick(LATE_TIME_MAX), &[Doubt(0)]),
        (Reply(1), &[]),
        (Reply(2), &[]),
        (Tick(HELD_TIME_MAX), &[Ask(2), Apply(2), Doubt(3), Apply(6)]),
    ];
    check(2, lines);
}

/// A publisher that answered before, and now sends nothing and does not answer, may be gone.
#[test]
fn silence_that_nobody_explains_is_a_doubt() {
    let silent: &[(In, &[Out])] = &[
        (Tick(SILENCE_TIME_MAX), &[Ask(2), Status(Replaying)]),
        (Tick(LATE_TIME_MAX), &[Doubt(0)]),
        (Live(3), &[Trust, Apply(3)]),
        (Reply(2), &[]),
        (End, &[Status(Complete)]),
    ];
    let mut script = check(3, &[]);
    script.check(&[(Tick(QUIET), &[Ask(2), Status(Replaying)])]);
    script.check(&[(Reply(2), &[]), (End, &[Status(Complete)])]);
    script.check(silent);
    // Refused at once, and given up.
    let mut seen = script.play(Tick(SILENCE_TIME_MAX));
    for _ in 0..REPLAY_TRIES_MAX {
        seen.extend(script.play(Fail));
        seen.extend(script.play(Tick(RETRY_PAUSE_MAX)));
    }
    let doubts = seen.iter().filter(|out| **out == Doubt(0)).count();
    assert_eq!((doubts, seen.last()), (1, Some(&Status(Partial))), "{seen:?}");
    script.check(&[(Live(4), &[Trust, Apply(4), Status(Complete)])]);
    // Who never answered anything may be unable to.
    script.follower = Follower::new(REPLAYED);
    seen = script.play(Up);
    seen.extend((0..3).flat_map(|seq| script.play(Live(seq))));
    for _ in 0..2 * REPLAY_TRIES_MAX {
        seen.extend(script.play(Fail));
        seen.extend(script.play(Tick(SILENCE_TIME_MAX / 5)));
    }
    assert!(!seen.contains(&Doubt(0)) && seen.contains(&Ask(2)), "{seen:?}");
}

/// A batch that comes late itself does not make what is missing before it any less late.
#[test]
fn what_waits_is_late_since_the_first_of_it_came() {
    let half = Tick(LATE_TIME_MAX / 2);
    let lines: &[(In, &[Out])] = &[
        (Live(5), &[Ask(1), Status(Replaying)]),
        (half, &[]),
        (Live(4), &[]),
        (half, &[Doubt(0)]),
    ];
    check(2, lines);
}

/// A gap that is given up lets the next batch be applied, and a later gap behind it is late
/// already.
#[test]
fn what_is_applied_at_last_is_in_doubt_where_more_is_late() {
    let lines: &[(In, &[Out])] = &[
        (Live(3), &[Ask(1), Status(Replaying)]),
        (Tick(LATE_TIME_MAX), &[Doubt(0)]),
        (Live(5), &[]),
        (Tick(HELD_TIME_MAX - LATE_TIME_MAX), &[Ask(1), Doubt(1), Apply(3), Doubt(0)]),
    ];
    check(2, lines);
}

/// Waiting batches are not requested again, so a publisher that replies in small parts reaches the
/// end.
#[test]
fn each_replay_goes_on_where_the_last_one_stopped() {
    let lines: &[(In, &[Out])] = &[
        (Live(6), &[Ask(1), Status(Replaying)]),
        (Tick(LATE_TIME_MAX), &[Doubt(0)]),
        (Reply(1), &[]),
        (Reply(2), &[]),
        (Fail, &[Ask(2)]),
        (Reply(2), &[]),
        (Reply(3), &[]),
        (Reply(4), &[]),
        (Fail, &[]),
        (Tick(RETRY_PAUSE_MIN), &[Ask(4)]),
        (Reply(4), &[]),
        (Reply(5), &[Trust, Apply(2), Apply(3), Apply(4), Apply(5), Apply(6)]),
        (End, &[Status(Complete)]),
    ];
    check(2, lines);
    // Another process does not have what waits either.
    let lines: &[(In, &[Out])] = &[
        (Live(6), &[Ask(1), Status(Replaying)]),
        (Tick(LATE_TIME_MAX), &[Doubt(0)]),
        (Reply(1), &[]),
        (Reply(2), &[]),
        (Fail, &[Ask(2)]),
        (End, &[Clear]),
    ];
    check(2, lines);
}

/// A clear also ends what was wanted: nothing is late behind it.
#[test]
fn behind_a_clear_nobody_is_waited_for() {
    let mut script = check(
        2,
        &[
            (Down, &[Status(StreamStatus::Down)]),
            (Up, &[Ask(1), Status(Replaying)]),
            (Fail, &[Ask(1)]),
            (Fail, &[]),
        ],
    );
    let cleared = StreamBatch { events: vec![CacheEvent::Cleared], ..script.batch(0, 5) };
    script.follower.on_live(cleared, script.now, &mut vec![]);
    script.check(&[(Tick(LATE_TIME_MAX * 2), &[])]);
    assert_eq!(script.follower.status(), Complete);
}

/// A question that was asked before the clock was set back says nothing of what came after it.
#[test]
fn a_contradiction_needs_an_answer_of_its_own() {
    let mut script = Script::new(REPLAYED, 0);
    (0..3).for_each(|seq| drop(script.play(LiveOf(9, seq))));
    script.check(&[(LiveOf(9, 4), &[Ask(2), Status(Replaying)])]);
    script.now = script.now + Duration::from_millis(1);
    // Older than its place: set back.
    script.check(&[
        (LiveOf(0, 5), &[]),
        (ReplyOf(9, 2), &[]),
        (ReplyOf(9, 3), &[Apply(3), Apply(4)]),
        (ReplyOf(9, 4), &[]),
        (End, &[Ask(4)]),
        (ReplyOf(9, 4), &[]),
        (ReplyOf(0, 5), &[Apply(5)]),
        (End, &[Status(Complete)]),
        (LiveOf(0, 6), &[Apply(6)]),
    ]);
}
